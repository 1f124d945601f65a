"""ORACLES: pure functions Trial -> Verdict | None. A new oracle is one function and one line in the list.

The name states the claim. Numeric claims are decided by the rounding model (`rounding`), never by a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from fuzzer.execution.messages import DIED, RAISED, RAN, TIMED_OUT, Trial
from fuzzer.picture import fraction
from fuzzer.program import extent
from fuzzer.rounding import FINAL_LOOK, FIRST_FACTOR, FIRST_REPLICAS, SECOND_LOOK, Spread, kind
from fuzzer.values import in_parts
from fuzzer.verdict import CLASSES, Comparison, Signature, Verdict, strip_digits

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
        if other is not None and not _within_storage(other):
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


def _within_storage(tensor: torch.Tensor) -> bool:
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


def first_spread(trial: Trial) -> Spread:
    """The spread of the first look, computed once a trial."""
    return trial.once("first", lambda: trial.model.spread(FIRST_REPLICAS))


def looks(trial: Trial) -> tuple[tuple[int, float, float], ...]:
    """(replicas, scale, factor) of the looks after the first; the final one only where something may be stored."""
    return (SECOND_LOOK, FINAL_LOOK) if trial.final else (SECOND_LOOK,)


def _stages(trial: Trial) -> Iterator[tuple[Spread, float]]:
    """Ever closer looks: more replicas, at last with doubled units. Each is computed only when asked for."""
    yield first_spread(trial), FIRST_FACTOR
    for replicas, scale, factor in looks(trial):
        yield trial.once(("stage", replicas), partial(trial.model.spread, replicas, scale=scale)), factor


def _outside(value: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
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
        if mine[name].shape != theirs[name].shape or not _within_storage(theirs[name]):
            continue  # metadata_agrees tells
        judging = partial(_judge_one, trial, name, order.index(name), mine[name], theirs[name])
        found = trial.once(("judged", name), judging)
        if found is not None:
            yield found


def _judge_one(trial: Trial, name: str, i: int, mine: torch.Tensor, theirs: torch.Tensor) -> Judged | None:
    r = trial.model.reference[i].double()
    eager, compiled = _wide(mine, r), _wide(theirs, r)
    for spread, factor in _stages(trial):
        floor = spread.floor(factor)[i]
        wrong, suspect = _outside(compiled, r, floor), _outside(eager, r, floor)
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
    for replicas, scale in ((FIRST_REPLICAS, 1.0), *((n, s) for n, s, _ in looks(trial))):
        spread = trial.once(("consistent", replicas), partial(trial.model.spread, replicas, True, scale))
        floor = spread.floor(SENSITIVE_FACTOR)[i]
        mask = _outside(compiled, r, floor) & ~_outside(eager, r, floor)
        if not bool(mask.any()):
            return None
    return Judged(name, "rounding-sensitive", mask, eager, compiled, r, floor)


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


ORACLES: tuple[Oracle, ...] = (
    worker_survives,
    compile_does_not_raise,
    metadata_agrees,
    inputs_untouched,
    no_new_nonfinite,
    outputs_agree,
    gradients_agree,
)


def verdicts(trial: Trial) -> list[Verdict]:
    """What all oracles say, worst class first."""
    found = [v for oracle in ORACLES if (v := oracle(trial)) is not None]
    return sorted(found, key=lambda v: CLASSES.index(v.signature.verdict))


def detectable(trial: Trial) -> tuple[int, int]:
    """(elements, of all) of the gradients whose finite |r| exceeds 10 times the floor and that are compared."""
    order = list(trial.targets)
    compared = trial.named(trial.subject) if trial.subject.outcome == RAN else trial.targets
    floors = first_spread(trial).floor(FIRST_FACTOR)
    seen = total = 0
    for name in _gradients(trial):
        if compared[name] is None:
            continue
        i = order.index(name)
        r = trial.model.reference[i].double()
        total += r.numel()
        seen += int((torch.isfinite(r) & (r.abs() > 10 * floors[i])).sum())
    return seen, total
