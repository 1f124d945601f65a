"""Times to faults that some runs do not find: what is left of them at a time, and a test of two sets of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Time:
    """When something was found, or until when it was looked for in vain."""

    at: float
    found: bool


_ROUNDING = 1e-12  # of a product of shares that is a half


def median(times: Sequence[Time]) -> float:
    """The time by which half of the runs had found it; infinity where fewer did. All were looked at equally long."""
    ordered = sorted(t.at if t.found else math.inf for t in times)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def kaplan_meier(times: Sequence[Time]) -> float:
    """The time by which half had found it, by the estimate of Kaplan and Meier (1958), which takes campaigns that were
    cut off early for what they are; infinity where it stays above a half."""
    from scipy import stats

    found, vain = ([t.at for t in times if t.found is which] for which in (True, False))
    if not found:
        return math.inf
    left = stats.ecdf(stats.CensoredData(uncensored=found, right=vain)).sf
    half = left.quantiles[left.probabilities <= 0.5 + _ROUNDING]
    return float(half[0]) if half.size else math.inf


def log_rank(strata: Sequence[tuple[Sequence[Time], Sequence[Time]]]) -> tuple[float, float]:
    """(rate of the first over the second, two-sided p) over all strata: Mantel (1966), the stratified log-rank test.
    scipy's `stats.logrank` is the same for one stratum, and has none.

    A stratum holds the times of both sides to one fault. The rate is that of events over those expected, on either
    side (Peto et al., 1977), nan where there are none.
    """
    seen, expected, variance, total = 0.0, 0.0, 0.0, 0.0
    for a, b in strata:
        for at in sorted({t.at for t in (*a, *b) if t.found}):
            risk = [sum(t.at >= at for t in side) for side in (a, b)]
            events = [sum(t.found and t.at == at for t in side) for side in (a, b)]
            n, d = sum(risk), sum(events)
            seen, total = seen + events[0], total + d
            expected += d * risk[0] / n
            if n > 1:
                variance += d * risk[0] / n * risk[1] / n * (n - d) / (n - 1)
    if not variance:
        return math.nan, 1.0
    others = total - seen
    rate = math.inf if not others else (seen / expected) / (others / (total - expected))
    return rate, math.erfc(abs(seen - expected) / math.sqrt(variance) / math.sqrt(2))
