"""Which side is wrong: both sides' gradients are compared with directional derivatives.

Neither side's backward is trusted. The forward's own values give the derivative (`derivative`), along directions in
which the two sides differ (`judgement.derivatives`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch

from fuzzer.diagnosis.memcheck import EAGER_CORRUPTS
from fuzzer.judgement.comparison import TensorVerdict, outside_floor, worst_element
from fuzzer.judgement.derivatives import DirectionalCheck, GradientCheck, Undecided, whole
from fuzzer.judgement.narrowing import unexplained
from fuzzer.judgement.trial import Raised, Trial
from fuzzer.judgement.verdict import (
    BOTH,
    CHOICE,
    COMPILED,
    DIFFERS,
    EAGER,
    EAGER_DIES,
    EAGER_RAISES,
    NEITHER,
    RAISES,
    UNDECIDED,
    Finding,
    side_by_class,
)
from fuzzer.language import control
from fuzzer.language.interpret import cotangents, materialise, to_function
from fuzzer.language.ops import OPS
from fuzzer.language.program import Region, statements
from fuzzer.language.regions import CONTROL, region_spec
from fuzzer.language.routes import ROUTES, Call
from fuzzer.language.settings import in_force
from fuzzer.rounding.arithmetic import divides_by_frequency
from fuzzer.rounding.derivative import Direction, direction
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.replay import Unreplayable

_MOST_TENSORS = 3  # of the tensors that differ
_RANDOM_DIRECTIONS = 2  # for each of them, beside its worst element and the difference itself


def _directions(check: GradientCheck, judged: TensorVerdict) -> Iterator[tuple[str, Direction, bool]]:
    """Directions in a leaf whose gradients differ: single elements, all elements along the difference, all at random.

    The worst element comes first, then elements at no kink, so that a kink at the worst one hides nothing.
    """
    leaf = judged.name.removesuffix(".grad")
    ref = check.leaves[leaf]
    apart = torch.nan_to_num(judged.compiled - judged.eager, nan=1.0)
    plain = judged.mask & ~check.kinks(judged)

    def along(signs: torch.Tensor) -> Direction:
        return direction(check.trace, ref, whole(signs, ref))

    for mask in [judged.mask, plain] if bool(plain.any()) else [judged.mask]:
        index = worst_element(replace(judged, mask=mask)).index
        one = torch.zeros_like(apart)
        one[index] = 1.0
        yield f"at {leaf}{list(index)}", along(one), True
    for mask in (plain, judged.mask):
        if int(mask.sum()) > 1:
            yield f"along what differs in {leaf}", along(apart * mask), False
    generator = torch.Generator(apart.device).manual_seed(0)
    for i in range(_RANDOM_DIRECTIONS if int(plain.sum()) > 1 else 0):
        signs = torch.rand(apart.shape, generator=generator, device=apart.device, dtype=torch.float64) - 0.5
        yield f"along random signs ({i}) of what differs in {leaf}", along(signs * plain), False


def decide(trial: Trial, found: list[TensorVerdict]) -> str:
    """The side that is wrong, and why: one of the constants above, a colon, the reason. Raises Unreplayable."""
    gradients = [j for j in found if j.name.endswith(".grad")]
    if all(j.verdict == "rounding-sensitive" for j in found):
        return f"{NEITHER}: both lie within legal rounding"
    if unsorted := next((step.name for step in trial.model.trace.steps if kernel(step).unsorted), ""):
        return f"{UNDECIDED}: {unsorted} returns its values in no order"
    body = list(statements(trial.program.body))
    if not gradients or any((region_spec(s) if isinstance(s, Region) else OPS[s.op]).tells for s in body):
        return _decide_by_eager(trial, found)
    if any(map(divides_by_frequency, trial.model.trace.steps)):
        return f"{UNDECIDED}: scale_grad_by_freq divides gradients, which are no derivatives then"
    check = GradientCheck(trial)
    checks: list[DirectionalCheck] = []
    reasons: list[str] = []
    for judged in gradients[:_MOST_TENSORS]:
        for where, along, alone in _directions(check, judged):
            try:
                checks.append(check.check_direction(where, along, alone))
            except Undecided as reason:
                reasons.append(str(reason))
    return combine(checks, reasons, _random_step(trial))


def combine(checks: list[DirectionalCheck], reasons: list[str], draws: str) -> str:
    """(side: reason) from all directional checks that decide; reasons say why others were impossible."""
    sharp = [t for t in checks if t.decides]
    eager, compiled = (
        [t for t in sharp if t.contradicts(value(t))] for value in (lambda t: t.eager, lambda t: t.compiled)
    )
    if not sharp:
        blunt = [f"{t}: too coarse to tell" for t in checks]
        return f"{UNDECIDED}: {(reasons + blunt + ['no derivative could be computed'])[0]}"
    if (eager or compiled) and draws:
        return f"{UNDECIDED}: {draws}, and another draw has another derivative; with eager's, {(eager or compiled)[0]}"
    if eager:
        both = [t for t in eager if t in compiled]
        return f"{BOTH if compiled else EAGER}: {(both or eager)[0]}"
    if compiled:
        return f"{COMPILED}: {compiled[0]}"
    if any(t.kink for t in sharp):
        return f"{CHOICE}: {next(t for t in sharp if t.kink)}"
    return f"{NEITHER}: {sharp[0]}"


def _random_step(trial: Trial) -> str:
    """The operation that draws random numbers, in words; "" where there is none."""
    assert trial.trace is not None
    return next((f"{step.name} draws random numbers" for step in trial.trace.steps if step.recorded), "")


def _decide_by_eager(trial: Trial, found: list[TensorVerdict]) -> str:
    """The side by eager's own operations in float64: the only reference for outputs, and for gradients whose autograd
    formula the user gave."""
    worst = found[0]
    own = trial.targets[worst.name].dtype in (torch.float64, torch.complex128)
    if own and trial.place.reference.device == trial.model.device.type and worst.verdict != "eager-suspect":
        return f"{UNDECIDED}: {worst.name} is float64, and eager's own operations are all there is to compare with"
    c = worst_element(worst)
    off = [bool(outside_floor(side, worst.reference, worst.floor).any()) for side in (worst.eager, worst.compiled)]
    who = {(True, True): BOTH, (True, False): EAGER, (False, True): COMPILED}.get((off[0], off[1]), NEITHER)
    if who == COMPILED and (drawn := _random_step(trial)):
        return f"{UNDECIDED}: {drawn}, and another draw has another result"
    where = f"{c.name}{list(c.index)}"
    return (
        f"{who}: at {where} eager's operations in float64 give {c.float64:.9g} (to {c.floor:.1g}); eager has "
        f"{c.eager:.9g}, compiled {c.compiled:.9g}"
    )


def _torchs_own(trial: Trial, found: list[TensorVerdict]) -> str:
    """The wrong value that torch's own control flow gives in eager too, in words; "" where it is right, raises, or the
    program has none.

    The trial's eager ran the same in plain Python (`language.control`), but a user's eager runs torch's operations.
    They are judged by the trial's reference and floor.
    """
    names = {s.kind for s in statements(trial.program.body) if isinstance(s, Region) and s.kind in CONTROL}
    if not names:
        return ""
    device = trial.place.reference.device
    leaves, seeds = materialise(trial.program.leaves, device), cotangents(trial.program, device)
    call = Call(trial.program, to_function(trial.program), leaves, seeds)
    torch.manual_seed(0)
    try:
        with torch.enable_grad(), in_force(trial.program.settings), control.as_torch():
            results = ROUTES[trial.program.route.name].run(call)
    except Exception:  # torch's refusal may have any type; then eager has no value to be wrong
        return ""
    own = {f"{name}.grad": t for name, t in results.gradients.items()}
    own |= {o.value: t for o, t in zip(trial.program.outputs, results.outputs, strict=True)}
    for judged in found:
        value = own.get(judged.name)
        if value is None or value.shape != judged.eager.shape:
            continue
        value = value.detach().to(judged.reference)
        off = outside_floor(value, judged.reference, judged.floor)
        if bool(off.any()):
            c = worst_element(replace(judged, compiled=value, mask=off))
            where = f"{c.name}{list(c.index)}"
            return f"at {where} torch's own {' and '.join(sorted(names))} gives {c.compiled:.9g} in eager too"
    return ""


def side_of(trial: Trial) -> str:
    """The wrong side of a trial that ran, and why."""
    try:
        with torch.no_grad():
            found = unexplained(trial, list(trial.targets))
            if not found:
                return "none: no tensor lies outside its floor"
            side, _, reason = decide(trial, found).partition(": ")
            too = _torchs_own(trial, found) if side in (COMPILED, UNDECIDED) else ""
            return f"{BOTH}: {too}; with plain Python in its place: {reason}" if too else f"{side}: {reason}"
    except Unreplayable as error:
        return f"{UNDECIDED}: the trace cannot be replayed: {error}"


# The origin of an exception, by the innermost of torch's files in its traceback.
_COMPILERS = ("_inductor", "_dynamo", "_functorch", "fx", "_subclasses", "_decomp", "_refs", "_prims", "_meta",
              "_higher_order_ops", "_guards", "_library", "utils/_sympy")  # fmt: skip
_COMPILING = ("_dynamo/output_graph", "_inductor/graph", "_functorch/_aot_autograd/graph_c")  # only while compiling
_FILE = re.compile(r'File "([^"]+)", line \d+, in (\w+)')


def who_raised(raised: Raised) -> str:
    """The origin of the compiled side's exception: the compiler, its generated code, or a kernel."""
    files = _FILE.findall(raised.traceback)
    torchs = [(path.removeprefix("torch/"), name) for path, name in files if path.startswith("torch/")]
    path, name = torchs[-1] if torchs else ("", "")
    where = f" in torch/{path}, {name}" if path else ""
    if path.startswith(_COMPILERS):
        return f"{raised.kind}{where}: the compiler's own"
    if any(path.startswith(_COMPILING) for path, _ in torchs):
        return f"{raised.kind}{where}: met by the compiler while it traced"
    written = files and not files[-1][0].startswith(("torch/", "fuzzer/"))
    of = "the code that it wrote" if written else "a kernel that eager has too, given what eager does not give it"
    return f"{raised.kind}{where}: raised by {of}"


def told_side(finding: Finding, raised: str, memory: str = "") -> str:
    """The side at fault where numbers do not decide it; "" where they do. raised: the result of `who_raised`; memory:
    the memory checker's result."""
    if memory.startswith(EAGER_CORRUPTS):
        return f"{EAGER_DIES}: {memory}"
    side, said = side_by_class(finding.signature), finding.detail.partition("\n")[0]
    if side == RAISES:
        return f"{side}: {raised or said}; eager runs"
    if side in (EAGER, EAGER_DIES, EAGER_RAISES):
        return f"{side}: {said}"
    if side == DIFFERS:
        return f"{side}: {said}; what eager does is the measure"
    return f"{side}: {said}; eager ends well" if side else ""
