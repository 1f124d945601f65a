"""How small may an error be and still be flagged? Bisected, for one element and for a whole tensor.

A compiled gradient is multiplied by 1 + e, in one element or in all; e is halved and doubled on a logarithmic scale
until the verdict changes. The peer is PyTorch's own accuracy check with the tolerance of its benchmarks
(`torch._dynamo.utils.same`): the whole tensor within 1e-3, or its RMSE against float64 not far above eager's.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fuzzer.judgement.comparison import as_float64, looks, outside_floor, spread
from fuzzer.judgement.trial import Trial
from fuzzer.language.private import passes_accuracy_check
from fuzzer.language.values import DTYPE_NAMES

_PEER_TOLERANCE = 1e-3
_WEAKEST, _STRONGEST = -56.0, 4.0  # powers of 2 between which the size of an error is sought
_STEPS = 9  # of bisection: to an eighth of a power of 2


@dataclass(frozen=True)
class Smallest:
    """The smallest relative error flagged of one gradient, by us and by the peer; infinite where none was."""

    dtype: str
    kind: str  # one, whole
    ours: float
    peer: float
    alarm: bool = False  # whether the peer flags the gradient as it was compiled, which agrees


def smallest(trial: Trial, rng: random.Random) -> list[Smallest]:
    """Of one of the trial's gradients, drawn from those that may hold an error. Raises Unreplayable."""
    order = list(trial.targets)
    known = [(n, g) for n, g in trial.subject.gradients.items() if g is not None and f"{n}.grad" in trial.targets]
    known = [(n, g) for n, g in known if g.dtype.is_floating_point and bool((torch.isfinite(g) & (g != 0)).any())]
    if not known:
        return []
    name, gradient = rng.choice(known)
    at = order.index(f"{name}.grad")
    r = trial.model.reference[at].double()
    look = looks(trial)[-1]  # whose floors are nowhere lower than those of the others
    floor = spread(trial, look).floor(at, look[2])
    eager = trial.reference.gradients[name]

    def ours(changed: torch.Tensor) -> bool:
        return bool(outside_floor(as_float64(changed, r), r, floor).any())

    def peer(changed: torch.Tensor) -> bool:
        exact = r.to(changed.device).reshape(changed.shape)
        return not passes_accuracy_check(eager, changed, exact, _PEER_TOLERANCE)

    spots = (torch.isfinite(gradient) & (gradient != 0)).flatten().nonzero().flatten().tolist()
    spot = torch.zeros(gradient.numel(), dtype=torch.float64)
    spot[rng.choice(spots)] = 1.0
    where = {"one": spot.reshape(gradient.shape), "whole": torch.ones(gradient.shape, dtype=torch.float64)}
    dtype = DTYPE_NAMES[gradient.dtype]
    alarm = peer(gradient.detach())
    return [Smallest(dtype, kind, bisected(gradient, mask, ours), bisected(gradient, mask, peer), alarm)
            for kind, mask in where.items()]  # fmt: skip


def bisected(gradient: torch.Tensor, mask: torch.Tensor, flags: Callable[[torch.Tensor], bool]) -> float:
    """The smallest relative error, where the mask is 1, that is flagged; infinite where the largest is not."""
    mask = mask.to(gradient.device)

    def flagged(power: float) -> bool:
        return flags((gradient.detach().double() * (1 + mask * 2**power)).to(gradient.dtype))

    low, high = _WEAKEST, _STRONGEST
    if not flagged(high):
        return math.inf
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if flagged(middle) else (middle, high)
    return 2.0**high


def table(found: Iterable[Smallest]) -> dict[str, dict[str, Any]]:
    """dtype and kind -> median and 90th percentile of both, the number of gradients, and of those flagged unchanged."""
    grouped: dict[str, list[Smallest]] = {}
    for each in found:
        grouped.setdefault(f"{each.dtype} {each.kind}", []).append(each)
    return {
        key: {
            "gradients": len(rows),
            "alarms_of_peer": sum(row.alarm for row in rows),
            "ours": _middle([row.ours for row in rows]),
            "peer": _middle([row.peer for row in rows]),
        }
        for key, rows in sorted(grouped.items())
    }


def _middle(sizes: Sequence[float]) -> dict[str, float | str]:
    """The median and the 90th percentile, rounded; `never` where that many are not flagged at all."""
    ordered = sorted(sizes)
    tenth = ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]
    return {"median": _told(statistics.median_low(ordered)), "p90": _told(tenth)}


def _told(size: float) -> float | str:
    return "never" if size == math.inf else float(f"{size:.2g}")
