"""Floors: the largest legal distance of a result from the reference, element by element, from the spread of
replicas."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import torch

from fuzzer.language.devices import HOST, device_row
from fuzzer.language.values import real_parts
from fuzzer.rounding.accumulations import Accumulations
from fuzzer.rounding.attentions import attentions
from fuzzer.rounding.chains import chains
from fuzzer.rounding.perturb import Rounder
from fuzzer.rounding.replay import Replay, Unreplayable
from fuzzer.rounding.trace import Ref, Trace

# Looks: (replicas, scale of the units, factor on the largest of the replicas' deviations). A later look repeats the
# replicas of an earlier one and adds more, so its floors are nowhere lower: it flags nothing that the first look
# dismisses. A difference that survives the second look is a suspect; it may be stored only if it survives the final
# one, which happens to one program of legal results in a million at most. At least 256 replicas are needed, because
# rounding may flip decisions: for sums of many roundings 64 would do (docs/rounding.md,
# tests/rounding/test_false_alarms.py).
SCALE, FACTOR = 2.0, 2.0
FIRST_LOOK, SECOND_LOOK, FINAL_LOOK = ((replicas, SCALE, FACTOR) for replicas in (8, 32, 256))


class Alternatives:
    """The values of a tensor of integers or flags in the replicas, element by element.

    For int64, the dtype of positions, three or more values mean that anything is legal: the number of one position says
    nothing about the other possible ones.
    """

    def __init__(self, reference: torch.Tensor):
        self.ordered = reference.dtype != torch.int64
        self.reference = self.low = self.high = self.other = reference.double()
        self.many = torch.zeros_like(self.low, dtype=torch.bool)

    def add(self, value: torch.Tensor) -> None:
        value = value.double()
        self.other = torch.where(self.other == self.reference, value, self.other)
        self.many = self.many | (value != self.other) & (value != self.reference)
        self.low, self.high = torch.minimum(self.low, value), torch.maximum(self.high, value)

    def lack(self, value: torch.Tensor) -> torch.Tensor:
        """Where a value equals none of these; with three and more, where it is not between two of them."""
        beyond = ((value < self.low) | (value > self.high)) & self.ordered
        return torch.where(self.many, beyond, (value != self.reference) & (value != self.other))


@dataclass
class Spread:
    """Reference and largest deviation, element by element, of the requested tensors; complex ones by parts.

    unstable  elements whose replicas disagree about being finite, infinite or NaN.
    coherent  the spread of the consistent replicas among these.
    shown     the values in replicas of the tensors that are not floating, by their numbers.
    """

    reference: list[torch.Tensor]
    deviation: list[torch.Tensor]
    unstable: list[torch.Tensor]
    dtypes: list[torch.dtype]
    coherent: Spread | None = None
    shown: dict[int, Alternatives] = field(default_factory=dict)

    def add(self, values: list[torch.Tensor]) -> None:
        """Include a replica."""
        for i, (value, r) in enumerate(zip(values, self.reference, strict=True)):
            if not r.dtype.is_floating_point:
                self.deviation[i] = torch.where(value != r, math.inf, self.deviation[i])
                self.shown.setdefault(i, Alternatives(r)).add(value)
                continue
            off = (value - r).abs()
            if not math.isfinite(float(off.sum())):  # mostly both are finite
                finite = torch.isfinite(value) & torch.isfinite(r)
                self.unstable[i] |= kind(value) != kind(r)
                off = torch.where(finite, off, torch.zeros_like(r))
            self.deviation[i] = torch.maximum(self.deviation[i], off)

    def copy(self) -> Spread:
        """The same spread, to which replicas may be added while this one stays as it is."""
        return replace(
            self,
            deviation=list(self.deviation),
            unstable=[mask.clone() for mask in self.unstable],
            coherent=self.coherent and self.coherent.copy(),
            shown={i: copy(values) for i, values in self.shown.items()},
        )

    def lack(self, i: int, value: torch.Tensor) -> torch.Tensor:
        """Where the i-th tensor's value, an integer or a flag, occurs in no replica; False for floats."""
        return self.shown[i].lack(value) if i in self.shown else torch.zeros_like(value, dtype=torch.bool)

    def floors(self, factor: float) -> list[torch.Tensor]:
        """The floors of all tensors."""
        return [self.floor(i, factor) for i in range(len(self.reference))]

    def floor(self, i: int, factor: float) -> torch.Tensor:
        """The i-th tensor's floor: factor * deviation; infinite where replicas disagree about being finite.

        Where there is any deviation, the floor includes underflow: another association of the same product may lose a
        factor to it that is then scaled up, by at most 1 / eps before the result would be better rounded than that.
        """
        dev = self.deviation[i]
        floor = torch.where(dev > 0, (dev * factor).clamp_min(drowned(self.dtypes[i])), dev)
        return torch.where(self.unstable[i], math.inf, floor)


# The spreads that this process computed for the models that it asked last, by what they depend on. A diagnosis runs one
# program many times: eager does the same each time, and where the difference stays, every look is asked again.
_MODELS_KEPT = 2
_kept: dict[tuple[object, ...], dict[object, Spread]] = {}


class Model:
    """The rounding model of one trace: one reference, and floors on request. Raises Unreplayable.

    device  the accelerator's where any side ran there.
    """

    def __init__(self, trace: Trace, targets: list[Ref], device: str = "cpu"):
        self.targets, self.approximate = targets, device_row(device).approximate
        try:
            # small float64 operations are far quicker here than on a GPU shared by many processes
            self._refer(trace.on("cpu"), "cpu")
        except Unreplayable:
            if device_row(device) is HOST:
                raise
            self._refer(trace, device)  # some of eager's kernels exist only on an accelerator

    def _refer(self, trace: Trace, device: str) -> None:
        self.trace, self.device = trace, torch.device(device)
        self.found = Accumulations(chains=chains(trace.steps), attentions=attentions(trace.steps))
        replay = Replay(trace, self.found, self.device).run()  # type: ignore[arg-type]
        self.reference = [real_parts(replay.value(ref)).clone() for ref in self.targets]

    def known(self, key: object, compute: Callable[[], Spread]) -> Spread:
        """compute() the first time; afterwards the stored spread, also for another model of an equal trace. A caller
        that adds replicas copies the spread first."""
        spreads = self._spreads
        if key not in spreads:
            spreads[key] = compute()
        return spreads[key]

    @functools.cached_property
    def _spreads(self) -> dict[object, Spread]:
        own = (self.trace.digest(), *self.targets, self.device, self.approximate)
        _kept[own] = found = _kept.pop(own, {})
        while len(_kept) > _MODELS_KEPT:
            del _kept[next(iter(_kept))]
        return found

    def replica(self, seed: int, consistent: bool, scale: float, absolute: bool = True) -> list[torch.Tensor]:
        """The targets with random roundings; see `rounder`."""
        rounder = self.rounder(seed, consistent, scale, absolute)
        replay = Replay(self.trace, rounder, self.device).run()  # type: ignore[arg-type]
        return [real_parts(replay.value(ref)) for ref in self.targets]

    def rounder(self, seed: int, consistent: bool, scale: float, absolute: bool = True) -> Rounder:
        """The perturbation of a replica; `absolute`: see `Rounder`.

        Every fourth independent replica is also consistent: real kernels round equal operands equally, and where many
        equal summands have the same error, independent ones would cancel.
        """
        consistent = consistent or seed % 4 == 3
        return Rounder(seed, self.found, self.device, consistent, scale, self.approximate, absolute)

    def spread(
        self, replicas: int, consistent: bool = False, scale: float = 1.0, start: int = 0, before: Spread | None = None
    ) -> Spread:
        """Largest deviation over replicas `start` .. `start + replicas`, and those of the spread `before`."""
        found = still(self.reference, self.targets) if before is None else before.copy()
        found.coherent = found.coherent or still(self.reference, self.targets)
        for seed in range(start, start + replicas):
            values = self.replica(seed, consistent, scale)
            found.add(values)
            if consistent or seed % 4 == 3:
                found.coherent.add(values)
        return found


def still(reference: list[torch.Tensor], refs: Sequence[Ref]) -> Spread:
    """The spread, without any replica, of these tensors with these values."""
    deviation = [torch.zeros_like(r, dtype=torch.float64) for r in reference]
    unstable = [torch.zeros(r.shape, dtype=torch.bool, device=r.device) for r in reference]
    return Spread(reference, deviation, unstable, [ref.dtype.to_real() for ref in refs])


def drowned(dtype: torch.dtype) -> float:
    """The smallest floor of an element that deviates (`Spread.floor`)."""
    if not dtype.is_floating_point or dtype == torch.float16:
        return 0.0
    info = torch.finfo(dtype)
    return float(info.smallest_normal) / float(torch.finfo(torch.float32).eps)


def kind(value: torch.Tensor) -> torch.Tensor:
    """0 for a finite number, 1 and -1 for the infinities, 2 for NaN, element by element."""
    infinite = torch.where(torch.isinf(value), value.sign(), 0.0)
    return torch.where(torch.isnan(value), 2.0, infinite)
