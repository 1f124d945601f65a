"""ORACLES: pure functions Trial -> Verdict | None. A new oracle is one function and one line in the list.

The name states the claim. Numeric claims are decided by the rounding model (`fuzzer.rounding`), never by a tolerance.
A detail about one tensor begins with its name. `fuzzer.export.checks` holds the check of an exported script for each
oracle; the default is a comparison of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import torch

from fuzzer.judgement.comparison import (
    TensorVerdict,
    as_float64,
    first_spread,
    infinite_for_nan,
    judge_tensors,
    pattern,
    ratio_text,
    unmodelled_floor,
    within_storage,
    worst_element,
)
from fuzzer.judgement.derivatives import contradiction
from fuzzer.judgement.edges import left_to_range, picked_zeros, sees_zero_sign
from fuzzer.judgement.narrowing import confirmed, narrowed, unexplained
from fuzzer.judgement.promise import promised_error, why_unsupported
from fuzzer.judgement.trial import DIED, RAISED, RAN, TIMED_OUT, Code, Observation, Trial
from fuzzer.judgement.verdict import (
    CLASSES,
    CORRUPT_HEAP,
    NO_DERIVATIVE,
    OF_EAGER,
    UNSUPPORTED,
    Signature,
    Verdict,
    strip_digits,
)
from fuzzer.rounding.deaf import deaf
from fuzzer.rounding.floors import FACTOR
from fuzzer.rounding.replay import Unreplayable
from fuzzer.rounding.trace import is_rounded


@dataclass(frozen=True)
class Oracle:
    """A claim about a trial, by the name of its function, and the programs for which it is checked.

    claim  returns the verdict where the claim does not hold, else None.
    asked  whether it is checked only if a task names it (`Task.also`).
    counts whether it is checked all the same, and its findings are then only counted: they are of class `agree`.
    share  the share of a campaign's programs, chosen by number, for which it is checked though no task named it.
    bare   whether it is about the program without its settings: that program then runs too (`Trial.bare`), and the
           oracle's finding is a finding of that program.
    """

    claim: Callable[[Trial], Verdict | None]
    asked: bool = False
    counts: bool = False
    share: float = 0.0
    bare: bool = False

    @property
    def name(self) -> str:
        return self.claim.__name__


def worker_survives(trial: Trial) -> Verdict | None:
    """The process that compiled and ran the program is still there, in time."""
    o = trial.subject
    if o.outcome == DIED:
        how, told = _death(o)
        return Verdict(Signature("worker_survives", "crashes", o.phase, how), f"the worker died in the {told}")
    if o.outcome == TIMED_OUT:
        detail = f"the {o.phase} did not end in time"
        return Verdict(Signature("worker_survives", "hangs", o.phase, "deadline"), detail)
    return None


def eager_survives(trial: Trial) -> Verdict | None:
    """The process that ran the program in eager is still there."""
    o = trial.reference
    if o.outcome != DIED:
        return None
    how, told = _death(o)
    return Verdict(
        Signature("eager_survives", "crashes", o.phase, f"{OF_EAGER}{how}"), f"eager itself dies in the {told}"
    )


def _death(o: Observation) -> tuple[str, str]:
    """The death of a worker, as a pattern and in words. A corrupt heap may be noticed anywhere, and end in any
    signal."""
    if o.frame == CORRUPT_HEAP:
        return CORRUPT_HEAP, f"{o.phase or 'judging'}: {o.signal}, {CORRUPT_HEAP}"
    return f"{o.signal} {o.frame}".strip(), f"{o.phase}: {o.signal}{' in ' + o.frame if o.frame else ''}"


def errors_agree(trial: Trial) -> Verdict | None:
    """If eager raises an error that torch promises, the other side raises too."""
    raised, o = trial.reference.raised, trial.reference
    promised = promised_error(raised) if o.outcome == RAISED and raised is not None else ""
    if not promised or raised is None or trial.subject.outcome != RAN:
        return None
    detail = f"in eager the {o.phase} raised {raised.kind}: {raised.message.splitlines()[0]}; compiled it runs"
    return Verdict(Signature("errors_agree", "raises", o.phase, f"{OF_EAGER}{promised}"), detail)


def compile_does_not_raise(trial: Trial) -> Verdict | None:
    """If the reference side runs, the other raises neither in the forward nor in the backward."""
    o = trial.subject
    if o.outcome != RAISED or o.raised is None:
        return None
    # The message's first line names the fault; the sizes and addresses in it vary.
    pattern = " < ".join((o.raised.kind, *o.raised.frames))
    detail = f"the {o.phase} raised {o.raised.kind}: {o.raised.message.splitlines()[0] if o.raised.message else ''}"
    return Verdict(Signature("compile_does_not_raise", "raises", o.phase, strip_digits(pattern)), detail)


def metadata_agrees(trial: Trial) -> Verdict | None:
    """None-ness, shape and dtype of every output and gradient equal the reference's, and each is within its storage. Of
    a function the whole structure of its results is equal, and they share memory with the same inputs.

    A gradient of zeros and None count as equal: AOTAutograd returns zeros for leaves that only undifferentiated outputs
    depend on, where eager returns None.
    """
    if trial.subject.outcome != RAN:
        return None
    theirs = trial.named(trial.subject)
    for name, mine in trial.named(trial.reference).items():
        other = theirs[name]
        if (mine is None) != (other is None) and not bool((mine if other is None else other).any()):
            continue
        if other is not None and not within_storage(other):
            detail = f"{name} reaches beyond its storage: {_describe(other)} of stride {list(other.stride())}"
            return Verdict(Signature("metadata_agrees", "wrong", _direction(name), "storage"), detail)
        told = [_describe(mine), _describe(other)]
        if told[0] != told[1]:
            what = "None-ness" if None in (mine, other) else "dtype" if mine.dtype != other.dtype else "shape"
            detail = f"{name} is {told[1]}, the reference's is {told[0]}"
            return Verdict(Signature("metadata_agrees", "wrong", _direction(name), what), detail)
    return _structure_differs(trial.reference, trial.subject)


def _structure_differs(mine: Observation, theirs: Observation) -> Verdict | None:
    """The first result of a function that is another value or no tensor, or shares memory with other inputs."""
    for name in {**mine.structure, **theirs.structure}:
        told = [side.structure.get(name, "missing") for side in (mine, theirs)]
        if told[0] != told[1]:
            detail = f"{name} is {told[1]}, the reference's is {told[0]}"
            return Verdict(Signature("metadata_agrees", "wrong", "forward", "structure"), detail)
        shared = [" and ".join(side.aliases.get(name, ())) or "nothing" for side in (mine, theirs)]
        if shared[0] != shared[1]:
            detail = f"{name} shares memory with {shared[1]}, the reference's with {shared[0]}"
            return Verdict(Signature("metadata_agrees", "wrong", "forward", "shared memory"), detail)
    return None


def _direction(name: str) -> str:
    return "backward" if name.endswith(".grad") else "forward"


def _describe(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def inputs_untouched(trial: Trial) -> Verdict | None:
    """Leaves and cotangents keep their values, except where the reference side writes to them as well, and the memory
    around them is unchanged."""
    for name, phase in trial.subject.touched.items():
        if name not in trial.reference.touched and not _may_be_written(trial, name):
            own = name.removeprefix("around ")
            what = trial.code.role(own)
            if own == name:
                detail = (
                    f"{name} does not hold what it held before the {phase}: something wrote into the {what}'s storage"
                )
                return Verdict(Signature("inputs_untouched", "wrong", phase, what), detail)
            detail = f"something wrote out of bounds in the {phase}: into the memory around {own}"
            return Verdict(Signature("inputs_untouched", "wrong", phase, f"around {what}"), detail)
    return None


def _may_be_written(trial: Trial, name: str) -> bool:
    """Whether the program writes a leaf's own values back to it, up to rounding, as celu_ of a number that a GPU
    flushes to zero."""
    if name not in trial.reference.written or name not in trial.targets:
        return False
    return not list(judge_tensors(trial, [name]))


def _numeric(trial: Trial, oracle: str, direction: str, names: list[str], nonfinite: bool) -> Verdict | None:
    if trial.subject.outcome != RAN:
        return None
    found = [j for j in unexplained(trial, names) if (pattern(j) == "nonfinite") == nonfinite]
    if not found:
        return None
    found.sort(key=lambda j: CLASSES.index(j.verdict))
    return _told(oracle, direction, found)


def _told(oracle: str, direction: str, found: list[TensorVerdict], why: str = "") -> Verdict:
    """The verdict about these tensors, the worst first."""
    worst = found[0]
    comparisons = tuple(worst_element(j) for j in found)
    shown = comparisons[0]
    detail = (
        f"{shown.name}{list(shown.index)}: compiled {shown.compiled:.9g}, eager {shown.eager:.9g}, "
        f"float64 {shown.float64:.9g}, floor {shown.floor:.3g}; {shown.wrong} of {shown.total} elements"
        f"{why or ratio_text(worst)}"
    )
    return Verdict(Signature(oracle, worst.verdict, direction, pattern(worst)), detail, comparisons)


def _outputs(trial: Trial) -> list[str]:
    return [name for name in trial.targets if not name.endswith(".grad")]


def _gradients(trial: Trial) -> list[str]:
    return [name for name in trial.targets if name.endswith(".grad")]


def no_new_nonfinite(trial: Trial) -> Verdict | None:
    """Where the reference is finite in every legal rounding, the compiled result is finite."""
    for direction, names in (("forward", _outputs(trial)), ("backward", _gradients(trial))):
        found = _numeric(trial, "no_new_nonfinite", direction, names, nonfinite=True)
        if found is not None:
            return found
    return None


def outputs_agree(trial: Trial) -> Verdict | None:
    """Every output, and every leaf that the program writes to, lies within what legal rounding can show."""
    return _numeric(trial, "outputs_agree", "forward", _outputs(trial), nonfinite=False)


def gradients_agree(trial: Trial) -> Verdict | None:
    """Every gradient lies within what legal rounding can show."""
    return _numeric(trial, "gradients_agree", "backward", _gradients(trial), nonfinite=False)


# (compiled, eager) kinds of values that differ; the first pair that occurs is the pattern.
_ONE_SIDED = ("NaN for finite", "infinite for finite", "finite for NaN", "finite for infinite", "infinite for NaN")

_OTHER_RANGE = "finite on one side alone: it is kept in another range"
_OTHER_ORDER = "NaN in eager alone: infinities are added in another order"


def finiteness_agrees(trial: Trial) -> Verdict | None:
    """If range and not rounding decides whether a value is finite, it is finite on both sides or on neither. If
    opposite infinities met in eager, which gives NaN, the compiled value is not infinite."""
    for i, name, eager, compiled in _comparable(trial):
        other = torch.isfinite(eager) != torch.isfinite(compiled)
        other = other & left_to_range(trial)[i] if bool(other.any()) else other
        met = infinite_for_nan(compiled, eager, trial.model.reference[i].double())
        if not bool((other | met).any()):
            continue
        where = tuple((other if bool(other.any()) else met).nonzero()[0].tolist())
        pairs = zip(compiled[other | met].tolist(), eager[other | met].tolist(), strict=True)
        told = {f"{_sort(c)} for {_sort(e)}" for c, e in pairs}
        pattern = next(pattern for pattern in _ONE_SIDED if pattern in told)
        ranged = (
            f"{int(other.sum())} of {other.numel()} elements are finite on one side alone: it is kept in another range"
        )
        ordered = (
            f"{int(met.sum())} of {met.numel()} elements are NaN in eager alone: infinities are added in another order"
        )
        detail = (
            f"{name}{list(where)}: compiled {float(compiled[where]):.9g}, eager {float(eager[where]):.9g}; "
            f"{ordered if pattern == _ONE_SIDED[-1] else ranged}"
        )
        return Verdict(Signature("finiteness_agrees", "nonfinite-differs", _direction(name), pattern), detail)
    return None


def _comparable(trial: Trial) -> Iterator[tuple[int, str, torch.Tensor, torch.Tensor]]:
    """The floating tensors that both sides have in one shape: position among the targets, name, and both tensors in
    float64."""
    if trial.subject.outcome != RAN or trial.draws_apart:
        return
    mine, theirs = trial.named(trial.reference), trial.named(trial.subject)
    for i, (name, ref) in enumerate(trial.targets.items()):
        a, b = mine[name], theirs[name]
        if name in trial.unmodelled or not is_rounded(ref) or a is None or b is None:
            continue
        if a.shape == b.shape and within_storage(b):
            like = trial.model.reference[i]
            yield i, name, as_float64(a, like), as_float64(b, like)


def _sort(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite" if math.isinf(value) else "finite"


def seen_zero_signs_agree(trial: Trial) -> Verdict | None:
    """A zero has the same sign as eager's, if another result of the program depends on that sign (1 / x, atan2)."""
    found = _other_zero_signs(trial, "seen_zero_signs_agree")
    return next((verdict for name, verdict in found if sees_zero_sign(trial, name)), None)


# ---------------------------------------------------------------- a second run of the compiled code; costs


def differing_tensors(mine: dict[str, torch.Tensor | None], theirs: dict[str, torch.Tensor | None]) -> list[str]:
    """The names of the tensors whose bits differ between two runs."""
    return [name for name, tensor in mine.items() if not same_bits(tensor, theirs[name])]


def same_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Whether two tensors have the same dtype, shape and bits; strides may differ."""
    if a is None or b is None:
        return a is b
    if not (within_storage(a) and within_storage(b)):
        return True  # metadata_agrees reports it
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    # a copy, because a single element with a stride of 2 counts as contiguous but cannot be viewed as bytes
    return plain.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def rerun_is_identical(trial: Trial) -> Verdict | None:
    """The same compiled code gives the same bits for the same inputs, or differs by rounding where its order of
    addition is not fixed: with atomics, or with operations that torch calls nondeterministic."""
    again = trial.subject.again
    names = differing_tensors(trial.named(trial.subject), trial.named(again)) if again is not None else []
    if again is None or not names:
        return None
    beyond = any(j.verdict == "wrong" for t in (trial, trial.with_subject(again)) for j in judge_tensors(t, names))
    told = {True: "adds with atomics", False: "holds no atomics", None: "was not seen"}[trial.subject.atomics]
    detail = (
        f"{', '.join(names)}: a second run on equal inputs gave other bits, {'not ' if beyond else ''}within "
        f"rounding; generated code {told}; {trial.subject.admitted or 'torch calls nothing in it nondeterministic'}"
    )
    legal = not beyond and bool(trial.subject.atomics or trial.subject.admitted)
    pattern = "beyond rounding" if beyond else "no set order" if legal else "no atomics"
    verdict = "agree" if legal else "nondeterministic"
    return Verdict(Signature("rerun_is_identical", verdict, _direction(names[-1]), pattern), detail)


# CPU seconds. Generated programs take 1 to 16, on a busy machine; the gradient of cumprod under torch 2.11, one node,
# took 30 to 40.
COMPILE_SECONDS, _COMPILE_SECONDS_EACH = 25.0, 2.0


def compile_limit(code: Code) -> float:
    """The CPU seconds that compiling and running the code may take."""
    return COMPILE_SECONDS + _COMPILE_SECONDS_EACH * code.size


def compile_is_timely(trial: Trial) -> Verdict | None:
    """Compiling takes at most a large multiple of the CPU time usual for programs with as many nodes."""
    if trial.subject.outcome != RAN:
        return None
    spent, nodes, limit = trial.subject.cpu_seconds, trial.code.size, compile_limit(trial.code)
    if spent <= limit:
        return None
    detail = f"compiled and run in {spent:.0f} CPU seconds; at most {limit:.0f} are expected of {nodes} nodes"
    return Verdict(Signature("compile_is_timely", "costly", "", "CPU time"), detail)


MEMORY_BYTES, _MEMORY_FACTOR = 64 * 2**20, 8


def memory_is_sane(trial: Trial) -> Verdict | None:
    """At its peak the compiled code takes at most a multiple of the memory of all of eager's values together."""
    again = trial.subject.again
    if trial.trace is None or again is None or again.peak is None:
        return None
    made = {
        ref.storage: trial.trace.sizes[ref.storage] * ref.dtype.itemsize for s in trial.trace.steps for ref in s.outs
    }
    limit = MEMORY_BYTES + _MEMORY_FACTOR * sum(made.values())
    if again.peak <= limit:
        return None
    detail = (
        f"the compiled code takes {again.peak / 2**20:.0f} MiB at its peak; at most {limit / 2**20:.0f} are expected"
    )
    return Verdict(Signature("memory_is_sane", "costly", "", "memory"), detail)


# ---------------------------------------------------------------- on request


def settings_agree(trial: Trial) -> Verdict | None:
    """If the compiled code is right under the program's settings, it is right without them."""
    if trial.bare is None:
        return None
    other = trial.with_subject(trial.bare)
    for claim in (compile_does_not_raise, metadata_agrees, no_new_nonfinite, outputs_agree, gradients_agree):
        said = claim(other)
        if said is not None and said.signature.verdict in ("wrong", "raises") and claim(trial) is None:
            signature = replace(said.signature, oracle="settings_agree")
            return Verdict(signature, f"without the program's settings: {said.detail}", said.comparisons)
    return None


def gradients_are_derivatives(trial: Trial) -> Verdict | None:
    """Eager's gradients are the derivatives of its forward, whatever values the other side has.

    Not checked where the other side raised: that may have broken the device's context, which the derivatives need.
    """
    if trial.subject.outcome != RAN:
        return None
    try:
        found = contradiction(trial)
    except Unreplayable:  # the points around a program's leaves may be outside a function's domain
        return None
    if found is None:
        return None
    name, check = found
    detail = f"{name}.grad is no derivative: {check.ruling}; eager has {check.eager:.9g}"
    return Verdict(Signature("gradients_are_derivatives", "eager-suspect", "backward", NO_DERIVATIVE), detail)


def narrowings_agree(trial: Trial) -> Verdict | None:
    """No rounding to float16 or bfloat16 that inductor drops inside a fused kernel flips a decision or is magnified.

    Where nobody asks, what a dropped rounding explains is counted. Where somebody does, the program was compiled once
    more without dropping any, and then agreed.
    """
    asked = "narrowings_agree" in trial.also
    found = confirmed(trial) if asked else narrowed(trial)
    for direction, names in (("forward", _outputs(trial)), ("backward", _gradients(trial))):
        if shown := [found[name] for name in names if name in found]:
            why = f"; decided by a rounding that was dropped: {' and '.join(shown[0].casts)}"
            verdict = _told("narrowings_agree", direction, [one.judged for one in shown], why)
            said = replace(verdict.signature, pattern="dropped rounding")
            return replace(verdict, signature=said if asked else replace(said, verdict="agree"))
    return None


def zero_signs_agree(trial: Trial) -> Verdict | None:
    """A zero has the same sign as eager's, where no rounding could change it."""
    return next((verdict for _, verdict in _other_zero_signs(trial, "zero_signs_agree")), None)


def _other_zero_signs(trial: Trial, oracle: str) -> Iterator[tuple[str, Verdict]]:
    """The tensors with zeros of another sign, each with its verdict."""
    for i, name, eager, compiled in _comparable(trial):
        zeros = (eager == 0) & (compiled == 0)
        other = zeros & (torch.signbit(eager) != torch.signbit(compiled))
        if not bool(other.any()):  # cheap, before the floors
            continue
        floor = first_spread(trial).floor(i, FACTOR)
        promised = (floor == 0) & ~picked_zeros(trial, i)
        zeros, other = zeros & promised, other & promised
        if bool(other.any()):
            detail = f"{name}: {int(other.sum())} of {int(zeros.sum())} zeros have another sign than eager's"
            pattern = "all" if int(other.sum()) == int(zeros.sum()) else "some"
            yield name, Verdict(Signature(oracle, "signed-zero", _direction(name), pattern), detail)


ORACLES: tuple[Oracle, ...] = (
    Oracle(worker_survives),
    Oracle(eager_survives),
    Oracle(errors_agree),
    Oracle(compile_does_not_raise),
    Oracle(metadata_agrees),
    Oracle(inputs_untouched),
    Oracle(no_new_nonfinite),
    Oracle(outputs_agree),
    Oracle(gradients_agree),
    Oracle(finiteness_agrees),
    Oracle(seen_zero_signs_agree),
    Oracle(rerun_is_identical),
    Oracle(compile_is_timely),
    Oracle(memory_is_sane),
    Oracle(settings_agree, asked=True, bare=True),  # it compiles once more; none of 740 stored findings came from it
    Oracle(gradients_are_derivatives, asked=True, share=1 / 16),  # 0.04 to 0.3 CPU seconds; it tests eager alone
    Oracle(narrowings_agree, asked=True, counts=True),  # legal by the compiler's word, and a surprise
    Oracle(zero_signs_agree, asked=True),  # torch promises no sign of zero
)
ASKED = tuple(oracle.name for oracle in ORACLES if oracle.asked)


def asked_by_share(drawn: Callable[[str, float], bool]) -> tuple[str, ...]:
    """Oracles to check for one program though no task named them; drawn(name, share) says whether the program is
    chosen."""
    return tuple(oracle.name for oracle in ORACLES if oracle.share and drawn(oracle.name, oracle.share))


def about_bare(names: Collection[str]) -> bool:
    """Whether an oracle of these names is about the program without its settings."""
    return any(oracle.bare and oracle.name in names for oracle in ORACLES)


def verdicts(trial: Trial) -> list[Verdict]:
    """The verdicts of all oracles, worst class first."""
    wanted = (oracle for oracle in ORACLES if not oracle.asked or oracle.counts or oracle.name in trial.also)
    found = [v for oracle in wanted if (v := oracle.claim(trial)) is not None]
    return sorted((_promised(trial, v) for v in found), key=lambda v: CLASSES.index(v.signature.verdict))


def _promised(trial: Trial, verdict: Verdict) -> Verdict:
    """The verdict, with class `unsupported` where torch makes no promise about the compiled program (`promise`)."""
    signature = verdict.signature
    if signature.verdict in ("agree", "eager-suspect") or not why_unsupported(trial.code, signature.pattern):
        return verdict
    return replace(verdict, signature=replace(signature, verdict=UNSUPPORTED))


def detectable(trial: Trial) -> tuple[int, int]:
    """(elements, of all) of the compared gradients whose finite reference exceeds 10 times its floor."""
    seen = total = 0
    for r, floor in _compared_gradients(trial):
        total += r.numel()
        seen += int((torch.isfinite(r) & (r.abs() > 10 * floor)).sum())
    return seen, total


def deaf_elements(trial: Trial) -> int:
    """Elements of the compared gradients whose floor is infinite or more than half of the value (`rounding.deaf`)."""
    return sum(int(deaf(r, floor).sum()) for r, floor in _compared_gradients(trial))


def _compared_gradients(trial: Trial) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Reference and floor of each gradient that both sides have; before the subject has run, of all."""
    order = list(trial.targets)
    compared = trial.named(trial.subject) if trial.subject.outcome == RAN else trial.targets
    shown = first_spread(trial)
    for name in _gradients(trial):
        if compared[name] is not None:
            i = order.index(name)
            floor = unmodelled_floor(trial, name, i) if name in trial.unmodelled else shown.floor(i, FACTOR)
            yield trial.model.reference[i].double(), floor
