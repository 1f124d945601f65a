"""Whether tensors agree: the elements outside the rounding model's floors, the class, and the worst element.

The model (`fuzzer.rounding`) decides everything here, never a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from fuzzer.judgement.fraction import fraction
from fuzzer.judgement.trial import Trial
from fuzzer.judgement.verdict import ELEMENTS, SUMS, WORST, Comparison
from fuzzer.language.program import extent
from fuzzer.language.values import real_parts
from fuzzer.rounding.floors import FACTOR, FINAL_LOOK, FIRST_LOOK, SECOND_LOOK, Spread, kind

# A deviation counts as rounding-sensitive only this many times beyond the spread of consistent rounding: the class is
# for results that the model calls stable and that are not, not for the edge of a distribution.
_SENSITIVE_FACTOR = 64.0
_NOTABLE_UNITS = 16.0  # units of the result; smaller differences of eager and compiled are attributed to no model


@dataclass(frozen=True)
class TensorVerdict:
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
    """(replicas, scale, factor), ever more replicas; the final look only where a finding may be stored."""
    return (FIRST_LOOK, SECOND_LOOK, FINAL_LOOK) if trial.final else (FIRST_LOOK, SECOND_LOOK)


def spread(trial: Trial, look: tuple[int, float, float], consistent: bool = False) -> Spread:
    """The spread of a look. It is computed once for all trials of equal traces (`Model.known`), and goes on from the
    spread of the look before."""
    return trial.model.known((look, consistent), partial(_spread, trial, look, consistent))


def _spread(trial: Trial, look: tuple[int, float, float], consistent: bool) -> Spread:
    replicas, scale, _ = look
    fewer = [other for other in looks(trial) if other[0] < replicas]
    if not fewer:
        return trial.model.spread(replicas, consistent, scale)
    start = fewer[-1][0]
    return trial.model.spread(replicas - start, consistent, scale, start, spread(trial, fewer[-1], consistent))


def first_spread(trial: Trial) -> Spread:
    """The spread of the first look."""
    return spread(trial, FIRST_LOOK)


def outside_floor(value: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """Where a value lies outside its floor. Infinities and NaN must match; an infinite floor admits everything."""
    both = torch.isfinite(value) & torch.isfinite(reference)
    apart = (value - reference).abs() > floor
    return torch.where(both, apart, (kind(value) != kind(reference)) & torch.isfinite(floor))


def as_float64(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor in the form of the model's references: in float64, on their device, a complex tensor in parts."""
    return real_parts(tensor.detach()).to(like.device, torch.float64)


def judge_tensors(trial: Trial, names: list[str]) -> Iterator[TensorVerdict]:
    """Every named tensor that lies outside its floor, with its class: wrong, eager-suspect or rounding-sensitive."""
    if trial.draws_apart:
        return
    mine, theirs = trial.named(trial.reference), trial.named(trial.subject)
    order = list(trial.targets)
    for name in names:
        if name not in trial.targets or mine[name] is None or theirs[name] is None:
            continue
        if mine[name].shape != theirs[name].shape or not within_storage(theirs[name]):
            continue  # metadata_agrees reports it
        judging = partial(_judge_one, trial, name, order.index(name), mine[name], theirs[name])
        found = trial.once(("judged", name), judging)
        if found is not None:
            yield found


def infinite_for_nan(compiled: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Where opposite infinities met in eager and in the reference, and the compiled side added in another order."""
    return torch.isinf(compiled) & torch.isnan(eager) & torch.isnan(reference)


# Of eager's own largest error, or of the result's unit if that is larger: the largest error that a compiled tensor may
# have where the model does not know an operation behind it (docs/python.md has the measurement).
_UNMODELLED_FACTOR = 64.0


def unmodelled_floor(trial: Trial, name: str, i: int) -> torch.Tensor:
    """The floor of target number i, which depends on an operation unknown to the model: a multiple of `eagers_error`,
    the same for all elements."""
    return torch.full_like(trial.model.reference[i].double(), _UNMODELLED_FACTOR * eagers_error(trial, name, i))


def eagers_error(trial: Trial, name: str, i: int) -> float:
    """The largest error of eager's target number i against float64, or a unit of its largest number if that is more."""
    r, mine = trial.model.reference[i].double(), trial.named(trial.reference)[name]
    return max(largest(as_float64(mine, r) - r), _unit(mine) * largest(r))


def largest(tensor: torch.Tensor) -> float:
    """The largest absolute value among the finite ones; 0.0 where there is none."""
    return float(tensor.nan_to_num(0, 0, 0).abs().max()) if tensor.numel() else 0.0


def _judge_one(trial: Trial, name: str, i: int, mine: torch.Tensor, theirs: torch.Tensor) -> TensorVerdict | None:
    r = trial.model.reference[i].double()
    eager, compiled = as_float64(mine, r), as_float64(theirs, r)
    if name in trial.unmodelled:
        floor = unmodelled_floor(trial, name, i)
        wrong = outside_floor(compiled, r, floor) & outside_floor(compiled, eager, floor)
        return TensorVerdict(name, "unmodelled", wrong, eager, compiled, r, floor) if bool(wrong.any()) else None
    for look in looks(trial):
        shown = spread(trial, look)
        floor = shown.floor(i, FACTOR)
        wrong, suspect = (outside_floor(value, r, floor) | shown.lack(i, value) for value in (compiled, eager))
        wrong &= ~infinite_for_nan(compiled, eager, r)
        if not bool(wrong.any() | suspect.any()):
            return _sensitive(trial, name, i, r, eager, compiled, _unit(mine))
    if bool(suspect.any()):
        return TensorVerdict(name, "eager-suspect", suspect, eager, compiled, r, floor)
    return TensorVerdict(name, "wrong", wrong, eager, compiled, r, floor)


def _unit(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point or tensor.is_complex() else 0.0


def _sensitive(
    trial: Trial, name: str, i: int, r: torch.Tensor, eager: torch.Tensor, compiled: torch.Tensor, unit: float
) -> TensorVerdict | None:
    """The verdict of an element that independent rounding explains and consistent rounding does not; None where both
    do."""
    apart = torch.nan_to_num((compiled - eager).abs(), nan=0.0)
    # only for a notable difference, since the second model costs as much as the first
    if not bool((apart > _NOTABLE_UNITS * unit * eager.abs()).any()):
        return None
    for shown in _coherent(trial):
        floor = shown.floor(i, _SENSITIVE_FACTOR)
        mask = outside_floor(compiled, r, floor) & ~outside_floor(eager, r, floor)
        if not bool(mask.any()):
            return None
    return TensorVerdict(name, "rounding-sensitive", mask, eager, compiled, r, floor)


def _coherent(trial: Trial) -> Iterator[Spread]:
    """Spreads of consistent replicas, ever more of them, those of the first look first."""
    shown = first_spread(trial).coherent
    assert shown is not None
    yield shown
    yield from (spread(trial, look, consistent=True) for look in looks(trial))


def pattern(judged: TensorVerdict) -> str:
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


def worst_element(judged: TensorVerdict) -> Comparison:
    """The comparison at a tensor's worst element (largest excess over the floor)."""
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


_CANCELLED = 1e-2  # of the sum of absolute values: a smaller sum is a remainder of rounding


def ratio_text(judged: TensorVerdict) -> str:
    """The relation of the values as a whole: the one ratio of all wrong elements to their reference, or that of the
    sums.

    The ratio of the sums is given only where it is a fraction of small numbers: a gradient whose sum is 20/13 of the
    right one came from 20 rows instead of 13. "" where there is no such ratio.
    """
    c, r = judged.compiled, judged.reference
    if judged.verdict == "eager-suspect":
        return ""
    if pattern(judged) == "constant-ratio":
        return f"; constant ratio {fraction(float((c[judged.mask] / r[judged.mask]).median()))}"
    total, expected = float(c.sum()), float(r.sum())
    if not (math.isfinite(total) and abs(expected) > _CANCELLED * float(r.abs().sum())):
        return ""
    told = fraction(total / expected)
    return f"; its sum is {told} of the reference's" if "/" in told else ""


def ratios(judged: TensorVerdict) -> dict[str, float]:
    """The ratios of the wrong side to the right one, by quantity (`verdict.ELEMENTS`, SUMS, WORST), where finite."""
    suspect = judged.verdict == "eager-suspect"
    wrong, right = (judged.eager, judged.reference) if suspect else (judged.compiled, judged.eager)
    worst = worst_element(judged).index
    found = {WORST: float(wrong[worst] / right[worst])}
    if pattern(judged) in ("constant-ratio", "all-zero") and not suspect:
        found[ELEMENTS] = float((wrong[judged.mask] / right[judged.mask]).median())
    total, expected = float(wrong.sum()), float(right.sum())
    if abs(expected) > _CANCELLED * float(right.abs().sum()):
        found[SUMS] = total / expected
    return {kind: ratio for kind, ratio in found.items() if math.isfinite(ratio)}


def within_storage(tensor: torch.Tensor) -> bool:
    """Whether every element lies in the memory that the tensor owns; reading an element outside is undefined."""
    if tensor.numel() == 0:  # eager's empty slices may start behind the end
        return True
    reach = extent(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return not tensor.numel() or reach * tensor.element_size() <= tensor.untyped_storage().nbytes()
