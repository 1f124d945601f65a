"""Differences that one dropped rounding to float16 or bfloat16 explains (`rounding.narrowings`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

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
        """Whether this is all that another verdict says of the tensor."""
        return not bool((other.mask & ~self.judged.mask).any())


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


class _Replays:
    """The replays of a trial that round to the nearest numbers, each made once."""

    def __init__(self, trial: Trial):
        self.trial = trial
        self.made: dict[tuple[FusedChain, frozenset[int]], tuple[Nearest, list[torch.Tensor]]] = {}

    def __call__(self, chain: FusedChain, dropped: frozenset[int]) -> tuple[Nearest, list[torch.Tensor]]:
        """The replay without these steps' roundings, and its targets as they are stored."""
        if (chain, dropped) not in self.made:
            model, rounding = self.trial.model, Nearest(chain, dropped)
            replay = Replay(model.trace, rounding, model.device).run()  # type: ignore[arg-type]
            targets = [real_parts(nearest(replay.value(ref), ref.dtype)) for ref in model.targets]
            self.made[chain, dropped] = rounding, targets
        return self.made[chain, dropped]


def _explained(trial: Trial, chain: FusedChain, d: Difference, replayed: _Replays) -> Narrowed | None:
    """The tensor's verdict if all that differs notably there differs since the chain's roundings were dropped."""
    as_eager, narrow = replayed(chain, frozenset())
    as_compiled, wide = replayed(chain, frozenset(chain.casts) | chain.moves)
    flips = any(
        not torch.equal(a, b)
        for n in as_eager.decided
        for a, b in zip(as_eager.decided[n], as_compiled.decided[n], strict=True)
    )
    mask = d.beyond(_FLIPPED if flips else _MAGNIFIED, _unit(trial, d))
    held = narrow[d.i].double()
    if not bool(mask.any()) or not d.near(mask, held, d.eager) or not d.near(mask, wide[d.i].double(), d.compiled):
        return None
    floor = first_spread(trial).floor(d.i, FACTOR)
    judged = TensorVerdict(d.name, NARROWING, mask, d.eager, d.compiled, trial.model.reference[d.i].double(), floor)

    def decides(cast: int) -> bool:
        return d.near(mask, replayed(chain, chain.moves | {cast})[1][d.i].double(), d.compiled)

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
