"""The derivative of a trace's forward, found without its backward.

The forward is replayed in float64 as a function of the leaves: one-sided and central differences over shrinking steps,
each extrapolated to step 0 (Richardson 1911; Ridders 1982), and forward-mode AD where every operation supports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch.autograd import forward_ad

from fuzzer.language.values import real_parts
from fuzzer.rounding.replay import Replay, Unreplayable
from fuzzer.rounding.trace import Ref, Step, Trace, widened

# Additions to the storages of a trace, by number: flat, float64 or complex128.
Direction = Mapping[int, torch.Tensor]

RATIO = 4.0
STEPS = tuple(RATIO**-k for k in range(2, 15))  # of each element's own size: from 2**-4 to 2**-28, below float32's unit
GLANCE = (2.0**-8, 2.0**-10, 2.0**-12)
NOISE = 2.0**-48  # of the terms, in a difference of two sums: some 30 roundings
# Over these steps, rounding of the values dominates the change.
QUIET = (2.0**-50, 2.0**-51, 2.0**-52)
POWERS_ONE_SIDED, POWERS_CENTRAL = (1, 2), (2, 4)  # of the step, in the error of a difference quotient
CONTRADICTIONS = 2  # smaller steps needed to contradict an extrapolation
DUAL_ERROR = 1e-13  # of the terms of forward-mode AD's sum: some hundred roundings


@dataclass(frozen=True)
class Limit:
    """The limit of difference quotients and its possible error, infinite where they do not settle."""

    value: float
    error: float


@dataclass(frozen=True)
class Slope:
    """A derivative along a direction: from behind, from ahead, central, and forward-mode AD's, if any."""

    left: Limit
    right: Limit
    central: Limit
    dual: Limit | None

    @property
    def smooth(self) -> bool:
        """Whether the one-sided derivatives agree."""
        return abs(self.left.value - self.right.value) <= self.left.error + self.right.error

    @property
    def confirmed(self) -> bool:
        """Whether forward-mode AD agrees with the differences."""
        return self.dual is not None and abs(self.dual.value - self.central.value) <= self.central.error

    @property
    def best(self) -> Limit:
        """The most exact value: forward-mode AD's where the differences confirm it."""
        if self.dual is not None and self.confirmed and self.dual.error < self.central.error:
            return self.dual
        return self.central


class Forward:
    """The sum of outputs times their weights, as a float64 function of the contents of a trace's storages.

    outputs   the Refs of outputs, each with the Ref of its weights (its cotangent).
    Raises Unreplayable.
    """

    def __init__(self, trace: Trace, outputs: Sequence[tuple[Ref, Ref]], device: torch.device):
        self.trace, self.device = replace(trace, steps=needed(trace, [out for out, _ in outputs])), device
        self.outputs = [out for out, _ in outputs]
        start = Replay(self.trace, device=device)
        self.weights = [real_parts(start.value(weight)) for _, weight in outputs]
        self.here = self.at({}, 0.0)

    def at(self, direction: Direction, step: float) -> list[torch.Tensor]:
        """The outputs after a step along the direction, complex ones as their parts."""
        replay = Replay(moved(self.trace, direction, step), device=self.device).run()
        return [real_parts(replay.value(out)).clone() for out in self.outputs]

    def change(self, ahead: Sequence[torch.Tensor], behind: Sequence[torch.Tensor]) -> float:
        """The change of the weighted sum from one set of outputs to another."""
        return sum(_weighted(a - b, w) for a, b, w in zip(ahead, behind, self.weights, strict=True))

    def slope(self, direction: Direction) -> Slope:
        """The derivative along a direction. Raises Unreplayable."""
        noise = max(abs(self.change(self.at(direction, step), self.here)) for step in QUIET)
        right = [self.change(self.at(direction, h), self.here) / h for h in STEPS]
        left = [self.change(self.here, self.at(direction, -h)) / h for h in STEPS]
        central = [(a + b) / 2 for a, b in zip(left, right, strict=True)]
        return Slope(
            settled(left, POWERS_ONE_SIDED, noise),
            settled(right, POWERS_ONE_SIDED, noise),
            settled(central, POWERS_CENTRAL, noise),
            self.dual(direction),
        )

    def glance(self, direction: Direction) -> Limit:
        """The derivative by three central differences: cheap, and wrong where the function is not smooth. Raises
        Unreplayable."""
        size = sum(_weighted(out.abs(), w.abs()) for out, w in zip(self.here, self.weights, strict=True))
        coarse = [self.change(self.at(direction, h), self.at(direction, -h)) / (2 * h) for h in GLANCE]
        fine = [(RATIO**2 * b - a) / (RATIO**2 - 1) for a, b in pairwise(coarse)]
        value = (RATIO**4 * fine[1] - fine[0]) / (RATIO**4 - 1)
        return Limit(value, abs(value - fine[1]) + NOISE * size / GLANCE[-1])

    def dual(self, direction: Direction) -> Limit | None:
        """The derivative by forward-mode AD; None where an operation does not support it."""
        with forward_ad.dual_level():
            initial = {n: widened(flat) for n, flat in self.trace.initial.items()}
            initial |= {n: forward_ad.make_dual(initial[n].clone(), d.clone()) for n, d in direction.items()}
            replay = Replay(replace(self.trace, initial=initial), device=self.device)
            try:
                tangents = [forward_ad.unpack_dual(replay.run().value(out)).tangent for out in self.outputs[:1]]
                tangents += [forward_ad.unpack_dual(replay.value(out)).tangent for out in self.outputs[1:]]
            except Unreplayable:
                return None
        pairs = [(real_parts(t), w) for t, w in zip(tangents, self.weights, strict=True) if t is not None]
        size = sum(_weighted(t.abs(), w.abs()) for t, w in pairs)
        return Limit(sum(_weighted(t, w) for t, w in pairs), DUAL_ERROR * size)


def _weighted(values: torch.Tensor, weights: torch.Tensor) -> float:
    """The sum of values times weights; values of weight 0 may be infinite."""
    return float(torch.where(weights == 0, 0.0, values * weights).sum())


def needed(trace: Trace, refs: Sequence[Ref]) -> list[Step]:
    """The steps of the forward on which these tensors depend, in order. Raises Unreplayable where one of them depends
    on a gradient taken within the forward."""
    wanted = {ref.storage for ref in refs}
    kept: list[Step] = []
    for step in reversed(trace.steps):
        if not step.backward and wanted & {ref.storage for ref in step.results}:
            kept.insert(0, step)
            wanted |= {ref.storage for ref in step.inputs}
    if wanted - set(trace.initial) - {ref.storage for step in kept for ref in step.results}:
        raise Unreplayable("a gradient is taken within the forward")
    return kept


def moved(trace: Trace, direction: Direction, step: float) -> Trace:
    """The trace with its storages moved a step along the direction, in float64."""
    there = {number: widened(trace.initial[number]) + step * d for number, d in direction.items()}
    return replace(trace, initial=trace.initial | there)


def settled(quotients: Sequence[float], powers: Sequence[int], noise: float) -> Limit:
    """The limit of difference quotients over STEPS: the extrapolation that those of smaller steps contradict least.

    powers   of the step, in the error of a quotient;  noise   the error of each difference.
    """
    coarse: list[float] = []
    fine = list(quotients)
    for power in powers:
        coarse, fine = fine, [(RATIO**power * b - a) / (RATIO**power - 1) for a, b in pairwise(fine)]
    noises = [2 * noise / h for h in STEPS[len(powers) :]]
    best = Limit(math.nan, math.inf)
    for k, value in enumerate(fine[:-CONTRADICTIONS]):
        later = [abs(v - value) - n - noises[k] for v, n in zip(fine[k + 1 :], noises[k + 1 :], strict=True)]
        error = abs(value - coarse[k + 1]) + noises[k] + max([0.0, *later])
        if error < best.error:  # False of NaN
            best = Limit(value, error)
    return best


def direction(trace: Trace, ref: Ref, along: torch.Tensor) -> dict[int, torch.Tensor]:
    """The direction that moves a leaf along `along` (of its shape), each element by its own size.

    Only signs of `along` matter. Elements that share memory move together, by the sign of their sum. An element that is
    0 moves by the median size of the others.
    """
    flat = torch.zeros_like(widened(trace.initial[ref.storage]))
    places = torch.arange(flat.numel(), device=flat.device).as_strided(ref.shape, ref.stride, ref.offset).flatten()
    flat.index_add_(0, places, (along.conj() if ref.conj else along).to(flat.dtype).flatten())
    sizes = real_parts(widened(trace.initial[ref.storage])[places]).abs()
    others = sizes[(sizes > 0) & sizes.isfinite()]
    typical = float(others.median()) if others.numel() else 1.0
    sizes = real_parts(widened(trace.initial[ref.storage])).abs()
    sizes = torch.where((sizes > 0) & sizes.isfinite(), sizes, typical)
    signed: Any = torch.where(real_parts(flat) == 0, 0.0, real_parts(flat).sign() * sizes)
    return {ref.storage: torch.view_as_complex(signed) if flat.is_complex() else signed}


def read(trace: Trace, along: Direction, ref: Ref) -> torch.Tensor:
    """A direction's change of the tensor of a Ref, complex ones as their parts; zeros where it has none."""
    flats = {ref.storage: along.get(ref.storage, torch.zeros_like(widened(trace.initial[ref.storage])))}
    return real_parts(Replay(replace(trace, initial=flats)).value(ref))
