"""A finding as a standalone script, a pure function of the Finding.

The script imports torch and the standard library only. Its exit code is 1
while the fault is there, 0 when it is gone and 2 where it could not run (no such device, setting or operation).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from fuzzer.execution.messages import UNCOMPILED
from fuzzer.interpret import cotangents, materialise, python_value
from fuzzer.longhand import IMPORTS, WIDTH, WRITERS, function, input_names
from fuzzer.ops import OPS, REAL
from fuzzer.private import CONFIGS
from fuzzer.program import (
    COMPLEX,
    DIFFERENTIABLE,
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
from fuzzer.values import TORCH_DTYPES, in_parts, source
from fuzzer.verdict import BOTH, CHOICE, EAGER, Comparison, Finding

INLINE = 64  # tensors of at most this many elements are written as literals
# A crash is over when the compile is, a hang when it would have been: seconds given to the child process of the script
PATIENCE = {"crashes": 600, "hangs": 180}


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
    body = function(program)
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
        *([_PARTS] if _is_complex(program) and finding.signature.verdict not in (*PATIENCE, "raises") else []),
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
_PARTS = [
    "def parts(t):  # real and imaginary ones along a last dimension",
    "    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t",
]
_GEMS = ["def in_flag_gems(call, *args):", "    with flag_gems.use_gems():", "        return call(*args)"]


def _setting(name: str) -> str:
    prefix, _, key = name.partition(".")
    if prefix not in CONFIGS:
        raise ExportError(f"no setting {name!r}: a name starts with {', '.join(CONFIGS)}")
    return f"{CONFIGS[prefix]}.{key}"


def _value(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) and value.isidentifier() else python_value(value)


def _gradients(program: Program) -> list[str]:
    if program.route.name not in WRITERS:
        raise ExportError(f"no script for route {program.route.name!r} yet; it knows {', '.join(WRITERS)}")
    return WRITERS[program.route.name](program)


def _header(finding: Finding) -> list[str]:
    place = finding.place
    where = ", ".join([place.get("device", "cpu"), *([f"torch {place['torch']}"] if "torch" in place else [])])
    text = f"backfuzz {finding.id}, {where}: {headline(finding)}. {finding.detail}"
    return [
        f"# {one_line(text, WIDTH)}",
        "# Exits 1 while the fault is there, 0 when it is gone, 2 where it could not run.",
    ]


def headline(finding: Finding) -> str:
    signature = finding.signature
    backend = finding.place.get("backend", "inductor")
    what = {
        "wrong": "wrong gradient" if signature.direction == "backward" else "wrong result",
        "raises": "raises, eager does not",
        "crashes": "crash",
        "hangs": "does not end",
        "eager-suspect": "eager's result is outside rounding",
        "rounding-sensitive": "result differs beyond consistent rounding",
        "nondeterministic": "two runs on equal inputs differ",
        "signed-zero": "zeros of another sign than eager's",
    }.get(signature.verdict, signature.verdict)
    if signature.verdict == "costly":
        what = f"takes far more {signature.pattern} than its size explains"
    if finding.side in (EAGER, BOTH):
        who = f"[eager{f', {backend}' if finding.side == BOTH else ''}]"
        return f"{who} wrong {'gradient' if signature.direction == 'backward' else 'result'}"
    if finding.side == CHOICE:
        return f"[{backend}] another subgradient than eager's"
    if signature.oracle == "inputs_untouched":
        what = "writes out of bounds" if "around" in signature.pattern else "an input is written to"
    where = f", {signature.direction}" if signature.direction and signature.verdict != "wrong" else ""
    return f"[{backend}] {what}{where}"


def one_line(text: str, width: int = 300) -> str:
    return textwrap.shorten(" ".join(text.split()), width, placeholder=" ...")


# ---------------------------------------------------------------- inputs


def _inputs(program: Program, run: _Place) -> Iterator[list[str]]:
    """The function that builds leaves and cotangents, preceded by what it needs."""
    tensors = materialise([replace(leaf, conj=False) for leaf in program.leaves])
    offsets = {leaf.name: leaf.offset for leaf in program.leaves}
    rows: list[str] = []
    for leaf in program.leaves:
        if leaf.base is None:
            expression = _tensor(leaf, tensors[leaf.name], run)
        else:
            # left out it would be the base's
            offset = f", {leaf.offset}" if leaf.offset != offsets[leaf.base] else ""
            expression = f"{leaf.base}.detach().as_strided({leaf.shape}, {leaf.stride}{offset})"
        rows.append(f"{leaf.name} = {expression}{'.conj()' if leaf.conj else ''}")
    if program.route.name not in ("vjp", "aoti"):
        # after all views are taken, as the trial did
        rows = [
            row + (".requires_grad_()" if leaf.requires_grad else "")
            for row, leaf in zip(rows, program.leaves, strict=True)
        ]
    declared = [output.cotangent for output in program.outputs if output.cotangent is not None]
    for i, (c, tensor) in enumerate(zip(declared, cotangents(program), strict=True)):
        rows.append(f"c{i} = {_tensor(c, tensor, run)}")
    names = ", ".join(input_names(program))
    if any(re.search(r"(?<!_)strided\(", row) for row in rows):
        yield _strided(run)
    drawn = ["    torch.manual_seed(0)  # every run draws the same"] if _draws(program) else []
    head = [f"def inputs({'device' if run.moves else ''}):", *drawn]
    listed = "    return [" + ", ".join(row.partition(" = ")[2] for row in rows) + "]"
    if len(listed) <= WIDTH and "\n" not in listed and not any(leaf.base for leaf in program.leaves):
        yield [*head, listed]
    else:
        yield [*head, textwrap.indent("\n".join(rows), "    "), f"    return [{names}]"]


def _is_complex(program: Program) -> bool:
    found = {leaf.dtype for leaf in program.leaves} | _named(program)
    found |= {o.cotangent.dtype for o in program.outputs if o.cotangent is not None}
    return not found.isdisjoint(COMPLEX) or any(node.op not in REAL for node in program.nodes)


def _draws(program: Program) -> bool:
    return any(OPS[node.op].random for node in program.nodes)


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
    offset, size = t.offset, extent(t.shape, t.stride, t.offset)
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
    if tensor.is_complex():
        return False
    flat = tensor.double().flatten()
    return flat.numel() > 0 and bool((flat == flat[0]).all()) and not bool((flat == 0).any() and flat.signbit().any())


def _literal(tensor: torch.Tensor) -> str:
    """The shortest plain expression for a small contiguous tensor, exact in its dtype."""
    if tensor.is_complex():
        real, imag = (part.contiguous() for part in in_parts(tensor).unbind(-1))
        return f"torch.complex({_literal(real)}, {_literal(imag)})"
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
        around = finding.signature.pattern.startswith("around")
        return _check_bounds(program, run) if around else _check_inputs(program, run)
    if finding.signature.oracle in CHECKS:
        return CHECKS[finding.signature.oracle](finding, compiled, eager)
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
    names, written = input_names(program), written_leaves(program)
    allowed = f" if n not in {written}" if written else ""  # the function itself writes to those
    return [
        f"given = {run.inputs(run.device)}",
        f"{run.start}{run.call(program, run.backend)}, *given)",
        f"pairs = zip({names}, given, {run.inputs(run.device)})",
        f"equal = {{n: torch.equal(now.nan_to_num(), then.nan_to_num()) for n, now, then in pairs{allowed}}}",
        'print(*[f"{name} was written to" for name in equal if not equal[name]] or ["the inputs are untouched"])',
        "sys.exit(int(not all(equal.values())))",
    ]


def _check_bounds(program: Program, run: _Place) -> list[str]:
    """Every input lies between two bands of bytes that nothing should change."""
    return [
        "bands, given = [], []",
        f"for t in {run.inputs(run.device)}:",
        "    size = t.untyped_storage().nbytes()",
        "    bands.append(torch.full((size + 2048,), 165, dtype=torch.uint8, device=t.device))",
        "    own = torch.from_dlpack(bands[-1][1024:-1024].view(t.dtype)) if size else t.detach()",
        "    own.copy_(t.detach().as_strided((size // t.element_size(),), (1,), 0))",
        "    given.append(own.as_strided(t.shape, t.stride(), t.storage_offset()).requires_grad_(t.requires_grad))",
        f"{run.start}{run.call(program, run.backend)}, *given)",
        "beyond = [i for i, b in enumerate(bands) if (b[:1024] != 165).any() or (b[-1024:] != 165).any()]",
        'print(f"written out of bounds around inputs {beyond}" if beyond else "nothing was written out of bounds")',
        "sys.exit(int(bool(beyond)))",
    ]


def _check_rerun(finding: Finding, compiled: str, eager: str) -> list[str]:
    return [
        f"first, second = ({compiled} for _ in range(2))",
        "pairs = {n: (first[n], second[n]) for n in first if first[n] is not None}",
        "other = [n for n, (a, b) in pairs.items() if not torch.equal(a.nan_to_num(), b.nan_to_num())]",
        'print(f"two runs on equal inputs differ in {other}" if other else "two runs on equal inputs are equal")',
        "sys.exit(int(bool(other)))",
    ]


def _check_zeros(finding: Finding, compiled: str, eager: str) -> list[str]:
    return [
        f"sides = ({compiled}, {eager})",
        "pairs = {n: [side[n].cpu() for side in sides] for n in sides[0] if None not in [side[n] for side in sides]}",
        "other = {n: int(((c == 0) & (e == 0) & (c.signbit() != e.signbit())).sum()) for n, (c, e) in pairs.items()}",
        'print(f"zeros of another sign than eager\'s: {other}")',
        "sys.exit(int(any(other.values())))",
    ]


def _limit(finding: Finding) -> int:
    """What the oracle allowed, in the unit of its detail."""
    told = re.search(r"at most (\d+)", finding.detail)
    return int(told.group(1)) if told else 0


def _check_seconds(finding: Finding, compiled: str, eager: str) -> list[str]:
    return [
        f"{eager}  # what only the first call of anything takes is not the compiler's",
        "start = sum(os.times()[:4])  # CPU seconds, of children that ended too",
        compiled,
        "spent = sum(os.times()[:4]) - start",
        f'print(f"{{spent:.0f}} CPU seconds to compile and run; at most {_limit(finding)} are expected")',
        f"sys.exit(int(spent > {_limit(finding)}))",
    ]


def _check_memory(finding: Finding, compiled: str, eager: str) -> list[str]:
    if finding.place.get("device", "cpu").startswith("cuda"):
        reset = ["torch.cuda.reset_peak_memory_stats()"]
        peak = "torch.cuda.max_memory_allocated()"
    else:
        reset = ['open("/proc/self/clear_refs", "w").write("5")  # Linux: the peak becomes what is in use']
        peak = 'int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) * 1024'
    return [
        f"{compiled}  # compiles",
        *reset,
        f"start = {peak}",
        compiled,
        f"taken = ({peak} - start) >> 20",
        f'print(f"the second run takes {{taken}} MiB at its peak; at most {_limit(finding)} are expected")',
        f"sys.exit(int(taken > {_limit(finding)}))",
    ]


# What the script of a finding checks where that is not the values.
CHECKS: dict[str, Callable[[Finding, str, str], list[str]]] = {
    "rerun_is_identical": _check_rerun,
    "zero_signs_agree": _check_zeros,
    "compile_is_timely": _check_seconds,
    "memory_is_sane": _check_memory,
}
NAMES = ("compiled", "eager", "exact")
SHOWN = 16  # a tensor of at most so many elements is printed whole


def _check_values(finding: Finding, program: Program, run: _Place, compiled: str, eager: str) -> list[str]:
    """The tensor that differs is compared; every tensor where several do or the finding does not say which."""
    if finding.signature.oracle == "metadata_agrees":
        return _check_kinds(finding, program, compiled, eager)
    exact = f"gradients({run.call(program, 'eager')}, *[{_double(program)} for t in {run.inputs(run.base)}])"
    one = finding.comparisons[0] if len(finding.comparisons) == 1 else None
    pick = f'["{one.name}"]' + (".cpu()" if run.moves else "") if one else ""
    # compiled first: then nothing of eager's is in freed memory
    seen = "parts({})" if _is_complex(program) else "{}"
    whole = seen if one else "{}"
    text = [f"{name} = {whole.format(call + pick)}" for name, call in zip(NAMES, (compiled, eager, exact), strict=True)]
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
        f"    c, e, r = ({seen.format('t[name].detach().cpu()')} for t in (compiled, eager, exact))",
        *(f"    {line}" for line in _judge(finding, program, "c", "e", "r")),
        '    print(f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong")',
        "    fault |= int(wrong.any())",
        "sys.exit(fault)",
    ]


def _double(program: Program) -> str:
    """An input t in float64. Where gradients are accumulated it must be a leaf."""
    leaf = "" if program.route.name in ("autograd", "vjp") else ".detach()"
    widen, either = "double()", "t.is_floating_point()"
    if _is_complex(program):
        widen, either = "to(torch.promote_types(t.dtype, torch.float64))", f"{either} or t.is_complex()"
    wide = f"t{leaf}.{widen}" + (".requires_grad_(t.requires_grad)" if leaf else "")
    return wide if all(x.type.differentiable for x in program.leaves) else f"{wide} if {either} else t"


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
    return {name for name in named if name in DIFFERENTIABLE}


def _named(program: Program) -> set[str]:
    """The dtypes that the program's nodes and regions name."""
    return {value.name for s in holders(program.body) for _, value in s.attrs if isinstance(value, Dtype)}


def _share(c: Comparison) -> float:
    """The error of the worst element relative to its values; infinite where it is not finite."""
    error = abs(c.compiled - c.eager)
    scale = max(abs(c.eager), abs(c.float64))
    return error / scale if error < float("inf") and scale > 0 else float("inf")
