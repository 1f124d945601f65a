"""Legal differences other than rounding: values that are finite on one side alone, and zeros with another sign that
the program's results depend on."""

from __future__ import annotations

from typing import Any

import torch

from fuzzer.judgement.comparison import looks, spread
from fuzzer.judgement.trial import Trial
from fuzzer.language.values import real_parts
from fuzzer.rounding.perturb import picks_a_zero
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.scalars import round_to
from fuzzer.rounding.trace import widened

_WAYS = 8  # replicas of one remainder share range and scalars: only (relative) roundings differ among them
_AS_REFERENCE = (2, 6)  # remainders whose replicas have the reference's range and scalars


def left_to_range(trial: Trial) -> list[torch.Tensor]:
    """For each target, the elements whose finiteness depends on the range of an intermediate and not on rounding:
    replicas with the same range agree about it, replicas with different ranges do not. Raises Unreplayable."""
    look = looks(trial)[-1]
    return trial.once(("range", look), lambda: _left_to_range(trial, look))  # type: ignore[no-any-return]


def _left_to_range(trial: Trial, look: tuple[int, float, float]) -> list[torch.Tensor]:
    replicas, scale, _ = look
    ways: dict[int, list[torch.Tensor]] = {way: _finite(trial.model.reference) for way in _AS_REFERENCE}
    agreed = [torch.ones_like(finite) for finite in ways[_AS_REFERENCE[0]]]
    for seed in range(replicas):
        shown = _finite(trial.model.replica(seed, False, scale, absolute=False))
        first = ways.setdefault(seed % _WAYS, shown)
        agreed = [a & (f == s) for a, f, s in zip(agreed, first, shown, strict=True)]
    return [a & unstable for a, unstable in zip(agreed, spread(trial, look).unstable, strict=True)]


def _finite(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.isfinite(tensor) for tensor in tensors]


def sees_zero_sign(trial: Trial, name: str) -> bool:
    """Whether any other result would differ if this result's zeros had the other sign. Raises Unreplayable."""
    flipped = Replay(trial.model.trace, _Flipped(trial.targets[name].storage), trial.model.device).run()  # type: ignore[arg-type]
    plain = Replay(trial.model.trace, device=trial.model.device).run()
    others = [ref for other, ref in trial.targets.items() if other != name and ref.dtype.is_floating_point]
    return any(_differ(flipped.value(ref), plain.value(ref)) for ref in others)


def picked_zeros(trial: Trial, i: int) -> torch.Tensor:
    """Where a zero of the i-th target has another sign if extrema take the other one of two zeros; a mask of the
    target's shape, of complex numbers by parts. Raises Unreplayable."""
    model = trial.model
    other = Replay(model.trace, _OtherPick(), model.device).run()  # type: ignore[arg-type]
    return real_parts(other.value(model.targets[i])).signbit() != model.reference[i].signbit()


def _differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a != b) & ~(a.isnan() & b.isnan())).any())


class _Unchanged:
    """A perturbation of a replay that changes nothing."""

    def initial(self, flat: torch.Tensor) -> torch.Tensor:
        return widened(flat)

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        return round_to(value, torch.float32)

    def inputs(self, number: int, step: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return args, kwargs

    def results(self, number: int, step: Any, args: Any, refs: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        return values


class _Flipped(_Unchanged):
    """Flips the sign of zeros written to one storage."""

    def __init__(self, storage: int):
        self.storage = storage

    def results(self, number: int, step: Any, args: Any, refs: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        here = (ref.storage == self.storage and ref.dtype.is_floating_point for ref in refs)
        return [torch.where(v == 0, -v, v) if flips else v for flips, v in zip(here, values, strict=True)]


class _OtherPick(_Unchanged):
    """Flips the sign of zeros that an extremum takes where zeros of both signs meet."""

    def results(self, number: int, step: Any, args: Any, refs: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        if not picks_a_zero(step, args):
            return values
        return [torch.where(v == 0, -v, v) if v.is_floating_point() else v for v in values]
