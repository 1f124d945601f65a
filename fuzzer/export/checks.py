"""CHECKS: the check in a finding's script, by oracle. An oracle without an entry gets a comparison of values.

A check is a list of lines after the definition of the runner (`gradients`); they print the evidence. The last is
`sys.exit(int(CONDITION))`, which exits 1 while the fault exists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fuzzer.export.loops import TO_PLAIN, eager_loops_wrongly
from fuzzer.export.sides import Sides
from fuzzer.export.slope import compare_with_quotient
from fuzzer.judgement.trial import UNCOMPILED
from fuzzer.judgement.verdict import BOTH, CORRUPT_HEAP, EAGER, EAGER_DIES, Comparison, Signature
from fuzzer.language.devices import HOST, device_row
from fuzzer.language.program import DIFFERENTIABLE, contiguous, written_leaves
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import input_names
from fuzzer.language.values import TORCH_DTYPES
from fuzzer.ledger.cause import IN_ORDER, vanishing

# Seconds given to the script's child process: a crash comes by the end of the compile, a hang lasts longer than this
DEADLINES = {"crashes": 600, "hangs": 180}
_MOST_PRINTED = 16  # a tensor of at most so many elements is printed in full


def check_lines(sides: Sides, alone: bool = True) -> list[str]:
    """The lines that test for the finding's fault.

    alone   whether a fault of eager is shown without a compiler, where the evidence says how.
    """
    signature = sides.finding.signature
    if signature.oracle in _OF_EAGER:
        return CHECKS[signature.oracle].write(sides)
    if sides.finding.side == EAGER_DIES:
        return _eager_survives(sides)
    if signature.verdict in DEADLINES:
        return _survives(sides)
    if _raises(signature):
        return _raises_nothing(sides)
    return (alone and _eager_alone(sides)) or CHECKS.get(signature.oracle, _VALUES).write(sides)


def compares_values(signature: Signature) -> bool:
    """Whether the check compares the two sides' values, and not only whether they ran."""
    return signature.verdict not in DEADLINES and not _raises(signature)


def _raises(signature: Signature) -> bool:
    """Whether the compiled side raised: an `unsupported` finding may have raised or returned another value."""
    return signature.verdict == "raises" or signature.oracle == "compile_does_not_raise"


# ---------------------------------------------------------------- deaths and exceptions


def _wait(sides: Sides, indent: str) -> list[str]:
    return [f"{indent}torch.{sides.moves.type}.synchronize()"] if sides.moves else []


def _survives(sides: Sides) -> list[str]:
    """Each side runs in a child process of its own: eager must end without an error, then the compiled side must, too,
    and in time."""
    seconds = DEADLINES[sides.finding.signature.verdict]
    return [
        *_as_child(sides, "eager", sides.eager),
        *_as_child(sides, "compiled", sides.compiled),
        'eager = subprocess.run([sys.executable, __file__, "eager"]).returncode',
        'assert eager == 0, f"it cannot be told: eager ends with {eager}"',
        "try:",
        f'    code = subprocess.run([sys.executable, __file__, "compiled"], timeout={seconds}).returncode',
        "except subprocess.TimeoutExpired:",
        f'    code = "none after {seconds} seconds"',
        'print("the compiled run ended well" if code == 0 else f"eager ran; the compiled run\'s exit code: {code}")',
        "sys.exit(int(code != 0))",
    ]


def _as_child(sides: Sides, name: str, run: str) -> list[str]:
    """The lines for the case that the script is its own child process."""
    return [f'if sys.argv[1:] == ["{name}"]:', f"    {run}", *_wait(sides, "    "), "    sys.exit(0)"]


def _eager_survives(sides: Sides) -> list[str]:
    """Eager runs in a child process, which must end without an error. Where a corrupt heap is noticed by chance, glibc
    checks every block, and several children run."""
    ended = ['code = subprocess.run([sys.executable, __file__, "eager"]).returncode']
    if sides.finding.signature.pattern.endswith(CORRUPT_HEAP):
        ended = [
            'checked = os.environ | {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}  # glibc\'s',
            'run = [sys.executable, __file__, "eager"]',
            f"codes = (subprocess.run(run, env=checked).returncode for _ in range({_CHANCES}))  # not each notices",
            "code = next(filter(None, codes), 0)",
        ]
    return [
        *_as_child(sides, "eager", sides.eager),
        *ended,
        'print("the run in eager ended well" if code == 0 else f"the exit code of the run in eager: {code}")',
        "sys.exit(int(code != 0))",
    ]


_CHANCES = 8  # of five runs that corrupted the heap glibc noticed three


def _raises_too(sides: Sides) -> list[str]:
    """If eager raises, compiled code must raise too."""
    return [
        "def raised(run):",
        "    try:",
        "        run()",
        "    except Exception as error:",
        '        return f"{type(error).__name__}: {str(error)[:2000]}"',
        f"eager, compiled = raised(lambda: {sides.eager}), raised(lambda: {sides.compiled})",
        "print(f\"eager: {eager or 'runs'}\\ncompiled: {compiled or 'runs'}\")",
        "sys.exit(int(bool(eager) and not compiled))",
    ]


def _raises_nothing(sides: Sides) -> list[str]:
    """The compiled side must not raise."""
    return [
        f"{sides.eager}  # eager runs",
        'raised = ""',
        "try:",
        f"    {sides.compiled}",
        *_wait(sides, "    "),
        "except Exception as error:",
        '    raised = f"{type(error).__name__}: {str(error)[:2000]}"',
        'print(f"eager ran; compiled raises {raised}" if raised else "both ran")',
        'sys.exit(int(raised != ""))',
    ]


# ---------------------------------------------------------------- inputs


def _inputs_untouched(sides: Sides) -> list[str]:
    """The inputs must keep their values; or the memory around them must."""
    if _around(sides.finding.signature):
        return _within_bounds(sides)
    names, written = input_names(sides.program), written_leaves(sides.program)
    allowed = f" if n not in {written}" if written else ""  # the function itself writes to these
    return [
        f"given = {sides.inputs(sides.device)}",
        sides.compiled_on("given"),
        f"pairs = zip({names}, given, {sides.inputs(sides.device)})",
        f"equal = {{n: torch.equal(now.nan_to_num(), then.nan_to_num()) for n, now, then in pairs{allowed}}}",
        'print(*[f"{name} was written to" for name in equal if not equal[name]] or ["the inputs are untouched"])',
        "sys.exit(int(not all(equal.values())))",
    ]


def _within_bounds(sides: Sides) -> list[str]:
    """Every input lies between two bands of bytes that must not change."""
    return [
        "bands, given = [], []",
        f"for t in {sides.inputs(sides.device)}:",
        "    size = t.untyped_storage().nbytes()",
        "    bands.append(torch.full((size + 2048,), 165, dtype=torch.uint8, device=t.device))",
        "    own = torch.from_dlpack(bands[-1][1024:-1024].view(t.dtype)) if size else t.detach()",
        "    own.copy_(t.detach().as_strided((size // t.element_size(),), (1,), 0))",
        "    given.append(own.as_strided(t.shape, t.stride(), t.storage_offset()).requires_grad_(t.requires_grad))",
        sides.compiled_on("given"),
        "beyond = [i for i, b in enumerate(bands) if (b[:1024] != 165).any() or (b[-1024:] != 165).any()]",
        'print(f"written out of bounds around inputs {beyond}" if beyond else "nothing was written out of bounds")',
        "sys.exit(int(bool(beyond)))",
    ]


def _around(signature: Signature) -> bool:
    return signature.pattern.startswith("around")


def _written_title(signature: Signature) -> str:
    return "writes out of bounds" if _around(signature) else "an input is written to"


# ---------------------------------------------------------------- two runs, signs, costs


def _rerun_is_equal(sides: Sides) -> list[str]:
    return [
        f"first, second = ({sides.compiled} for _ in range(2))",
        "pairs = {n: (first[n], second[n]) for n in first if first[n] is not None}",
        "other = [n for n, (a, b) in pairs.items() if not torch.equal(a.nan_to_num(), b.nan_to_num())]",
        'print(f"two runs on equal inputs differ in {other}" if other else "two runs on equal inputs are equal")',
        "sys.exit(int(bool(other)))",
    ]


def _zero_signs(sides: Sides) -> list[str]:
    return [
        f"sides = ({sides.compiled}, {sides.eager})",
        "pairs = {n: [side[n].cpu() for side in sides] for n in sides[0] if None not in [side[n] for side in sides]}",
        "other = {n: int(((c == 0) & (e == 0) & (c.signbit() != e.signbit())).sum()) for n, (c, e) in pairs.items()}",
        'print(f"zeros of another sign than eager\'s: {other}")',
        "sys.exit(int(any(other.values())))",
    ]


def _finiteness(sides: Sides) -> list[str]:
    """NaN and infinities must be where eager has them."""
    return [
        f"sides = ({sides.compiled}, {sides.eager})",
        "pairs = {n: [side[n].cpu() for side in sides] for n in sides[0] if None not in [side[n] for side in sides]}",
        "other = {n: (c.isnan() != e.isnan()) | (c.isinf() != e.isinf()) for n, (c, e) in pairs.items()}",
        "for name in [name for name in other if other[name].any()]:",
        "    at, (c, e) = tuple(other[name].nonzero()[0]), pairs[name]",
        "    of = f\"{list(map(int, at)) or ''}: compiled {c[at].item()}, eager {e[at].item()}\"",
        '    print(f"{name}{of}; {int(other[name].sum())} of {c.numel()} elements are of another kind")',
        "there = any(o.any() for o in other.values())",
        "if not there:",
        '    print("NaN and infinities are where eager has them")',
        "sys.exit(int(there))",
    ]


def _limit(sides: Sides) -> int:
    """The oracle's limit, in the unit of its detail."""
    told = re.search(r"at most (\d+)", sides.finding.detail)
    return int(told.group(1)) if told else 0


def _cpu_seconds(sides: Sides) -> list[str]:
    return [
        f"{sides.eager}  # what only the first call of anything takes is not the compiler's",
        "start = sum(os.times()[:4])  # CPU seconds, of children that ended too",
        sides.compiled,
        "spent = sum(os.times()[:4]) - start",
        f'print(f"{{spent:.0f}} CPU seconds to compile and run; at most {_limit(sides)} are expected")',
        f"sys.exit(int(spent > {_limit(sides)}))",
    ]


def _peak_memory(sides: Sides) -> list[str]:
    if (device := device_row(sides.finding.place.get("device", HOST.type))) is not HOST:
        reset = [f"torch.{device.type}.reset_peak_memory_stats()"]
        peak = f"torch.{device.type}.max_memory_allocated()"
    else:
        reset = ['open("/proc/self/clear_refs", "w").write("5")  # Linux: the peak becomes what is in use']
        peak = 'int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) * 1024'
    return [
        f"{sides.compiled}  # compiles",
        *reset,
        f"start = {peak}",
        sides.compiled,
        f"taken = ({peak} - start) >> 20",
        f'print(f"the second run takes {{taken}} MiB at its peak; at most {_limit(sides)} are expected")',
        f"sys.exit(int(taken > {_limit(sides)}))",
    ]


# ---------------------------------------------------------------- metadata


def _metadata(sides: Sides) -> list[str]:
    """None-ness, dtype and shape of the tensor named first in the finding's detail, or whether it lies within its
    memory."""
    name = sides.finding.detail.partition(" ")[0]
    known = [f"{leaf.name}.grad" for leaf in sides.program.leaves] + [o.value for o in sides.program.outputs]
    pick = f'["{name if name in known else known[0]}"]'
    if sides.finding.signature.pattern == "storage":
        return [
            f"t = {sides.compiled}{pick}",
            "reach = t.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))",
            "owned = t.untyped_storage().nbytes() // t.element_size()",
            'print(f"its strides reach {reach} elements of a storage of {owned}")',
            "sys.exit(int(t.numel() > 0 and reach > owned))",
        ]
    return [
        f"compiled = {sides.compiled}{pick}",
        f"eager = {sides.eager}{pick}",
        "kinds = [None if t is None else (t.dtype, tuple(t.shape)) for t in (compiled, eager)]",
        'print(f"compiled gives {kinds[0]}, eager {kinds[1]}")',
        "sys.exit(int(kinds[0] != kinds[1]))",
    ]


# ---------------------------------------------------------------- values


def _values(sides: Sides) -> list[str]:
    """Compare the tensor that differs; all tensors where several differ or the finding names none."""
    comparisons = sides.finding.comparisons
    one = comparisons[0] if len(comparisons) == 1 else None
    seen = "parts({})" if sides.complex else "{}"
    text = _runs(sides, one, seen)
    judged, against = ("eager", "plain") if _looped(sides) else ("compiled", "eager")
    returned = {o.value for o in sides.program.outputs if o.cotangent is None}
    if one:
        judge = _judge(sides, judged, against, "exact", one.name in returned)
        return [*text, *judge, *_at_worst(sides, one), *_tell(sides, one), "sys.exit(int(wrong.any()))"]
    return [
        *text,
        "fault = 0",
        f"for name in [name for name, t in {against}.items() if t is not None and t.numel()]:",
        f"    c, e, r = ({seen.format('t[name].detach().cpu()')} for t in ({judged}, {against}, exact))",
        *(f"    {line}" for line in _judge(sides, "c", "e", "r", bool(returned))),
        '    print(f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong")',
        "    fault |= int(wrong.any())",
        "sys.exit(int(fault))",
    ]


def _at_worst(sides: Sides, c: Comparison) -> list[str]:
    """The line that sets `wrong` at the worst element by the trial's floor, for an error that `_wrong` would allow
    beside larger elements. The floor holds, since the script has the trial's numbers."""
    if sides.finding.signature.verdict != "wrong" or sides.drawn or sides.complex or _exact(sides) or _looped(sides):
        return []
    if sides.draws or sides.named or sides.depends_on_dtype or not _share(c) < _SMALL * _eps(sides):
        return []
    if not 0 < 2 * c.floor < abs(c.compiled - c.float64):
        return []
    at = f"[{', '.join(map(str, c.index))}]" if c.index else ""
    # 1.1: three digits are printed
    allowed = f"{1.1 * c.floor:.3g}  # as far as rounding reaches there"
    return [f"wrong{at} |= (compiled.double() - exact){at}.abs() > {allowed}"]


_SMALL = 4096  # units of the element: a larger error is larger than 64 units of an element 64 times as large


def _looped(sides: Sides) -> bool:
    return eager_loops_wrongly(sides.finding, sides.program)


def _runs(sides: Sides, one: Comparison | None, seen: str) -> list[str]:
    """Lines that set `compiled`, `eager` and `exact` (eager in float64 where possible): one tensor, or all by name.

    Where eager's control flow is wrong too, `plain` and `exact` run it in plain Python.
    """
    pick = f'["{one.name}"]' + (".cpu()" if sides.moves else "") if one else ""
    whole = seen if one else "{}"

    def run(name: str, call: str) -> str:
        return f"{name} = {whole.format(call + pick)}"

    # compiled first: then freed memory holds no results of eager's
    text = [run("compiled", sides.compiled), run("eager", sides.eager)]
    if looped := _looped(sides):
        text += [TO_PLAIN, run("plain", sides.eager)]
    narrow = f"exact = {'plain' if looped else 'eager'}"
    widened = f"[{_double(sides)} for t in {sides.inputs(sides.base)}]"
    exact = run("exact", f"{sides.runner}({sides.given('eager')}, *{widened})")
    if sides.draws:
        return [*text, f"{narrow}  # float64 would draw other numbers"]
    if sides.depends_on_dtype and _exact(sides):
        return [*text, f"{narrow}  # float64 has other neighbours, and reads other numbers"]
    if sides.named:
        refused = "except RuntimeError:  # a dtype named in f does not go with it"
        return [*text, "try:", f"    {exact}", refused, f"    {narrow}"]
    return [*text, exact]


# ---------------------------------------------------------------- eager alone


def _eager_alone(sides: Sides) -> list[str]:
    """A fault of eager without a compiler: eager on the inputs as they are against eager on contiguous ones, or against
    float64, or a gradient against a difference quotient. No lines where the evidence says none of these would show it.
    """
    finding = sides.finding
    eager = finding.side == EAGER or finding.signature.verdict == "eager-suspect"
    if not eager or not finding.comparisons or sides.backend in UNCOMPILED or sides.gems:
        return []
    worst = finding.comparisons[0]
    if IN_ORDER in vanishing(finding) and any(leaf.stride != contiguous(leaf.shape) for leaf in sides.program.leaves):
        return [] if any(leaf.base for leaf in sides.program.leaves) else _against_contiguous(sides, worst)
    if _float64_shows(sides, worst):
        return _against_float64(sides, worst)
    # differences decided that eager is wrong: at numbers that are not finite they say nothing
    proved = finding.side == EAGER and math.isfinite(worst.eager) and worst.name.endswith(".grad")
    return _quotient(sides) if proved else []


def _float64_shows(sides: Sides, c: Comparison) -> bool:
    """Whether the script's check would tell eager from eager in float64."""
    dtypes = {leaf.dtype for leaf in sides.program.leaves}
    if "f64" in dtypes or sides.draws or sides.named or sides.depends_on_dtype:
        return False
    off, unit = abs(c.eager - c.float64), torch.finfo(TORCH_DTYPES[_coarsest(sides)]).eps
    return not off <= 64 * unit * abs(c.float64)


def _against_contiguous(sides: Sides, c: Comparison) -> list[str]:
    """Compare the tensor with that of contiguous inputs of the same numbers."""
    copy = "t.detach().clone(memory_format=torch.contiguous_format).requires_grad_(t.requires_grad)"
    runs = {"eager": sides.inputs(sides.base), "contiguous": "dense", "exact": f"[{_double(sides)} for t in dense]"}
    judge = _wrong(sides, "eager", "contiguous", "exact", not c.name.endswith(".grad"))
    return [
        f"dense = [{copy} for t in {sides.inputs(sides.base)}]",
        *_eager_runs(sides, c, runs),
        *judge,
        *_tell(sides, c, (("as given", "eager"), ("of contiguous inputs", "contiguous"))),
        "sys.exit(int(wrong.any()))",
    ]


def _against_float64(sides: Sides, c: Comparison) -> list[str]:
    """Compare the tensor with float64's."""
    widened = f"[{_double(sides)} for t in {sides.inputs(sides.base)}]"
    return [
        *_eager_runs(sides, c, {"eager": sides.inputs(sides.base), "exact": widened}),
        f"unit = {_unit(sides, 'eager')} * exact.nan_to_num(0, 0, 0).abs().max().item()",
        "wrong = ~torch.isclose(eager.double(), exact.double(), 0, 64 * unit, equal_nan=True)",
        *_tell(sides, c, (("eager", "eager"), ("eager in float64", "exact"))),
        "sys.exit(int(wrong.any()))",
    ]


def _eager_runs(sides: Sides, c: Comparison, inputs: dict[str, str]) -> list[str]:
    """Lines that set the tensor of eager's run on each of several inputs."""
    seen = "parts({})" if sides.complex else "{}"
    pick = f'["{c.name}"]' + (".cpu()" if sides.moves else "")
    run = f"{sides.runner}({sides.given('eager')}, *"
    return [f"{name} = {seen.format(f'{run}{given}){pick}')}" for name, given in inputs.items()]


def _quotient(sides: Sides) -> list[str]:
    """Compare eager's gradient with a difference quotient of its forward."""
    return compare_with_quotient(sides, f"[{_double(sides)} for t in {sides.inputs(sides.base)}]")


def _double(sides: Sides) -> str:
    """An input t in float64. If gradients are accumulated, t must be a leaf."""
    leaf = ".detach()" if ROUTES[sides.program.route.name].script.into_grad else ""
    widen, either = "double()", "t.is_floating_point()"
    if sides.complex:
        widen, either = "to(torch.promote_types(t.dtype, torch.float64))", f"{either} or t.is_complex()"
    wide = f"t{leaf}.{widen}" + (".requires_grad_(t.requires_grad)" if leaf else "")
    return wide if all(x.type.differentiable for x in sides.program.leaves) else f"{wide} if {either} else t"


def _judge(sides: Sides, c: str, e: str, r: str, returned: bool) -> list[str]:
    """`wrong`, elementwise, for the side on trial (c), the reference (e) and float64 (r).

    If eager is on trial, compiled code shows how much rounding moves a result, unless that is as wrong.
    """
    if sides.finding.signature.verdict != "eager-suspect":
        return _wrong(sides, c, e, r, returned)
    of_eager = _wrong(sides, e, r, c if _measures(sides) else r, returned)
    if sides.finding.side in (EAGER, BOTH):
        return of_eager
    # the trial's float64 replays what a recorder saw, which may be other operations than eager's: then compiled code is
    # wrong
    of_compiled = [line.replace("wrong =", "differs =") for line in _wrong(sides, c, e, r, returned)]
    return [*of_eager, *of_compiled, "wrong |= differs"]


def _measures(sides: Sides) -> bool:
    """Whether compiled code's error may show how much rounding moves a result."""
    off = [(abs(c.compiled - c.float64), abs(c.eager - c.float64)) for c in sides.finding.comparisons]
    return sides.finding.side != BOTH and not any(compiled >= eager for compiled, eager in off)


def _wrong(sides: Sides, c: str, e: str, r: str, returned: bool) -> list[str]:
    """`wrong`, elementwise: an error above 16 times the other side's rounding and 64 units of the largest element.

    If the trial allowed no error, any counts.

    returned: it may be a value without a gradient: integers and bools are not rounded.
    """
    if _exact(sides):
        return [f"wrong = ~torch.isclose({c}, {e}, 0, 0, equal_nan=True)"]
    rounded = [
        f"unit = {_unit(sides, e)} * {e}.nan_to_num(0, 0, 0).abs().max().item()",
        f"close = ({c} - {e}).abs() <= 16 * ({e} - {r}).abs()",
        f"wrong = ~close & ~torch.isclose({c}.double(), {e}.double(), 0, 64 * unit, equal_nan=True)",
    ]
    if not returned:
        return rounded
    return [
        f"if {e}.is_floating_point():",
        *(f"    {line}" for line in rounded),
        "else:",
        f"    wrong = {c} != {e}",
    ]


def _exact(sides: Sides) -> bool:
    """Whether compiled code differs although the script has the trial's numbers, of which none may be rounded."""
    floors = [comparison.floor for comparison in sides.finding.comparisons]
    return sides.finding.signature.verdict == "wrong" and not sides.drawn and bool(floors) and not any(floors)


_Labels = Sequence[tuple[str, str]]


def _tell(sides: Sides, c: Comparison, labels: _Labels = ()) -> list[str]:
    """The lines that print the evidence, each variable with its label, by default both sides: small tensors in full, of
    others the wrong element where the sides are furthest apart."""
    plain = [("in plain Python", "plain")] if _looped(sides) else []
    labels = labels or [("compiled", "compiled"), ("eager", "eager"), *plain, ("float64", "exact")]
    if not c.index or c.total <= _MOST_PRINTED:
        shown = (f"{label} {{{variable}.tolist()}}" for label, variable in labels)
        return [f'print(f"{c.name}: {", ".join(shown)}")']
    # as in `fuzzer.diagnosis.look`, whose element the draft names
    a, b = ("eager", "plain") if plain else (variable for _, variable in labels[:2])
    shown = (f"{label} {{{variable}[at].tolist()}}" for label, variable in labels)
    return [
        f"off = torch.where(wrong, ({a}.double() - {b}.double()).abs().nan_to_num(float('inf')), -1.0)",
        "at = tuple(map(int, torch.unravel_index(off.argmax(), off.shape)))",
        f'print(f"{c.name}{{list(at)}}: {", ".join(shown)}")',
    ]


def _unit(sides: Sides, e: str) -> str:
    """The check's unit of measure: the tensor's own, or the program's coarsest if the fault is visible in that."""
    coarse = _coarsest(sides)
    limit = 64 * _eps(sides)
    if coarse in ("f16", "bf16") and any(_share(c) > limit for c in sides.finding.comparisons):
        return f"torch.finfo({TORCH_DTYPES[coarse]}).eps"
    return f"torch.finfo({e}.dtype).eps" if _units(sides) else "0"


def _eps(sides: Sides) -> float:
    return torch.finfo(TORCH_DTYPES[_coarsest(sides)]).eps


def _units(sides: Sides) -> set[str]:
    """The dtypes in which the program rounds."""
    return {name for name in sides.named | {leaf.dtype for leaf in sides.program.leaves} if name in DIFFERENTIABLE}


def _coarsest(sides: Sides) -> str:
    """The dtype of these with the largest unit; float32 where there is none."""
    return max(_units(sides), key=lambda name: torch.finfo(TORCH_DTYPES[name]).eps, default="f32")


def _share(c: Comparison) -> float:
    """The error of the worst element relative to its values; infinite where it is not finite."""
    error = abs(c.compiled - c.eager)
    scale = max(abs(c.eager), abs(c.float64))
    return error / scale if error < float("inf") and scale > 0 else float("inf")


# ---------------------------------------------------------------- by oracle


@dataclass(frozen=True)
class Check:
    """The check of a script.

    write  returns the lines.
    title  the finding's headline; without it that of all findings of the class.
    """

    write: Callable[[Sides], list[str]]
    title: Callable[[Signature], str] | None = None


_VALUES = Check(_values)
# Failures of eager have checks of their own, whatever the class.
_OF_EAGER = ("eager_survives", "errors_agree", "gradients_are_derivatives")
CHECKS: dict[str, Check] = {
    "metadata_agrees": Check(_metadata),
    "inputs_untouched": Check(_inputs_untouched, title=_written_title),
    "eager_survives": Check(_eager_survives),
    "gradients_are_derivatives": Check(_quotient),
    "errors_agree": Check(_raises_too, title=lambda signature: "runs what eager refuses"),
    "rerun_is_identical": Check(_rerun_is_equal),
    "zero_signs_agree": Check(_zero_signs),
    "seen_zero_signs_agree": Check(_zero_signs),
    "finiteness_agrees": Check(_finiteness),
    "compile_is_timely": Check(_cpu_seconds),
    "memory_is_sane": Check(_peak_memory),
}
