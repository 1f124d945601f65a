"""REGIONS: the contexts and functions around a run of statements, as `with autocast(dtype=bf16):`. A region is one
entry.

There are two sorts: a context in which the statements run, and a body, a function of some of the values that they read.
The function is then mapped, differentiated, iterated or the like; other values that it reads it closes over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from fuzzer.language.errors import UsageError
from fuzzer.language.private import config_module
from fuzzer.language.program import (
    BETWEEN,
    Attributes,
    Dtype,
    Program,
    Region,
    Value,
    between,
    outer_reads,
    statements,
    walk,
)
from fuzzer.language.settings import exists
from fuzzer.language.text import show_value
from fuzzer.language.values import TORCH_DTYPES


class UnknownRegion(UsageError):
    """A program names a region that does not exist, or gives it other attributes or operands than it takes."""


@dataclass(frozen=True)
class Inside:
    """A region's contents, for writing Python: its statements as lines, names it reads from outside, names read later.

    last: the first result of the last statement.
    """

    lines: list[str]
    reads: list[str]
    results: list[str]
    last: str


@dataclass(frozen=True)
class Transform:
    """The Python of a body: the expression that `block` returns, and the line that calls it."""

    returned: str
    line: str


def _no_context(region: Region) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext()


@dataclass(frozen=True)
class RegionSpec:
    """A kind of region.

    write       the region as ordinary Python; None for a body, written from its transform.
    share       the share of programs, among those that may hold such a region, in which one is tried.
    attributes  the values each may have; the first is the default, except for those `required`.
    operands    how many parameters its body has, at least and at most.
    transform   the Python of the body.
    above       lines before the function: classes, which compiled code cannot define.
    context     the context in which its nodes run one at a time on the CPU, to type them.
    portable    whether it means the same on every device.
    recomputes  whether the statements run again in the backward: then they may neither draw random numbers nor
                overwrite.
    pure        whether its own statements may neither draw random numbers nor overwrite.
    own_backward  whether it has a backward of its own: then all its operands and results are differentiable. It is not
                used for one graph of both directions, where func.vjp calls its forward instead (pytorch #193279).
    retypes     whether its purpose is to change types.
    decides     whether its first operand's values decide which statements run: then they must be exact, from a leaf.
    carries     whether the last result takes the place of the first operand.
    tells       whether it gives autograd a gradient that need not be a derivative of its forward.
    prototype   torch calls it a prototype, which may still refuse valid code.
    holds       the kinds of regions allowed in it; None: any.
    ambient     whether it encloses all statements, and is entered where the program's function is called.
    """

    write: Callable[[Region, Inside], list[str]] | None
    share: float
    attributes: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    operands: tuple[int, int] = (0, 0)
    transform: Callable[[Region, Inside], Transform] | None = None
    above: Callable[[Region, Inside], list[str]] | None = None
    context: Callable[[Region], contextlib.AbstractContextManager[object]] = _no_context
    portable: bool = True
    recomputes: bool = False
    pure: bool = False
    own_backward: bool = False
    retypes: bool = False
    decides: bool = False
    carries: bool = False
    tells: bool = False
    prototype: bool = False
    holds: tuple[str, ...] | None = None
    ambient: bool = False


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def attribute(region: Region, name: str) -> Value:
    """The value of a region's attribute, its default if left out."""
    return dict(region.attrs).get(name, REGIONS[region.kind].attributes[name][0])


# ---------------------------------------------------------------- contexts


def _dtype_of(region: Region) -> torch.dtype:
    named = dict(region.attrs)["dtype"]
    assert isinstance(named, Dtype)
    return TORCH_DTYPES[named.name]


def _on_cpu(region: Region) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cpu", dtype=_dtype_of(region))


def _write_autocast(region: Region, inside: Inside) -> list[str]:
    """On the device of the region's first operand."""
    return _autocast(inside, f"dtype={_dtype_of(region)}")


def _write_no_autocast(region: Region, inside: Inside) -> list[str]:
    return _autocast(inside, "enabled=False")


def _autocast(inside: Inside, given: str) -> list[str]:
    if not inside.reads:
        raise UnknownRegion("region autocast reads no value from outside, so its device is unknown")
    return [f"with torch.autocast({inside.reads[0]}.device.type, {given}):", *indented(inside.lines)]


def _write_statements(region: Region, inside: Inside) -> list[str]:
    return inside.lines


def _write_no_grad(region: Region, inside: Inside) -> list[str]:
    return ["with torch.no_grad():", *indented(inside.lines)]


def _write_checkpoint(region: Region, inside: Inside) -> list[str]:
    given, results = ", ".join(inside.reads), ", ".join(inside.results)
    return [
        f"def block({given}):",
        *indented([*inside.lines, f"return {results}"]),
        f"{results} = torch.utils.checkpoint.checkpoint(block, {given}, use_reentrant=False)",
    ]


def _write_hook(region: Region, inside: Inside) -> list[str]:
    """A hook on each result that scales its gradient."""
    hook = f"register_hook(lambda g: g * {attribute(region, 'scale')})"
    return [*inside.lines, *(f"{name}.{hook}" for name in inside.results)]


def _write_function(region: Region, inside: Inside) -> list[str]:
    results, given = ", ".join(inside.results), ", ".join(inside.reads)
    return [f"{results} = Function_{inside.results[0]}.apply({given})"]


def _write_class(region: Region, inside: Inside) -> list[str]:
    """An autograd Function of all values that the statements read; its backward is that of the statements, scaled."""
    name, given, scale = inside.results[0], ", ".join(inside.reads), attribute(region, "scale")
    pulled = "pull(gs)" if len(inside.results) > 1 else "pull(gs[0])"
    return [
        f"def block_{name}({given}):",
        *indented([*inside.lines, f"return {', '.join(inside.results)}"]),
        "",
        "",
        f"class Function_{name}(torch.autograd.Function):",
        "    @staticmethod",
        f"    def forward({given}):",
        f"        return block_{name}({given})",
        "",
        "    @staticmethod",
        "    def setup_context(ctx, inputs, output):",
        "        ctx.save_for_backward(*inputs)",
        "",
        "    @staticmethod",
        "    def backward(ctx, *gs):",
        f"        _, pull = torch.func.vjp(block_{name}, *ctx.saved_tensors)",
        f"        return {pulled}" if scale == 1.0 else f"        return tuple(g * {scale} for g in {pulled})",
        "",
        "",
    ]


# ---------------------------------------------------------------- bodies


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _targets(names: list[str]) -> str:
    return ", ".join(names) + "," * (len(names) == 1)


def _only(region: Region, inside: Inside) -> str:
    """The single result of a region. Raises UnknownRegion if there are several."""
    if inside.results != [inside.last]:
        others = ", ".join(name for name in inside.results if name != inside.last)
        raise UnknownRegion(f"region {region.kind} returns only {inside.last}, but {others} is read after it")
    return inside.last


def _vmap(region: Region, inside: Inside) -> Transform:
    dims = "".join(f", {name}={value}" for name, value in region.attrs)
    call = f"torch.vmap(block{dims})({', '.join(region.args)})"
    return Transform(", ".join(inside.results), f"{', '.join(inside.results)} = {call}")


def _grad(region: Region, inside: Inside) -> Transform:
    given, result = region.args[0], _only(region, inside)
    return Transform(result, f"{result} = torch.func.grad(lambda {given}: block({given}).sum())({given})")


def _jacobian(region: Region, inside: Inside) -> Transform:
    result = _only(region, inside)
    return Transform(result, f"{result} = torch.func.{region.kind}(block)({region.args[0]})")


def _jvp(region: Region, inside: Inside) -> Transform:
    """In the direction of the operand itself."""
    given, result = region.args[0], _only(region, inside)
    return Transform(result, f"_, {result} = torch.func.jvp(block, ({given},), ({given},))")


def _cond(region: Region, inside: Inside) -> Transform:
    """The body's results; their negatives where the operand's first element is not positive."""
    block = f"lambda {', '.join(region.args)}"
    given, results = _tuple(list(region.args)), _targets(inside.results)
    negated = f"{block}: tuple(-v for v in block({', '.join(region.args)}))"
    holds = f"{region.args[0]}.flatten()[0] > 0"
    return Transform(_tuple(inside.results), f"{results} = control.cond({holds}, block, {negated}, {given})")


def _map(region: Region, inside: Inside) -> Transform:
    return Transform(_tuple(inside.results), f"{_targets(inside.results)} = control.map(block, {region.args[0]})")


def _scan(region: Region, inside: Inside) -> Transform:
    """The last statement's result is carried, starting from the first operand; the other results are stacked."""
    others = [name for name in inside.results if name != inside.last]
    stacked = _tuple([f"{name}.clone()" for name in others or [inside.last]])  # saved values may not be results
    backwards = ", reverse=True" if attribute(region, "reverse") else ""
    into = _tuple(others) if others else "_"
    call = f"control.scan(block, {', '.join(region.args)}{backwards})"
    return Transform(f"{inside.last}, {stacked}", f"{inside.last}, {into} = {call}")


def _while_loop(region: Region, inside: Inside) -> Transform:
    """The operand is replaced by the last statement's result, so many times."""
    given, result = region.args[0], _only(region, inside)
    goes_on = f"lambda i, {given}: i < {attribute(region, 'times')}"
    after, start = f"lambda i, {given}: (i + 1, block({given}))", "torch.zeros((), dtype=torch.int64)"
    return Transform(result, f"_, {result} = control.while_loop({goes_on}, {after}, ({start}, {given}))")


def _control(transform: Callable[[Region, Inside], Transform], operands: int, share: float, **more: Any) -> RegionSpec:
    """A row of control flow."""
    many = (operands, operands)
    return RegionSpec(None, share, operands=many, transform=transform, pure=True, prototype=True, holds=(), **more)


def _of_func(transform: Callable[[Region, Inside], Transform], share: float, **more: Any) -> RegionSpec:
    """A row of a transform of torch.func."""
    given = {"operands": (1, 1), **more}
    return RegionSpec(None, share, transform=transform, pure=True, holds=OF_FUNC, **given)


_DTYPES: dict[str, tuple[Value, ...]] = {"dtype": (Dtype("bf16"), Dtype("f16"))}
_DIMS: dict[str, tuple[Value, ...]] = {"in_dims": (0, 1, -1), "out_dims": (0, 1, -1)}
CONTROL = ("cond", "map", "scan", "while_loop")
_CONTEXTS = ("autocast", "no_autocast", "checkpoint", "no_grad")
OF_FUNC = ("vmap", "grad", "jacrev", "jacfwd", "jvp")

REGIONS: dict[str, RegionSpec] = {
    # kept only where it changes a type, as in one program of eight
    "autocast": RegionSpec(
        _write_autocast,
        0.5,
        _DTYPES,
        required=("dtype",),
        context=_on_cpu,
        portable=False,
        retypes=True,
    ),
    "no_autocast": RegionSpec(
        _write_no_autocast,
        0.1,
        context=lambda region: torch.autocast("cpu", enabled=False),
        portable=False,
        retypes=True,
    ),
    "checkpoint": RegionSpec(_write_checkpoint, 0.08, recomputes=True, holds=_CONTEXTS),
    "no_grad": RegionSpec(_write_no_grad, 0.03, context=lambda region: torch.no_grad(), tells=True),
    "hook": RegionSpec(_write_hook, 0.02, {"scale": (2.0, -0.5)}, required=("scale",), pure=True, tells=True),
    "function": RegionSpec(
        _write_function,
        0.04,
        {"scale": (1.0, 2.0, -0.5)},
        above=_write_class,
        pure=True,
        own_backward=True,
        tells=True,
        holds=(),
    ),
    "vmap": _of_func(_vmap, 0.04, attributes=_DIMS, operands=(1, 3)),
    "grad": _of_func(_grad, 0.02),
    "jacrev": _of_func(_jacobian, 0.01),
    "jacfwd": _of_func(_jacobian, 0.01),
    "jvp": _of_func(_jvp, 0.02),
    "cond": _control(_cond, 1, 0.02, decides=True),
    "map": _control(_map, 1, 0.02),
    "scan": _control(_scan, 2, 0.02, attributes={"reverse": (False, True)}, carries=True),
    "while_loop": _control(_while_loop, 1, 0.02, attributes={"times": (2, 3, 1)}, carries=True),
    # generated with histories of memory; a compiled graph may save a value that eager does not, and report it
    # overwritten
    BETWEEN: RegionSpec(_write_no_grad, 0.04, context=lambda region: torch.no_grad(), tells=True, holds=()),
    # last, so that it encloses all others; kept as seldom as autocast
    "ambient_autocast": RegionSpec(
        _write_statements,
        0.1,
        _DTYPES,
        required=("dtype",),
        context=_on_cpu,
        portable=False,
        retypes=True,
        ambient=True,
    ),
}


@contextlib.contextmanager
def ambient(program: Program, device: str) -> Iterator[None]:
    """The context in force on this type of device while the program's function is called and compiled: its ambient
    region's autocast, if it has one."""
    region = ambient_region(program)
    if region is None:
        yield
        return
    own = {name.partition(".")[2]: value for name, value in ambient_settings(program)}
    with config_module("functorch").patch(own), torch.autocast(device, dtype=_dtype_of(region)):
        yield


def ambient_settings(program: Program) -> Attributes:
    """The settings under which a program with an ambient region is compiled, where this torch has them. By default a
    compiled backward runs under the autocast of its forward, as torch documents; eager's backward, and that of ordinary
    code, runs outside of it."""
    asked = (("functorch.backward_pass_autocast", "off"),) if ambient_region(program) is not None else ()
    return tuple((name, value) for name, value in asked if exists(name))


def ambient_region(program: Program) -> Region | None:
    """The region around all of a program, outside its function. Raises UnknownRegion where another such region stands
    elsewhere."""
    known = [s for s in statements(program.body) if isinstance(s, Region) and s.kind in REGIONS]
    found = [region for region in known if REGIONS[region.kind].ambient]
    if (found and program.body != (found[0],)) or len(found) > 1:
        raise UnknownRegion(f"region {found[-1].kind} must enclose all statements, once")
    return found[0] if found else None


def check_between(program: Program) -> None:
    """Raise UnknownRegion where a region of statements before the backward is not the last statement, reads a name that
    the function does not return, or binds a name that is returned."""
    late, returned = between(program), {output.value for output in program.outputs}
    if any(isinstance(s, Region) and s.kind == BETWEEN and s is not late for s in statements(program.body)):
        raise UnknownRegion(f"region {BETWEEN} must stand at the end of a program, once")
    if late is None:
        return
    if unknown := set(outer_reads(late.body)) - returned - {leaf.name for leaf in program.leaves}:
        raise UnknownRegion(f"region {BETWEEN} may read only leaves and outputs, not {min(unknown)}")
    if bound := returned.intersection(name for node in walk(late.body) for name in node.outs):
        raise UnknownRegion(f"region {BETWEEN} may not bind a returned name such as {min(bound)}")


def write_call(program: Program, call: str) -> list[str]:
    """The lines that call the program's function, as ordinary Python, under its ambient context."""
    region = ambient_region(program)
    if region is None or not program.leaves:
        return [call]
    return [f"with torch.autocast({program.leaves[0].name}.device.type, dtype={_dtype_of(region)}):", f"    {call}"]


def write_region(region: Region, inside: Inside) -> list[str]:
    """The region as ordinary Python. Raises UnknownRegion."""
    spec = region_spec(region)
    if spec.write is not None:
        return spec.write(region, inside)
    assert spec.transform is not None
    made = spec.transform(region, inside)
    return [
        f"def block({', '.join(region.args)}):",
        *indented([*inside.lines, f"return {made.returned}"]),
        made.line,
    ]


def region_spec(region: Region) -> RegionSpec:
    """The region's entry. Raises UnknownRegion."""
    spec = REGIONS.get(region.kind)
    if spec is None:
        raise UnknownRegion(f"no region {region.kind!r}; known are {', '.join(REGIONS)}")
    given = dict(region.attrs)
    for name in {*given, *spec.required}:
        values = spec.attributes.get(name, ())
        if given.get(name) not in values:
            taken = " or ".join(f"{name}={show_value(value)}" for value in values) or f"no {name}"
            raise UnknownRegion(f"region {region.kind} takes {taken}, not {name}={show_value(given.get(name))}")
    least, most = spec.operands
    if not least <= len(region.args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise UnknownRegion(f"region {region.kind} takes {wanted} operand(s) that it reads, not {len(region.args)}")
    return spec
