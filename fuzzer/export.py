"""A finding as text that a person can post: a standalone script (`repro`) and the draft of an issue (`issue`).

Both are pure functions of the Finding. The script imports torch and the standard library only. Its exit code is 1
while the fault is there, 0 when it is gone and 2 where it could not run (no such device, setting or operation).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fuzzer.execution.messages import UNCOMPILED
from fuzzer.interpret import cotangents, lines, materialise, python_value
from fuzzer.ops import OPS
from fuzzer.private import CONFIGS
from fuzzer.program import (
    Cotangent,
    Dtype,
    Leaf,
    Program,
    Recipe,
    Shape,
    Value,
    canonical,
    contiguous,
    extent,
    holders,
    written_leaves,
)
from fuzzer.routes import ROUTES
from fuzzer.text import parse
from fuzzer.values import TORCH_DTYPES, source
from fuzzer.verdict import Comparison, Finding

INLINE = 64  # tensors of at most this many elements are written as literals
WIDTH = 110
# A crash is over when the compile is, a hang when it would have been: seconds given to the child process of the script
PATIENCE = {"crashes": 600, "hangs": 180}


# Modules that a route's script needs beside torch and the settings.
IMPORTS = {
    "compiled_autograd": {"torch._dynamo.compiled_autograd"},
    "aoti": {"torch._inductor", "torch.fx.experimental.proxy_tensor"},
}


class ExportError(ValueError):
    """A finding that has no form as a script; the message says why."""


# ---------------------------------------------------------------- the script


def repro(finding: Finding) -> str:
    """A standalone Python script that shows the finding. Raises ExportError, UnknownOp or UnknownRecipe."""
    program = _plainly_named(parse(finding.program))
    run = _Place(finding)
    child = finding.signature.verdict in PATIENCE
    needed = ROUTES[program.route.name].settings if program.route.name in ROUTES else ()
    settings = [f"{_setting(name)} = {_value(value)}" for name, value in dict((*program.settings, *needed)).items()]
    configs = sorted({name.rpartition(".config.")[0] + ".config" for name in settings})
    body = _function(program)
    functional = ", torch.nn.functional as F" if re.search(r"\bF\.", "\n".join(body)) else ""
    imports = [f"import os{', subprocess' if child else ''}, sys, torch{functional}"]
    imports += [f"import {name}" for name in sorted({*configs, *IMPORTS.get(program.route.name, ())})]
    imports += ["import flag_gems"] if run.gems else []
    parts = [
        [*_header(finding), *imports, FAILS, *run.needs, *settings],
        *_inputs(program, run),
        body,
        _gradients(program),
        *([_GEMS] if run.gems else []),
        _check(finding, program, run),
    ]
    return "\n\n".join("\n".join(part).replace("\n\n\n", "\n\n") for part in parts) + "\n"


def _plainly_named(program: Program) -> Program:
    """The program under names that cannot meet the script's own."""
    names = [leaf.name for leaf in program.leaves] + [name for node in program.nodes for name in node.outs]
    return program if all(re.fullmatch(r"[xv]\d+", name) for name in names) else canonical(program)


class _Place:
    """Where the two sides of a finding ran, and how the script says so."""

    def __init__(self, finding: Finding):
        here = finding.place.get("device", "cpu")
        self.backend, self.device = _side(finding.place.get("backend", "inductor"), here)
        self.against, self.base = _side(finding.place.get("against", "eager"), here)
        self.moves = {self.device, self.base} != {"cpu"}
        # as in the trial: TF32 keeps 10 bits of the factors
        convolves = any(node.op.startswith("conv") for node in parse(finding.program).nodes)
        self.needs = ["torch.backends.cudnn.allow_tf32 = False"] if self.moves and convolves else []
        self.gems = self.backend == "flag_gems"
        self.start = "in_flag_gems(gradients, " if self.gems else "gradients("

    def inputs(self, device: str) -> str:
        return f'inputs("{device}")' if self.moves else "inputs()"

    def call(self, program: Program, backend: str) -> str:
        """What `gradients` is given first: the function as this backend runs it, or what compiles it."""
        route, held = program.route.name, any(leaf.parameter for leaf in program.leaves)
        target = "step" if route == "vjp" else "f"
        if backend in UNCOMPILED:
            return "None" if route == "compiled_autograd" else "lambda s: s" if held or route == "aoti" else target
        if route == "aoti":
            return "packaged"
        options = ("" if backend == "inductor" else f', backend="{backend}"') + ", fullgraph=True"
        if dict(program.route.options).get("dynamic"):
            options += ", dynamic=True"
        if route == "compiled_autograd" or held:
            return f"lambda g: torch.compile(g{options})"
        return f"torch.compile({target}{options})"


def _side(text: str, device: str) -> tuple[str, str]:
    backend, _, own = text.partition("@")
    return backend, (own or device).partition(":")[0]


# An exception that nobody catches would end Python with 1, which says that the fault is there.
FAILS = "sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(2))"
_GEMS = ["def in_flag_gems(call, *args):", "    with flag_gems.use_gems():", "        return call(*args)"]


def _setting(name: str) -> str:
    prefix, _, key = name.partition(".")
    if prefix not in CONFIGS:
        raise ExportError(f"no setting {name!r}: a name starts with {', '.join(CONFIGS)}")
    return f"{CONFIGS[prefix]}.{key}"


def _value(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) and value.isidentifier() else python_value(value)


def _header(finding: Finding) -> list[str]:
    place = finding.place
    where = ", ".join([place.get("device", "cpu"), *([f"torch {place['torch']}"] if "torch" in place else [])])
    text = f"backfuzz {finding.id}, {where}: {_headline(finding)}. {finding.detail}"
    return [
        f"# {_one_line(text, WIDTH)}",
        "# Exits 1 while the fault is there, 0 when it is gone, 2 where it could not run.",
    ]


def _one_line(text: str, width: int = 300) -> str:
    return textwrap.shorten(" ".join(text.split()), width, placeholder=" ...")


# ---------------------------------------------------------------- inputs


def _inputs(program: Program, run: _Place) -> Iterator[list[str]]:
    """The function that builds leaves and cotangents, preceded by what it needs."""
    tensors = materialise(program.leaves)
    rows: list[str] = []
    for leaf in program.leaves:
        if leaf.base is None:
            expression = _tensor(leaf, tensors[leaf.name], run)
        else:
            offset = f", {leaf.offset}" if leaf.offset else ""
            expression = f"{leaf.base}.detach().as_strided({leaf.shape}, {leaf.stride}{offset})"
        rows.append(f"{leaf.name} = {expression}")
    if program.route.name not in ("vjp", "aoti"):
        # after all views are taken, as the trial did
        rows = [
            row + (".requires_grad_()" if leaf.requires_grad else "")
            for row, leaf in zip(rows, program.leaves, strict=True)
        ]
    declared = [output.cotangent for output in program.outputs if output.cotangent is not None]
    for i, (c, tensor) in enumerate(zip(declared, cotangents(program), strict=True)):
        rows.append(f"c{i} = {_tensor(c, tensor, run)}")
    names = ", ".join(_input_names(program))
    if any(re.search(r"(?<!_)strided\(", row) for row in rows):
        yield _strided(run)
    drawn = ["    torch.manual_seed(0)  # every run draws the same"] if _draws(program) else []
    head = [f"def inputs({'device' if run.moves else ''}):", *drawn]
    listed = "    return [" + ", ".join(row.partition(" = ")[2] for row in rows) + "]"
    if len(listed) <= WIDTH and "\n" not in listed and not any(leaf.base for leaf in program.leaves):
        yield [*head, listed]
    else:
        yield [*head, textwrap.indent("\n".join(rows), "    "), f"    return [{names}]"]


def _draws(program: Program) -> bool:
    return any(OPS[node.op].random for node in program.nodes)


def _input_names(program: Program) -> list[str]:
    seeded = sum(output.cotangent is not None for output in program.outputs)
    return [leaf.name for leaf in program.leaves] + [f"c{i}" for i in range(seeded)]


def _strided(run: _Place) -> list[str]:
    device = ", device" if run.moves else ""
    move = ".to(device)" if run.moves else ""
    return [
        f"def strided(values, size, stride, offset{device}):",
        "    storage = torch.zeros(size, dtype=values.dtype)",
        "    positions = torch.arange(size).as_strided(values.shape, stride, offset)",
        "    storage[positions.flatten()] = values.flatten()",
        f"    return storage{move}.as_strided(values.shape, stride, offset)",
    ]


def _tensor(t: Leaf | Cotangent, tensor: torch.Tensor, run: _Place) -> str:
    """An expression for a tensor of these values in this layout."""
    offset = t.offset if isinstance(t, Leaf) else 0
    size = extent(t.shape, t.stride, offset)
    move = ".to(device)" if run.moves else ""
    if t.stride == contiguous(t.shape) and not offset:
        return _values(tensor, t.values, t.seed, t.dtype, t.shape) + move
    if not any(t.stride) and 0 not in t.shape and not offset:
        return f"{_literal(tensor.flatten()[0])}{move}.expand({t.shape})"
    if size <= INLINE:
        at = f", {offset}" if offset else ""
        return f"{_literal(tensor.as_strided((size,), (1,), 0))}{move}.as_strided({t.shape}, {t.stride}{at})"
    device = ", device" if run.moves else ""
    return f"strided({source(t.values, t.seed, t.dtype, t.shape)}, {size}, {t.stride}, {offset}{device})"


def _values(tensor: torch.Tensor, recipe: Recipe, seed: int, dtype: str, shape: Shape) -> str:
    if tensor.numel() > INLINE and not _constant(tensor):
        return source(recipe, seed, dtype, shape)
    return _literal(tensor)


def _constant(tensor: torch.Tensor) -> bool:
    flat = tensor.double().flatten()
    return flat.numel() > 0 and bool((flat == flat[0]).all()) and not bool((flat == 0).any() and flat.signbit().any())


def _literal(tensor: torch.Tensor) -> str:
    """The shortest plain expression for a small contiguous tensor, exact in its dtype."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    kind = "" if dtype == torch.float32 else f", dtype={dtype}"
    if not tensor.numel():
        return f"torch.empty({shape}{kind})"
    first = tensor.flatten()[0].item()
    if _constant(tensor) and tensor.dim() and dtype != torch.bool:
        if first in (0, 1):
            return f"torch.{'ones' if first else 'zeros'}({', '.join(map(str, shape))}{kind})"
        number = _numbers(tensor.flatten()[:1])[0]
        return f"torch.full({shape}, {number}, dtype={dtype})"
    numbers = _numbers(tensor.flatten())
    if dtype in (torch.float32, torch.int64, torch.bool):
        kind = ""  # what torch infers from such a list
    return _listed(numbers, shape).replace("KIND", kind)


def _numbers(flat: torch.Tensor) -> list[str]:
    """Each element as the shortest decimal that its dtype reads back exactly."""
    if not flat.dtype.is_floating_point:
        return [repr(value) for value in flat.tolist()]
    found = []
    for value in flat.double().tolist():
        if value != value or value in (float("inf"), float("-inf")):
            found.append(f'float("{value}")')
            continue
        short = (float(f"{value:.{digits}g}") for digits in range(1, 18))
        found.append(repr(next(s for s in short if torch.tensor(s, dtype=flat.dtype).double().item() == value)))
    return found


def _listed(numbers: list[str], shape: Shape) -> str:
    """Numbers as nested lists where a row fits in a line, else as one list that is reshaped."""
    rows = _rows(numbers, shape)
    if len(rows) <= WIDTH - 30:
        return f"torch.tensor({rows}KIND)"
    if len(shape) == 2 and max(map(len, parts := _parts(numbers, shape))) <= WIDTH - 20:
        return "torch.tensor([\n" + "".join(f"    {part},\n" for part in parts) + "]KIND)"
    wrapped = textwrap.fill(", ".join(numbers), WIDTH, initial_indent="    ", subsequent_indent="    ")
    reshaped = f".reshape{shape}" if len(shape) > 1 else ""
    return f"torch.tensor([\n{wrapped},\n]KIND){reshaped}"


def _rows(numbers: list[str], shape: Shape) -> str:
    return "[" + ", ".join(_parts(numbers, shape)) + "]" if shape else numbers[0]


def _parts(numbers: list[str], shape: Shape) -> list[str]:
    step = len(numbers) // shape[0]
    return [_rows(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


# ---------------------------------------------------------------- the function and its gradient


def _function(program: Program) -> list[str]:
    outputs = [output.value for output in program.outputs]
    body = [f"    {_as_written(line)}" for line in lines(program.body, outputs)]
    last = f"    {outputs[0]} = "
    if len(outputs) == 1 and body and body[-1].startswith(last):
        body[-1] = body[-1].replace(last, "    return ", 1)
    else:
        body.append(f"    return {', '.join(outputs)}")
    return [f"def f({', '.join(leaf.name for leaf in program.leaves)}):", *body]


def _as_written(line: str) -> str:
    """The same call in the short form that people use."""
    line = re.sub(r"torch\.Tensor\.(\w+)\((\w+)(?:, )?", r"\2.\1(", line)
    return line.replace("torch.nn.functional.", "F.")


def _gradients(program: Program) -> list[str]:
    """`gradients(f, *inputs)`: every output and gradient by name."""
    writers = {"autograd": _autograd, "vjp": _vjp, "backward_twice": _backward_twice, "accumulate": _accumulate,
               "compiled_autograd": _compiled_autograd, "aoti": _aoti}  # fmt: skip
    if program.route.name not in writers:
        raise ExportError(f"no script for route {program.route.name!r} yet; it knows {', '.join(writers)}")
    return writers[program.route.name](program)


def _results(program: Program, wanted: list[str]) -> str:
    pairs = [f'"{output.value}": {output.value}' for output in program.outputs]
    pairs += [f'"{name}": {name}' for name in written_leaves(program)]
    pairs += [f'"{name}.grad": g{i}' for i, name in enumerate(wanted)]
    one = "{" + ", ".join(pairs) + "}"
    if len(one) <= WIDTH - 10:
        return one
    return "{\n" + "".join(f"        {pair},\n" for pair in pairs) + "    }"


def _autograd(program: Program) -> list[str]:
    names = _input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    text = [
        f"def gradients({', '.join(['f', *names])}):",
        f"    {', '.join(o.value for o in program.outputs)} = f({', '.join(leaves)})",
    ]
    if wanted and seeded:
        given = f"[{', '.join(seeded)}], [{', '.join(wanted)}], [{', '.join(names[len(leaves) :])}]"
        targets = ", ".join(f"g{i}" for i in range(len(wanted))) + ("," if len(wanted) == 1 else "")
        text.append(f"    {targets} = torch.autograd.grad({given}, allow_unused=True)")
    else:
        wanted = []
    return [*text, f"    return {_results(program, wanted)}"]


def _backward_twice(program: Program) -> list[str]:
    loop = ["    for _ in range(2):  # the second gradient is added to the first"]
    return _into_grad(program, "gradients", lambda call, pull: [call, *loop, f"    {pull[:-1]}, retain_graph=True)"])


def _accumulate(program: Program) -> list[str]:
    loop = ["    for _ in range(2):  # the second gradient is added to the first"]
    return _into_grad(program, "gradients", lambda call, pull: [*loop, f"    {call}", f"    {pull}"])


def _compiled_autograd(program: Program) -> list[str]:
    given = ", ".join(_input_names(program))
    dynamic = bool(dict(program.route.options).get("dynamic"))
    return [
        *_into_grad(program, "backward", lambda call, pull: [call, pull]),
        "",
        "",
        f"def gradients(compile, {given}):",
        "    if compile is None:",
        f"        return backward(f, {given})",
        f"    with torch._dynamo.compiled_autograd._enable(compile, dynamic={dynamic}):  # compiles what autograd runs",
        f"        return backward(compile(f), {given})",
    ]


def _into_grad(program: Program, name: str, run: Callable[[str, str], list[str]]) -> list[str]:
    """A function of f and the inputs that leaves the gradients in `.grad`; run(forward, backward) gives its lines."""
    names = _input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    call = f"    {', '.join(o.value for o in program.outputs)} = f({', '.join(leaves)})"
    pull = f"    torch.autograd.backward([{', '.join(seeded)}], [{', '.join(names[len(leaves) :])}])"
    lines = run(call, pull) if wanted and seeded else [call]
    if wanted and seeded:
        targets = ", ".join(f"g{i}" for i in range(len(wanted)))
        lines.append(f"    {targets} = {', '.join(f'{leaf}.grad' for leaf in wanted)}")
    return [
        f"def {name}({', '.join(['f', *names])}):",
        *lines,
        f"    return {_results(program, wanted if seeded else [])}",
    ]


def _vjp(program: Program) -> list[str]:
    names = _input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    outputs = [output.value for output in program.outputs]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    closed = [*outputs[:1], ""] if len(outputs) == 1 else outputs
    held = [leaf.name for leaf in program.leaves if leaf.parameter]
    step = f"Step({', '.join(held)})" if held else "step"
    first = f"compile({step})" if held or program.route.name == "aoti" else ""
    return [
        f"def step({', '.join(names)}):",
        f"    def primal({', '.join(wanted)}):",
        f"        {', '.join(outputs)} = f({', '.join(leaves)})",
        f"        return ({', '.join(seeded)},), ({', '.join(closed).rstrip()})",
        "",
        f"    _, pull, outs = torch.func.vjp(primal, {', '.join(wanted)}, has_aux=True)",
        f"    return outs, pull(({', '.join(names[len(leaves) :])},))",
        "",
        "",
        *(_module(program, held) if held else []),
        f"def gradients({'compile' if first else 'step'}, {', '.join(names)}):",
        "    with torch.no_grad():",
        f"        ({', '.join(closed).rstrip()}), ({', '.join(f'g{i}' for i in range(len(wanted)))},) = "
        f"{first or 'step'}({', '.join(name for name in names if name not in held)})",
        f"    return {_results(program, wanted)}",
    ]


def _module(program: Program, held: list[str]) -> list[str]:
    """A module of which these leaves are parameters."""
    fixed = {leaf.name: "" if leaf.requires_grad else ", requires_grad=False" for leaf in program.leaves}
    names = _input_names(program)
    return [
        "class Step(torch.nn.Module):",
        f"    def __init__(self, {', '.join(held)}):",
        "        super().__init__()",
        *(f"        self.{name} = torch.nn.Parameter({name}{fixed[name]})" for name in held),
        "",
        f"    def forward(self, {', '.join(name for name in names if name not in held)}):",
        f"        return step({', '.join(f'self.{name}' if name in held else name for name in names)})",
        "",
        "",
    ]


def _aoti(program: Program) -> list[str]:
    return [
        "def packaged(step):",
        "    def run(*given):",
        "        graph = torch.fx.experimental.proxy_tensor.make_fx(step)(*given)",
        "        package = torch._inductor.aoti_compile_and_package(torch.export.export(graph, given))",
        "        return torch._inductor.aoti_load_package(package)(*given)",
        "",
        "    return run",
        "",
        "",
        *_vjp(program),
    ]


# ---------------------------------------------------------------- the check


def _check(finding: Finding, program: Program, run: _Place) -> list[str]:
    compiled = f"{run.start}{run.call(program, run.backend)}, *{run.inputs(run.device)})"
    eager = f"gradients({run.call(program, run.against)}, *{run.inputs(run.base)})"
    verdict = finding.signature.verdict
    if verdict in PATIENCE:
        return _check_death(compiled, eager, PATIENCE[verdict], run)
    if verdict == "raises":
        return _check_raises(compiled, eager, run)
    if finding.signature.oracle == "inputs_untouched":
        return _check_inputs(program, run)
    return _check_values(finding, program, run, compiled, eager)


def _wait(run: _Place, indent: str) -> list[str]:
    return [f"{indent}torch.cuda.synchronize()"] if run.moves else []


def _check_death(compiled: str, eager: str, seconds: int, run: _Place) -> list[str]:
    return [
        'if sys.argv[1:] == ["compiled"]:',
        f"    {compiled}",
        *_wait(run, "    "),
        "    sys.exit(0)",
        f"{eager}  # eager runs",
        "try:",
        f'    code = subprocess.run([sys.executable, __file__, "compiled"], timeout={seconds}).returncode',
        "except subprocess.TimeoutExpired:",
        f'    code = "none after {seconds} seconds"',
        'print("the compiled run ended well" if code == 0 else f"eager ran; the compiled run\'s exit code: {code}")',
        "sys.exit(int(code != 0))",
    ]


def _check_raises(compiled: str, eager: str, run: _Place) -> list[str]:
    return [
        f"{eager}  # eager runs",
        "try:",
        f"    {compiled}",
        *_wait(run, "    "),
        "except Exception as error:",
        '    print(f"eager ran; compiled raises {type(error).__name__}: {str(error)[:2000]}")',
        "    sys.exit(1)",
        'print("both ran")',
    ]


def _check_inputs(program: Program, run: _Place) -> list[str]:
    names, written = _input_names(program), written_leaves(program)
    allowed = f" if n not in {written}" if written else ""  # the function itself writes to those
    return [
        f"given = {run.inputs(run.device)}",
        f"{run.start}{run.call(program, run.backend)}, *given)",
        f"pairs = zip({names}, given, {run.inputs(run.device)})",
        f"equal = {{n: torch.equal(now.nan_to_num(), then.nan_to_num()) for n, now, then in pairs{allowed}}}",
        'print(*[f"{name} was written to" for name in equal if not equal[name]] or ["the inputs are untouched"])',
        "sys.exit(int(not all(equal.values())))",
    ]


SHOWN = 16  # a tensor of at most so many elements is printed whole


def _check_values(finding: Finding, program: Program, run: _Place, compiled: str, eager: str) -> list[str]:
    """The tensor that differs is compared; every tensor where several do or the finding does not say which."""
    if finding.signature.oracle == "metadata_agrees":
        return _check_kinds(finding, program, compiled, eager)
    exact = f"gradients({run.call(program, 'eager')}, *[{_double(program)} for t in {run.inputs(run.base)}])"
    one = finding.comparisons[0] if len(finding.comparisons) == 1 else None
    pick = f'["{one.name}"]' + (".cpu()" if run.moves else "") if one else ""
    # compiled first: then nothing of eager's is in freed memory
    text = [f"compiled = {compiled}{pick}", f"eager = {eager}{pick}", f"exact = {exact}{pick}"]
    if _draws(program):
        text[2] = "exact = eager  # float64 would draw other numbers"
    elif _named(program):
        text[2:] = ["try:", f"    {text[2]}", "except RuntimeError:  # a dtype named in f does not go with it"]
        text.append("    exact = eager")
    if one:
        return [
            *text,
            *_judge(finding, program, "compiled", "eager", "exact"),
            _tell(one),
            "sys.exit(int(wrong.any()))",
        ]
    return [
        *text,
        "fault = 0",
        "for name in [name for name, t in eager.items() if t is not None and t.numel()]:",
        "    c, e, r = (t[name].detach().cpu() for t in (compiled, eager, exact))",
        *(f"    {line}" for line in _judge(finding, program, "c", "e", "r")),
        '    print(f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong")',
        "    fault |= int(wrong.any())",
        "sys.exit(fault)",
    ]


def _double(program: Program) -> str:
    """An input t in float64. Where gradients are accumulated it must be a leaf."""
    leaf = "" if program.route.name in ("autograd", "vjp") else ".detach()"
    wide = f"t{leaf}.double()" + (".requires_grad_(t.requires_grad)" if leaf else "")
    return wide if all(x.type.is_float for x in program.leaves) else f"{wide} if t.is_floating_point() else t"


def _judge(finding: Finding, program: Program, c: str, e: str, r: str) -> list[str]:
    """`wrong`, elementwise: further off than 16 times the other side's rounding and 64 units of the largest element."""
    if finding.signature.verdict == "eager-suspect":
        c, e, r = e, r, c
    return [
        f"unit = {_unit(finding, program, e)} * {e}.nan_to_num(0, 0, 0).abs().max().item()",
        f"close = ({c} - {e}).abs() <= 16 * ({e} - {r}).abs()",
        f"wrong = ~close & ~torch.isclose({c}.double(), {e}.double(), 0, 64 * unit, equal_nan=True)",
    ]


def _tell(c: Comparison) -> str:
    """The line that prints the evidence: small tensors whole, of others the element that was worst."""
    where = f"[{', '.join(map(str, c.index))}]" if c.index and c.total > SHOWN else ""
    shown = (f"{label} {{{side}{where}.tolist()}}" for label, side in SIDES)
    return f'print(f"{c.name}{where}: {", ".join(shown)}")'


SIDES = (("compiled", "compiled"), ("eager", "eager"), ("float64", "exact"))


def _check_kinds(finding: Finding, program: Program, compiled: str, eager: str) -> list[str]:
    """None-ness, dtype and shape of the tensor that the finding's detail begins with, or the memory that it owns."""
    name = finding.detail.partition(" ")[0]
    known = [f"{leaf.name}.grad" for leaf in program.leaves] + [o.value for o in program.outputs]
    pick = f'["{name if name in known else known[0]}"]'
    if finding.signature.pattern == "storage":
        return [
            f"t = {compiled}{pick}",
            "reach = t.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))",
            "owned = t.untyped_storage().nbytes() // t.element_size()",
            'print(f"its strides reach {reach} elements of a storage of {owned}")',
            "sys.exit(int(t.numel() > 0 and reach > owned))",
        ]
    return [
        f"compiled = {compiled}{pick}",
        f"eager = {eager}{pick}",
        "kinds = [None if t is None else (t.dtype, tuple(t.shape)) for t in (compiled, eager)]",
        'print(f"compiled gives {kinds[0]}, eager {kinds[1]}")',
        "sys.exit(int(kinds[0] != kinds[1]))",
    ]


def _unit(finding: Finding, program: Program, e: str) -> str:
    """The unit in which the check measures: the tensor's own, or the program's coarsest if the fault shows in that."""
    coarse = max(_units(program), key=lambda name: torch.finfo(TORCH_DTYPES[name]).eps, default="f32")
    limit = 64 * torch.finfo(TORCH_DTYPES[coarse]).eps
    if coarse in ("f16", "bf16") and any(_share(c) > limit for c in finding.comparisons):
        return f"torch.finfo({TORCH_DTYPES[coarse]}).eps"
    return f"torch.finfo({e}.dtype).eps" if _units(program) else "0"


def _units(program: Program) -> set[str]:
    named = _named(program) | {leaf.dtype for leaf in program.leaves}
    return {name for name in named if TORCH_DTYPES[name].is_floating_point}


def _named(program: Program) -> set[str]:
    """The dtypes that the program's nodes and regions name."""
    return {value.name for s in holders(program.body) for _, value in s.attrs if isinstance(value, Dtype)}


def _share(c: Comparison) -> float:
    """The error of the worst element relative to its values; infinite where it is not finite."""
    error = abs(c.compiled - c.eager)
    scale = max(abs(c.eager), abs(c.float64))
    return error / scale if error < float("inf") and scale > 0 else float("inf")


# ---------------------------------------------------------------- the issue


def _headline(finding: Finding) -> str:
    signature = finding.signature
    backend = finding.place.get("backend", "inductor")
    what = {
        "wrong": "wrong gradient" if signature.direction == "backward" else "wrong result",
        "raises": "raises, eager does not",
        "crashes": "crash",
        "hangs": "does not end",
        "eager-suspect": "eager's result is outside rounding",
        "rounding-sensitive": "result differs beyond consistent rounding",
    }.get(signature.verdict, signature.verdict)
    if signature.oracle == "inputs_untouched":
        what = "an input is written to"
    where = f", {signature.direction}" if signature.direction and signature.verdict != "wrong" else ""
    return f"[{backend}] {what}{where}"


def issue(finding: Finding) -> str:
    """The draft of an issue in the form of PyTorch's bug reports, as Markdown."""
    program = parse(finding.program)
    ops = list(dict.fromkeys(node.op for node in program.nodes))
    title = f"{_headline(finding)}: {' + '.join(ops[:4])}{' ...' if len(ops) > 4 else ''}"
    sections = [
        f"# {title}",
        "<!-- A draft by backfuzz. Before you post it: run the script on the newest nightly, search the tracker for "
        "the operators named above, and say in your own words what is wrong. -->",
        "### 🐛 Describe the bug",
        _one_line(finding.detail, 1000),
        _comparison_table(finding.comparisons),
        _diagnosis(finding),
        _before(finding),
        f"Reproduced in {finding.reproduced} of {finding.runs} fresh processes. The script exits 1 while the fault is "
        "there and 0 when it is gone.",
        _fenced(repro(finding), "python"),
        _stages(finding.stages),
        _ablation(finding.ablation),
        *(_folded(f"`{name}`", _fenced(text, _language(name))) for name, text in finding.attachments.items()),
        "The same as a backfuzz program (`backfuzz replay FILE`), signature "
        f"`{finding.signature}`, finding `{finding.id}`:",
        _fenced(finding.program),
        "### Versions",
        _table(("", ""), sorted(finding.place.items())),
    ]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def _fenced(text: str, language: str = "") -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    """A Markdown table; nothing where there are no rows."""
    if not rows:
        return ""
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(_one_line(str(c)).replace("|", "\\|") for c in row) + " |" for row in cells)


def _comparison_table(comparisons: tuple[Comparison, ...]) -> str:
    head = ("tensor", "element", "eager", "compiled", "float64", "legal rounding", "wrong elements")
    rows = [
        (
            f"`{c.name}`",
            f"({', '.join(map(str, c.index))})",
            *(f"{number:.9g}" for number in (c.eager, c.compiled, c.float64)),
            f"{c.floor:.3g}",
            f"{c.wrong} of {c.total}",
        )
        for c in comparisons
    ]
    table = _table(head, rows)
    return f"Each differing tensor at its worst element:\n\n{table}" if table else ""


def _before(finding: Finding) -> str:
    """The error of the program that this one was shrunk from: a small error here need not have been small there."""
    if not finding.before or finding.original == finding.program:
        return ""
    size = len(parse(finding.original).nodes)
    return f"In the program of {size} operations that this one was reduced from: {_one_line(finding.before, 1000)}"


def _stages(stages: dict[str, str]) -> str:
    table = _table(("backend", "verdict"), list(stages.items()))
    return f"By compiler stage, on the program above:\n\n{table}" if table else ""


def _ablation(ablation: dict[str, str]) -> str:
    table = _table(("one thing changed", "verdict"), list(ablation.items()))
    return _folded(f"{len(ablation)} single changes", table) if table else ""


def _diagnosis(finding: Finding) -> str:
    """What is at fault, a row each; what was not run or does not apply is left out."""
    silent = ("not run", "none", "ran out", "failed")
    known = [(name, text) for name, text in finding.diagnosis.items() if not text.startswith(silent)]
    known = [
        (name, f"`{_one_line(text, 290)}`" if name == "suspect" else text) for name, text in known
    ]  # code may look like HTML
    table = _table(("diagnosis", ""), known)
    return f"What is at fault, as far as it could be narrowed down:\n\n{table}" if table else ""


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _language(name: str) -> str:
    return "python" if name.endswith(".py") else ""
