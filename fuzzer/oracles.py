"""ORACLES: pure functions Trial -> Verdict | None. A new oracle is one function and one line in the list.

The name states the claim. Numeric claims are decided by the rounding model (`rounding`), never by a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from fuzzer.execution.messages import DIED, RAISED, RAN, TIMED_OUT, Trial
from fuzzer.floors import FACTOR, FINAL_LOOK, FIRST_LOOK, SECOND_LOOK, Spread, kind
from fuzzer.picture import fraction
from fuzzer.program import extent
from fuzzer.values import in_parts
from fuzzer.verdict import ASKED, CLASSES, Comparison, Signature, Verdict, strip_digits

Oracle = Callable[[Trial], Verdict | None]

# A deviation counts as rounding-sensitive only this many times beyond what consistent rounding shows: the class is
# for results that the model calls stable and that are not, not for the edge of a distribution.
SENSITIVE_FACTOR = 64.0
NOTABLE_UNITS = 16.0  # units of the result between eager and compiled below which nobody asks which model explains it


def worker_survives(trial: Trial) -> Verdict | None:
    """The process that compiled and ran the program is still there, in time."""
    o = trial.subject
    if o.outcome == DIED:
        detail = f"the worker died in the {o.phase}: {o.signal}{' in ' + o.frame if o.frame else ''}"
        return Verdict(Signature("worker_survives", "crashes", o.phase, f"{o.signal} {o.frame}".strip()), detail)
    if o.outcome == TIMED_OUT:
        detail = f"the {o.phase} did not end in time"
        return Verdict(Signature("worker_survives", "hangs", o.phase, "deadline"), detail)
    return None


def compile_does_not_raise(trial: Trial) -> Verdict | None:
    """What runs on the reference side does not raise on the other, in the forward or the backward."""
    o = trial.subject
    if o.outcome != RAISED or o.raised is None:
        return None
    # The message's first line names the fault; sizes and addresses in it are accidents.
    pattern = " < ".join((o.raised.kind, *o.raised.frames))
    detail = f"the {o.phase} raised {o.raised.kind}: {o.raised.message.splitlines()[0] if o.raised.message else ''}"
    return Verdict(Signature("compile_does_not_raise", "raises", o.phase, strip_digits(pattern)), detail)


def metadata_agrees(trial: Trial) -> Verdict | None:
    """None-ness, shape and dtype of every output and gradient are the reference's, and each lies within its storage.

    A gradient of zeros and None say the same: AOTAutograd returns zeros for leaves that only undifferentiated outputs
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
    return None


def _direction(name: str) -> str:
    return "backward" if name.endswith(".grad") else "forward"


def within_storage(tensor: torch.Tensor) -> bool:
    """Whether every element lies in the memory that the tensor owns; to read one that does not is undefined."""
    if tensor.numel() == 0:  # eager's empty slices may start behind the end
        return True
    reach = extent(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return not tensor.numel() or reach * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _describe(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def inputs_untouched(trial: Trial) -> Verdict | None:
    """Leaves and cotangents hold what they held, but for those that the reference side writes to as well, and nothing
    was written into the memory around them."""
    for name, phase in trial.subject.touched.items():
        if name not in trial.reference.touched:
            own = name.removeprefix("around ")
            what = "leaf" if any(leaf.name == own for leaf in trial.program.leaves) else "cotangent"
            if own == name:
                detail = (
                    f"{name} does not hold what it held before the {phase}: something wrote into the {what}'s storage"
                )
                return Verdict(Signature("inputs_untouched", "wrong", phase, what), detail)
            detail = f"something wrote out of bounds in the {phase}: into the memory around {own}"
            return Verdict(Signature("inputs_untouched", "wrong", phase, f"around {what}"), detail)
    return None


# ---------------------------------------------------------------- numeric claims


@dataclass(frozen=True)
class Judged:
    """One tensor's judgement: the class, and masks and values for the evidence.

    A complex tensor's real and imaginary parts stand along a last dimension.
    """

    name: str
    verdict: str
    mask: torch.Tensor
    eager: torch.Tensor
    compiled: torch.Tensor
    reference: torch.Tensor
    floor: torch.Tensor


def looks(trial: Trial) -> tuple[tuple[int, float, float], ...]:
    """(replicas, scale, factor), ever more replicas; the final one only where something may be stored."""
    return (FIRST_LOOK, SECOND_LOOK, FINAL_LOOK) if trial.final else (FIRST_LOOK, SECOND_LOOK)


def spread(trial: Trial, look: tuple[int, float, float], consistent: bool = False) -> Spread:
    """The spread that a look shows, computed once a trial."""
    replicas, scale, _ = look
    return trial.once(("spread", replicas, consistent), partial(trial.model.spread, replicas, consistent, scale))


def first_spread(trial: Trial) -> Spread:
    """The spread of the first look."""
    return spread(trial, FIRST_LOOK)


def outside(value: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """Where a value lies outside its floor. Infinities and NaN must match; an infinite floor admits everything."""
    both = torch.isfinite(value) & torch.isfinite(reference)
    apart = (value - reference).abs() > floor
    return torch.where(both, apart, (kind(value) != kind(reference)) & torch.isfinite(floor))


def _wide(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return in_parts(tensor.detach()).to(like.device, torch.float64)


def judge(trial: Trial, names: list[str]) -> Iterator[Judged]:
    """Every named tensor that lies outside its floor, with its class: wrong, eager-suspect or rounding-sensitive."""
    mine, theirs = trial.named(trial.reference), trial.named(trial.subject)
    order = list(trial.targets)
    for name in names:
        if name not in trial.targets or mine[name] is None or theirs[name] is None:
            continue
        if mine[name].shape != theirs[name].shape or not within_storage(theirs[name]):
            continue  # metadata_agrees tells
        judging = partial(_judge_one, trial, name, order.index(name), mine[name], theirs[name])
        found = trial.once(("judged", name), judging)
        if found is not None:
            yield found


def _judge_one(trial: Trial, name: str, i: int, mine: torch.Tensor, theirs: torch.Tensor) -> Judged | None:
    r = trial.model.reference[i].double()
    eager, compiled = _wide(mine, r), _wide(theirs, r)
    for look in looks(trial):
        shown = spread(trial, look)
        floor = shown.floor(FACTOR)[i]
        wrong, suspect = (outside(value, r, floor) | shown.lack(i, value) for value in (compiled, eager))
        if not bool(wrong.any() | suspect.any()):
            return _sensitive(trial, name, i, r, eager, compiled, _unit(mine))
    if bool(suspect.any()):
        return Judged(name, "eager-suspect", suspect, eager, compiled, r, floor)
    return Judged(name, "wrong", wrong, eager, compiled, r, floor)


def _unit(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point or tensor.is_complex() else 0.0


def _sensitive(
    trial: Trial, name: str, i: int, r: torch.Tensor, eager: torch.Tensor, compiled: torch.Tensor, unit: float
) -> Judged | None:
    """Explained by independent rounding: is it also explained where equal operations round equally?"""
    apart = torch.nan_to_num((compiled - eager).abs(), nan=0.0)
    # a worthwhile difference first: the second model costs as much as the first
    if not bool((apart > NOTABLE_UNITS * unit * eager.abs()).any()):
        return None
    for shown in _coherent(trial):
        floor = shown.floor(SENSITIVE_FACTOR)[i]
        mask = outside(compiled, r, floor) & ~outside(eager, r, floor)
        if not bool(mask.any()):
            return None
    return Judged(name, "rounding-sensitive", mask, eager, compiled, r, floor)


def _coherent(trial: Trial) -> Iterator[Spread]:
    """Spreads of consistent replicas, ever more of them: first those that the first look had among its own."""
    shown = first_spread(trial).coherent
    assert shown is not None
    yield shown
    yield from (spread(trial, look, consistent=True) for look in looks(trial))


def pattern(judged: Judged) -> str:
    """The shape of the difference: all-zero, constant-ratio, nonfinite, scattered or other."""
    c, r = judged.compiled[judged.mask], judged.reference[judged.mask]
    if not bool(torch.isfinite(c).all()):
        return "nonfinite"
    if bool((judged.compiled == 0).all()):
        return "all-zero"
    ratio = c / r
    if bool(torch.isfinite(ratio).all()) and float(ratio.max() - ratio.min()) <= 0.01 * float(ratio.abs().max()):
        return "constant-ratio"
    return "scattered" if int(judged.mask.sum()) * 10 < judged.mask.numel() else "other"


def compare(judged: Judged) -> Comparison:
    """The tensor at its worst element (largest excess over the floor)."""
    excess = (judged.compiled if judged.verdict != "eager-suspect" else judged.eager) - judged.reference
    excess = torch.nan_to_num(excess.abs() / judged.floor.clamp_min(1e-300), nan=torch.inf) * judged.mask
    excess = torch.where(judged.mask, torch.nan_to_num(excess, nan=torch.inf), torch.full_like(excess, -1.0))
    flat = int(excess.flatten().argmax())
    index: list[int] = []
    for size in reversed(judged.mask.shape):
        flat, rest = divmod(flat, size)
        index.insert(0, rest)
    where = tuple(index)
    return Comparison(
        judged.name,
        where,
        float(judged.eager[where]),
        float(judged.compiled[where]),
        float(judged.reference[where]),
        float(judged.floor[where]),
        int(judged.mask.sum()),
        judged.mask.numel(),
    )


CANCELLED = 1e-2  # of the absolute values: a smaller sum is what rounding left over


def proportion(judged: Judged) -> str:
    """How the values compare as a whole: one ratio of all wrong elements to their reference, or that of the sums.

    Of the sums only where it is a fraction of small numbers: a gradient that is 20/13 of what it should be in sum came
    from 20 rows instead of 13. "" where there is no such ratio.
    """
    c, r = judged.compiled, judged.reference
    if judged.verdict == "eager-suspect":
        return ""
    if pattern(judged) == "constant-ratio":
        return f"; constant ratio {fraction(float((c[judged.mask] / r[judged.mask]).median()))}"
    total, expected = float(c.sum()), float(r.sum())
    if not (math.isfinite(total) and abs(expected) > CANCELLED * float(r.abs().sum())):
        return ""
    told = fraction(total / expected)
    return f"; its sum is {told} of the reference's" if "/" in told else ""


def _numeric(trial: Trial, oracle: str, direction: str, names: list[str], nonfinite: bool) -> Verdict | None:
    if trial.subject.outcome != RAN:
        return None
    found = [j for j in judge(trial, names) if (pattern(j) == "nonfinite") == nonfinite]
    if not found:
        return None
    found.sort(key=lambda j: CLASSES.index(j.verdict))
    worst = found[0]
    comparisons = tuple(compare(j) for j in found)
    shown = comparisons[0]
    detail = (
        f"{shown.name}{list(shown.index)}: compiled {shown.compiled:.9g}, eager {shown.eager:.9g}, "
        f"float64 {shown.float64:.9g}, floor {shown.floor:.3g}; {shown.wrong} of {shown.total} elements"
        f"{proportion(worst)}"
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


# ---------------------------------------------------------------- the compiled code run once more; what it cost


def unequal(mine: dict[str, torch.Tensor | None], theirs: dict[str, torch.Tensor | None]) -> list[str]:
    """The names under which two runs gave other bits."""
    return [name for name, tensor in mine.items() if not _same_bits(tensor, theirs[name])]


def _same_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if not (within_storage(a) and within_storage(b)):
        return True  # metadata_agrees tells
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    # a copy, because one element with a stride of 2 counts as contiguous, and cannot be viewed as bytes
    return plain.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def rerun_is_identical(trial: Trial) -> Verdict | None:
    """The same compiled code gives the same bits for the same inputs, or differs by rounding where it adds in no set
    order: with atomics, or by operations of which torch says so."""
    again = trial.subject.again
    names = unequal(trial.named(trial.subject), trial.named(again)) if again is not None else []
    if again is None or not names:
        return None
    beyond = any(j.verdict == "wrong" for t in (trial, trial.judging(again)) for j in judge(t, names))
    told = {True: "adds with atomics", False: "holds no atomics", None: "was not seen"}[trial.subject.atomics]
    detail = (
        f"{', '.join(names)}: a second run on equal inputs gave other bits, {'not ' if beyond else ''}within "
        f"rounding; generated code {told}; {trial.subject.admitted or 'torch calls nothing in it nondeterministic'}"
    )
    legal = not beyond and bool(trial.subject.atomics or trial.subject.admitted)
    pattern = "beyond rounding" if beyond else "no set order" if legal else "no atomics"
    verdict = "agree" if legal else "nondeterministic"
    return Verdict(Signature("rerun_is_identical", verdict, _direction(names[-1]), pattern), detail)


# CPU seconds. Programs as they are drawn take 1 to 16, on a busy machine; the gradient of cumprod under
# torch 2.11, one node, took 30 to 40.
COMPILE_SECONDS, COMPILE_SECONDS_EACH = 25.0, 2.0


def compile_is_timely(trial: Trial) -> Verdict | None:
    """Compiling takes no more CPU time than many times what programs of so many nodes take."""
    if trial.subject.outcome != RAN:
        return None
    spent, nodes = trial.subject.cpu_seconds, len(trial.program.nodes)
    limit = COMPILE_SECONDS + COMPILE_SECONDS_EACH * nodes
    if spent <= limit:
        return None
    detail = f"compiled and run in {spent:.0f} CPU seconds; at most {limit:.0f} are expected of {nodes} nodes"
    return Verdict(Signature("compile_is_timely", "costly", "", "CPU time"), detail)


MEMORY_BYTES, MEMORY_FACTOR = 64 * 2**20, 8


def memory_is_sane(trial: Trial) -> Verdict | None:
    """At its peak the compiled code takes no more memory than a multiple of all that eager computes, kept at once."""
    again = trial.subject.again
    if trial.trace is None or again is None or again.peak is None:
        return None
    made = {
        ref.storage: trial.trace.sizes[ref.storage] * ref.dtype.itemsize for s in trial.trace.steps for ref in s.outs
    }
    limit = MEMORY_BYTES + MEMORY_FACTOR * sum(made.values())
    if again.peak <= limit:
        return None
    detail = (
        f"the compiled code takes {again.peak / 2**20:.0f} MiB at its peak; at most {limit / 2**20:.0f} are expected"
    )
    return Verdict(Signature("memory_is_sane", "costly", "", "memory"), detail)


# ---------------------------------------------------------------- what is asked for


def settings_agree(trial: Trial) -> Verdict | None:
    """What is right under the program's settings is right without them."""
    if trial.bare is None:
        return None
    other = trial.judging(trial.bare)
    for oracle in (compile_does_not_raise, metadata_agrees, no_new_nonfinite, outputs_agree, gradients_agree):
        said = oracle(other)
        if said is not None and said.signature.verdict in ("wrong", "raises") and oracle(trial) is None:
            signature = replace(said.signature, oracle="settings_agree")
            return Verdict(signature, f"without the program's settings: {said.detail}", said.comparisons)
    return None


def zero_signs_agree(trial: Trial) -> Verdict | None:
    """A zero has the sign of eager's, where no rounding could make it anything else."""
    if trial.subject.outcome != RAN:
        return None
    mine, theirs = trial.named(trial.reference), trial.named(trial.subject)
    floors = first_spread(trial).floor(FACTOR)
    for (name, ref), floor in zip(trial.targets.items(), floors, strict=True):
        if theirs[name] is None or mine[name].shape != theirs[name].shape or not ref.dtype.is_floating_point:
            continue
        eager, compiled = _wide(mine[name], floor), _wide(theirs[name], floor)
        zeros = (eager == 0) & (compiled == 0) & (floor == 0)
        other = zeros & (torch.signbit(eager) != torch.signbit(compiled))
        if bool(other.any()):
            detail = f"{name}: {int(other.sum())} of {int(zeros.sum())} zeros have another sign than eager's"
            pattern = "all" if int(other.sum()) == int(zeros.sum()) else "some"
            return Verdict(Signature("zero_signs_agree", "signed-zero", _direction(name), pattern), detail)
    return None


ORACLES: tuple[Oracle, ...] = (
    worker_survives,
    compile_does_not_raise,
    metadata_agrees,
    inputs_untouched,
    no_new_nonfinite,
    outputs_agree,
    gradients_agree,
    rerun_is_identical,
    compile_is_timely,
    memory_is_sane,
    settings_agree,
    zero_signs_agree,
)


def verdicts(trial: Trial) -> list[Verdict]:
    """What all oracles say, worst class first."""
    wanted = (oracle for oracle in ORACLES if oracle.__name__ not in ASKED or oracle.__name__ in trial.also)
    found = [v for oracle in wanted if (v := oracle(trial)) is not None]
    return sorted(found, key=lambda v: CLASSES.index(v.signature.verdict))


def detectable(trial: Trial) -> tuple[int, int]:
    """(elements, of all) of the gradients whose finite |r| exceeds 10 times the floor and that are compared."""
    order = list(trial.targets)
    compared = trial.named(trial.subject) if trial.subject.outcome == RAN else trial.targets
    floors = first_spread(trial).floor(FACTOR)
    seen = total = 0
    for name in _gradients(trial):
        if compared[name] is None:
            continue
        i = order.index(name)
        r = trial.model.reference[i].double()
        total += r.numel()
        seen += int((torch.isfinite(r) & (r.abs() > 10 * floors[i])).sum())
    return seen, total
