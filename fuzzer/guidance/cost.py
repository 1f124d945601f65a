"""What compiling or building a program takes, told before it is done from how much it exercises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MIN_PROGRAMS = 8  # programs, before anything is told
_HALF_LIFE = 500  # programs: workers warm up, and what is chosen changes
CHEAPEST = 0.1  # of the mean: no program is taken to cost less


class CostModel:
    """CPU seconds of a program = base + each * features (of its trace, of its loops), by least squares over those
    that were compiled, with exponential forgetting. Both are at least 0: where larger programs were not dearer, all
    cost the mean.
    """

    def __init__(self) -> None:
        # exponentially weighted sums: of 1, x, y, x * x, x * y (x features, y seconds)
        self.sums = [0.0] * 5
        self.seen = 0

    def learn(self, features: int, seconds: float) -> None:
        """A program was compiled."""
        faded = 0.5 ** (1 / _HALF_LIFE)
        terms = (1.0, features, seconds, features**2, features * seconds)
        self.sums = [faded * total + term for total, term in zip(self.sums, terms, strict=True)]
        self.seen += 1

    def coefficients(self) -> tuple[float, float]:
        """(base, each), CPU seconds; (1, 0) until enough is known, so that all cost the same."""
        weight, x, y, xx, xy = self.sums
        if self.seen < MIN_PROGRAMS or not y:
            return 1.0, 0.0
        spread = weight * xx - x * x
        each = max((weight * xy - x * y) / spread, 0.0) if spread > 0 else 0.0
        mean = y / weight
        base = mean - each * x / weight
        return (base, each) if base >= CHEAPEST * mean else (CHEAPEST * mean, (1 - CHEAPEST) * y / x)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        return {"sums": self.sums, "seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what another one knew."""
        self.sums, self.seen = list(state["sums"]), state["seen"]
