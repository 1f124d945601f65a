"""The only evaluator of a Program: it writes the program as ordinary Python, and runs that.

torch.compile then sees plain torch calls (no interpreter loop to trace through), and a reproducer prints the very
lines that ran.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzzer.language import control, regions
from fuzzer.language.errors import UnknownOp
from fuzzer.language.ops import OPS
from fuzzer.language.program import (
    Argument,
    Dtype,
    Leaf,
    Node,
    Output,
    Program,
    Recipe,
    Region,
    Statement,
    TensorType,
    Value,
    between,
    extent,
    function_body,
    may_alias,
    outer_reads,
    walk,
    writable,
    writes,
)
from fuzzer.language.values import DTYPE_NAMES, TORCH_DTYPES, as_data, fill

_NAMESPACE: dict[str, Any] = {"torch": torch, "control": control, "inf": math.inf, "nan": math.nan}
# Sources that are properties of a tensor: read, not called.
PROPERTIES = frozenset(
    spec.source
    for spec in OPS.values()
    if spec.source.startswith("torch.Tensor.") and not callable(getattr(torch.Tensor, spec.source[13:]))
)


def python_value(value: Value) -> str:
    """An attribute's value as Python source."""
    if isinstance(value, Dtype):
        return str(TORCH_DTYPES[value.name])
    if isinstance(value, tuple):
        inner = ", ".join(map(python_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _argument(arg: Argument) -> str:
    return "[" + ", ".join(map(str, arg)) + "]" if isinstance(arg, tuple) else str(arg)


def call(node: Node) -> str:
    """The node's right-hand side as Python source. Raises UnknownOp."""
    spec = OPS.get(node.op)
    if spec is None:
        raise UnknownOp(f"no op {node.op!r}; `backfuzz ops` lists the known ones")
    leading = {a.name for a in spec.attributes if a.leads}
    parts = [python_value(value) for key, value in node.attrs if key in leading]
    for i, arg in enumerate(node.args):
        keyword = spec.operands[i].keyword if i < len(spec.operands) else None
        if keyword is None:
            parts.append(_argument(arg))
        elif arg is not None:
            parts.append(f"{keyword}={_argument(arg)}")
    parts += [f"{key}={python_value(value)}" for key, value in node.attrs if key not in leading]
    if spec.source in PROPERTIES:
        return f"{parts[0]}.{spec.source.removeprefix('torch.Tensor.')}"
    written = f"{spec.source}({', '.join(parts)})"
    for outer in spec.then:
        written = f"{outer}({written})" if spec.results == 1 else f"map({outer}, {written})"
    return written


def line(node: Node) -> str:
    """One assignment as Python source."""
    written = call(node)
    # an op with a varying number of results returns a tuple, even of one result
    comma = "," if len(node.outs) == 1 and callable(OPS[node.op].results) else ""
    return f"{', '.join(node.outs)}{comma} = {written}"


@dataclass(frozen=True)
class Written:
    """A body as Python: its lines, and the lines that come before the function."""

    lines: list[str]
    above: list[str]


def written(body: Sequence[Statement], after: Collection[str]) -> Written:
    """The body's statements as Python source; `after` are the names that are read afterwards."""
    found = Written([], [])
    for i, s in enumerate(body):
        if isinstance(s, Node):
            found.lines.append(line(s))
            continue
        spec, within = regions.region_spec(s), written(s.body, _results(s, body[i + 1 :], after))
        inside = _inside(s, within.lines, _results(s, body[i + 1 :], after))
        found.lines.extend(regions.write_region(s, inside))
        found.above.extend(within.above + (spec.above(s, inside) if spec.above else []))
    return found


def _results(region: Region, rest: Sequence[Statement], after: Collection[str]) -> list[str]:
    """The names bound in a region that are read after it; all of them if none is."""
    read = {*after, *(name for node in walk(tuple(rest)) for name in node.uses)}
    bound = [name for node in walk(region.body) for name in node.outs]
    return [name for name in bound if name in read] or bound


def _inside(region: Region, inner: list[str], results: list[str]) -> regions.Inside:
    *_, last = walk(region.body)
    return regions.Inside(inner, outer_reads(region.body), results, last.outs[0])


def _hidden(body: Sequence[Statement], after: Collection[str]) -> set[str]:
    """The names that are bound in bodies of functions and not read outside."""
    found: set[str] = set()
    for i, s in enumerate(body):
        if isinstance(s, Region):
            read = {*after, *(name for node in walk(tuple(body[i + 1 :])) for name in node.uses)}
            bound = {name for node in walk(s.body) for name in node.outs}
            found |= bound - read if regions.region_spec(s).transform else _hidden(s.body, read)
    return found


def to_source(program: Program, name: str = "f") -> str:
    """The program as a Python function of its leaves that returns the tuple of its outputs."""
    outputs = [o.value for o in program.outputs]
    head = f"def {name}({', '.join(leaf.name for leaf in program.leaves)}):"
    found = written(function_body(program), outputs)
    body = regions.indented([*found.lines, f"return ({', '.join(outputs)}{',' * bool(outputs)})"])
    return "\n".join([*found.above, head, *body]) + "\n"


def to_function(program: Program) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The program as a Python function: one positional argument a leaf, the outputs as a tuple."""
    return _made(to_source(program), "f")


def write_between(program: Program) -> list[str]:
    """The lines that run between the function's return and the backward."""
    late = between(program)
    return [] if late is None else written((late,), ()).lines


def run_between(program: Program, values: dict[str, torch.Tensor]) -> None:
    """Run the program's statements between function and backward on these leaves and outputs."""
    if lines := write_between(program):
        source = "\n".join([f"def between({', '.join(values)}):", *regions.indented(lines)])
        _made(source, "between")(*values.values())


def _made(source: str, name: str) -> Callable[..., Any]:
    """The function that this source defines under that name."""
    # within a function, since dynamo looks up global names in the module of that name
    inside = regions.indented([*source.splitlines(), f"return {name}"])
    space = {**_NAMESPACE, "__name__": __name__}
    exec(compile("\n".join(["def made():", *inside]), "<program>", "exec"), space)
    return space["made"]()


def value_recipes(program: Program, device: str = "cpu", numel: int = 4096) -> dict[str, Recipe]:
    """The contents of leaves and computed values in one eager run, as `data(...)` recipes of the same bits.

    Left out: values of more than `numel` elements, values that a later in-place op may have changed, and values inside
    a region's body.
    """
    family = may_alias(program)
    overwritten = set[str]().union(*(family[target] for node in program.nodes if (target := writes(node))))
    bound = [leaf.name for leaf in program.leaves] + [name for node in program.nodes for name in node.outs]
    hidden = _hidden(function_body(program), {output.value for output in program.outputs})
    hidden |= {name for node in walk(program.body[len(function_body(program)) :]) for name in node.outs}
    names = [name for name in bound if name not in overwritten | hidden]
    everything = replace(program, outputs=tuple(map(Output, names)))
    with regions.ambient(program, device.split(":")[0]):
        values = [value.detach() for value in to_function(everything)(*materialise(program.leaves, device).values())]
    return {name: as_data(value) for name, value in zip(names, values, strict=True) if value.numel() <= numel}


@functools.lru_cache(4096)
def _compiled(text: str, mode: str = "exec") -> Any:
    return compile(text, "<node>", mode)


def apply(node: Node, env: dict[str, Any]) -> None:
    """Run one node on the tensors in env and bind its results there."""
    env.update(_NAMESPACE)
    exec(_compiled(line(node)), env)
    for name in node.outs:
        if not isinstance(env[name], torch.Tensor):
            raise TypeError(f"{node.op}: result {name} is a {type(env[name]).__name__}, not a tensor")


def run_each(program: Program, env: dict[str, Any], run: Callable[[Node], None]) -> None:
    """Call run(node) for every node in order, inside the contexts of its regions (for the CPU), on the tensors in
    env."""
    env.update(_NAMESPACE)
    _run_each(program.body, [o.value for o in program.outputs], env, run)


def _run_each(
    body: Sequence[Statement], after: Collection[str], env: dict[str, Any], run: Callable[[Node], None]
) -> None:
    for i, s in enumerate(body):
        if isinstance(s, Node):
            run(s)
            continue
        spec, results = regions.region_spec(s), _results(s, body[i + 1 :], after)
        if spec.transform is None:
            with spec.context(s):
                _run_each(s.body, results, env, run)
        else:
            _run_body(s, results, spec.transform(s, _inside(s, [], results)), env, run)


def _run_body(
    region: Region, results: list[str], made: regions.Transform, env: dict[str, Any], run: Callable[[Node], None]
) -> None:
    """Call the body of a region, running its nodes one at a time."""
    held = {name: env[name] for name in region.args}
    bound = [name for node in walk(region.body) for name in node.outs]

    def block(*given: torch.Tensor) -> Any:
        env.update(zip(region.args, given, strict=True))
        _run_each(region.body, results, env, run)
        found = eval(_compiled(made.returned, "eval"), env)
        env.update({name: _type_alone(env[name]) for name in bound}, **held)  # wrapped ones die here
        return found

    env["block"] = block
    exec(_compiled(made.line), env)


def _type_alone(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without data of the same dtype, sizes and strides."""
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


Allocate = Callable[[torch.Tensor], torch.Tensor]  # returns the same numbers in another storage of the same size


def materialise(
    leaves: Sequence[Leaf], device: str = "cpu", allocate: Allocate | None = None
) -> dict[str, torch.Tensor]:
    """Fresh tensors for the leaves, with their exact storage geometry; views share their base's storage, and are
    autograd's views of it too where no leaf requires a gradient: AOTAutograd takes only such, if they are written."""
    tensors: dict[str, torch.Tensor] = {}
    apart = any(leaf.requires_grad for leaf in leaves)
    for leaf in leaves:
        if leaf.base is None:
            tensors[leaf.name] = _placed_on(leaf, device, allocate)
        else:
            base = tensors[leaf.base].detach() if apart else tensors[leaf.base]
            tensors[leaf.name] = torch.as_strided(base, leaf.shape, leaf.stride, leaf.offset)
        if leaf.conj:
            tensors[leaf.name] = tensors[leaf.name].conj()
    for leaf in leaves:
        if leaf.requires_grad:
            tensors[leaf.name].requires_grad_()
    return tensors


def strided(values: torch.Tensor, stride: Sequence[int], offset: int = 0, room: int = 0) -> torch.Tensor:
    """A tensor equal to `values` (overlaps: the last write wins) with this stride and offset, in a storage of its own.

    The storage has at least `room` elements; those between the elements are zero.
    """
    shape = tuple(values.shape)
    storage = torch.zeros(max(extent(shape, tuple(stride), offset), room), dtype=values.dtype)
    view = torch.as_strided(storage, shape, tuple(stride), offset)
    if not writable(TensorType(DTYPE_NAMES[values.dtype], shape, tuple(stride))):
        positions = torch.as_strided(torch.arange(storage.numel()), shape, tuple(stride), offset).flatten()
        last = torch.full((storage.numel(),), -1)  # each element takes its last value: several threads
        last.scatter_reduce_(0, positions, torch.arange(positions.numel()), "amax")  # of an index_put would take any
        taken = last >= 0
        storage[taken] = values.flatten()[last[taken]]
    else:
        view.copy_(values)
    return view


def _placed(leaf: Leaf) -> torch.Tensor:
    return strided(fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape), leaf.stride, leaf.offset)


def _placed_on(leaf: Leaf, device: str, allocate: Allocate | None) -> torch.Tensor:
    here = _placed(leaf)
    if device == "cpu" and allocate is None:
        return here
    flat = torch.as_strided(here, (here.untyped_storage().nbytes() // here.element_size(),), (1,), 0).to(device)
    return torch.as_strided(allocate(flat) if allocate else flat, leaf.shape, leaf.stride, leaf.offset)


def cotangents(program: Program, device: str = "cpu", allocate: Allocate | None = None) -> list[torch.Tensor]:
    """One tensor for each differentiated output, in order, with its declared layout."""
    found = []
    for output in program.outputs:
        if output.cotangent is not None:
            c = output.cotangent
            leaf = Leaf("c", c.dtype, c.shape, c.stride, c.offset, values=c.values, seed=c.seed)
            found.append(_placed_on(leaf, device, allocate))
    return found
