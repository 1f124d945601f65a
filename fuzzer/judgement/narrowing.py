"""Differences that one dropped rounding to float16 or bfloat16 explains (`rounding.narrowings`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from fuzzer.judgement.comparison import TensorVerdict, as_float64, first_spread, judge_tensors, within_storage
from fuzzer.judgement.trial import RAN, Trial
from fuzzer.judgement.verdict import NARROWING
from fuzzer.language.values import real_parts
from fuzzer.rounding.floors import FACTOR
from fuzzer.rounding.narrowings import HALF, FusedChain, Nearest, fused_chains, nearest
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.trace import is_rounded

KEPT = ("inductor.emulate_precision_casts", True)  # every rounding that the program states takes place
_STAGES = ("", "ir")  # of inductor, that drop roundings
# Units of the result: a difference counts from here; from the smaller one where a decision flips.
_MAGNIFIED, _FLIPPED = 64.0, 16.0
_UNEXPLAINED = 1 / 16  # of a difference, that may have other reasons


@dataclass(frozen=True)
class Difference:
    """A tensor of both sides, in float64.

    i  its place among the trial's targets.
    """

    i: int
    name: str
    eager: torch.Tensor
    compiled: torch.Tensor

    @property
    def apart(self) -> torch.Tensor:
        """The distance of the sides; 0 where one is not finite."""
        return torch.nan_to_num((self.compiled - self.eager).abs(), nan=0.0, posinf=0.0)

    def beyond(self, units: float, unit: float) -> torch.Tensor:
        """Where the sides differ by more than so many units of the larger one."""
        return self.apart > units * unit * torch.maximum(self.eager.abs(), self.compiled.abs())

    def near(self, mask: torch.Tensor, value: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether a value differs from another one by no more than a small part of what both sides differ by."""
        return bool(((value - other).abs() <= _UNEXPLAINED * self.apart)[mask].all())


@dataclass(frozen=True)
class Narrowed:
    """A tensor whose differences a chain explains.

    judged  of class NARROWING; its mask holds every element that differs so much.
    casts   the operations whose results are not rounded, with the dtype: the first that suffices, else all of them.
    """

    difference: Difference
    judged: TensorVerdict
    casts: tuple[str, ...]

    def explains(self, other: TensorVerdict) -> bool:
        """Whether this is all that another verdict says against the compiled tensor."""
        return other.verdict != "eager-suspect" and not bool((other.mask & ~self.judged.mask).any())


def narrowed(trial: Trial) -> dict[str, Narrowed]:
    """The tensors whose differences a dropped rounding explains, by name. Raises Unreplayable."""
    found: dict[str, Narrowed] = trial.once(("judged", "narrowed"), partial(_narrowed, trial))
    return found


def confirmed(trial: Trial) -> dict[str, Narrowed]:
    """Those of `narrowed` where a compiled run that drops nothing (`Trial.kept`) has eager's values."""
    if trial.kept is None or trial.kept.outcome != RAN:
        return {}
    kept = {d.name: d for d in _differences(trial.with_subject(trial.kept))}
    return {
        name: found
        for name, found in narrowed(trial).items()
        if name in kept and found.difference.near(found.judged.mask, kept[name].compiled, kept[name].eager)
    }


def unexplained(trial: Trial, names: list[str]) -> list[TensorVerdict]:
    """What `judge_tensors` says of these tensors, without those whose every element there is `confirmed`."""
    known = confirmed(trial)
    return [j for j in judge_tensors(trial, names) if not (j.name in known and known[j.name].explains(j))]


def _narrowed(trial: Trial) -> dict[str, Narrowed]:
    subject, trace = trial.place.subject, trial.trace
    dropping = subject.compiler == "inductor" and (subject.stage in _STAGES or trial.subject.built)
    if trace is None or not dropping or KEPT in trial.code.settings or trial.subject.outcome != RAN:
        return {}
    if not any(ref.dtype in HALF for step in trace.steps for ref in step.results) or trial.draws_apart:
        return {}
    chains = fused_chains(trace.steps)
    differing = [d for d in _differences(trial) if bool(d.beyond(_FLIPPED, _unit(trial, d)).any())] if chains else []
    if not differing:
        return {}
    explained: dict[str, Narrowed] = {}
    rounded = _Replays(trial)
    as_eager = rounded().targets
    differing = [d for d in differing if d.near(d.beyond(_MAGNIFIED, _unit(trial, d)), as_eager[d.i], d.eager)]
    for chain in chains:
        for d in differing:
            if d.name not in explained and (found := _explained(trial, chain, d, rounded)) is not None:
                explained[d.name] = found
    return explained


def _differences(trial: Trial) -> Iterator[Difference]:
    """The tensors that both sides have in one shape and that depend on no operation unknown to the model."""
    mine, theirs = trial.named(trial.reference), trial.named(trial.subject)
    for i, name in enumerate(trial.targets):
        a, b = mine[name], theirs[name]
        if name in trial.unmodelled or a is None or b is None or a.shape != b.shape or not within_storage(b):
            continue
        like = trial.model.reference[i]
        yield Difference(i, name, as_float64(a, like), as_float64(b, like))


def _unit(trial: Trial, difference: Difference) -> float:
    ref = trial.targets[difference.name]
    return torch.finfo(ref.dtype.to_real()).eps if is_rounded(ref) else 0.0


class _Rounded(NamedTuple):
    """The targets of a replay as they are stored, in float64, and the results of its steps that decide."""

    targets: list[torch.Tensor]
    decided: dict[int, list[torch.Tensor]]


class _Replays:
    """The replays of a trial that round to the nearest numbers, each made once."""

    def __init__(self, trial: Trial):
        self.trial = trial
        self.made: dict[tuple[FusedChain | None, frozenset[int]], _Rounded] = {}

    def __call__(self, chain: FusedChain | None = None, dropped: Set[int] = frozenset()) -> _Rounded:
        """The replay without the roundings of these steps of a chain."""
        key = chain, frozenset(dropped)
        if key not in self.made:
            model, rounding = self.trial.model, Nearest(*key)
            replay = Replay(model.trace, rounding, model.device).run()  # type: ignore[arg-type]
            targets = [real_parts(nearest(replay.value(ref), ref.dtype)).double() for ref in model.targets]
            self.made[key] = _Rounded(targets, rounding.decided)
        return self.made[key]


def _explained(trial: Trial, chain: FusedChain, d: Difference, replayed: _Replays) -> Narrowed | None:
    """The tensor's verdict if dropping the chain's roundings changes the elements that differ notably and no other, and
    by as much."""
    narrow, wide = replayed(), replayed(chain, {*chain.casts, *chain.moves})
    pairs = ((a, b) for n in narrow.decided for a, b in zip(narrow.decided[n], wide.decided[n], strict=True))
    flips = not all(torch.equal(a, b) for a, b in pairs)
    told = Difference(d.i, d.name, narrow.targets[d.i], wide.targets[d.i])
    mask, expected = (one.beyond(_FLIPPED if flips else _MAGNIFIED, _unit(trial, d)) for one in (d, told))
    fits = d.near(mask | expected, told.eager, d.eager) and d.near(mask | expected, told.compiled, d.compiled)
    if not (bool(mask.any()) and fits):
        return None
    floor = first_spread(trial).floor(d.i, FACTOR)
    judged = TensorVerdict(d.name, NARROWING, mask, d.eager, d.compiled, trial.model.reference[d.i].double(), floor)

    def decides(cast: int) -> bool:
        return d.near(mask, replayed(chain, chain.moves | {cast}).targets[d.i], d.compiled)

    return Narrowed(d, judged, tuple(_told(trial, n) for n in _deciding(chain, decides)))


def _deciding(chain: FusedChain, decides: Callable[[int], bool]) -> tuple[int, ...]:
    """The first cast whose rounding, dropped alone, has the same effect; all of them if none has."""
    alone = next((cast for cast in chain.casts if decides(cast)), None)
    return chain.casts if alone is None else (alone,)


def _told(trial: Trial, number: int) -> str:
    assert trial.trace is not None
    step = trial.trace.steps[number]
    dtype = next(ref.dtype for ref in step.results if ref.dtype in HALF)
    return f"{step.name} to {str(dtype).removeprefix('torch.')}"
