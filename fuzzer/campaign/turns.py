"""What runs next: how exploring and triage share the workers. The order and its reasons stand here alone.

A worker that is free takes the first of these that there is:

1. a task of triage. What one candidate shows decides which is next, so none may wait until a batch has ended: the tasks
   of exploring are submitted `behind` them (`Pool.submit`);
2. a batch that goes again, because its worker ended or the machine lacked something: its numbers come before others;
3. a batch of new programs, while fewer than `batches` are under way.

A lane of triage takes the most urgent suspect that waits (`Triage.priority`), unless `had_its_share`. While the machine
lacks room or a compiler, neither begins anything (`State.PAUSED`, `Triage.held`).
"""

from __future__ import annotations

from collections.abc import Callable

# Triage keeps this fraction of the workers busy while exploration goes on: reduction is a chain of decisions, so more
# of them would mostly try candidates that are never needed.
_SHARE_OF_WORKERS = 4
_MOST_LANES = 4
_MOST_OF_CPU = 0.25  # seconds of the CPU, while exploring finds features that are new
_FREE_SECONDS = 60.0  # that it has anyway: a small suspect's


def in_flight(workers: int) -> int:
    """Batches under way on so many workers: a few more, so that none waits for the main thread."""
    return workers + max(1, workers // 4)


def batches(workers: int, suspects: int, plateau: Callable[[], bool], engaged: bool) -> int:
    """The batches of programs that may be under way at once.

    Half as many as workers where more suspects wait than there are workers and exploring finds nothing new: a compiler
    with many faults makes suspects sooner than triage decides them. While triage is at work (`engaged`), one worker is
    left to it: its tasks come one after the other, and each would wait for a batch to end.
    """
    most = max(1, workers // 2) if suspects > workers and plateau() else in_flight(workers)
    return min(most, workers - 1) if engaged else most


def lanes(workers: int) -> int:
    """The suspects that triage decides side by side."""
    return max(1, min(_MOST_LANES, candidates(workers)))


def candidates(workers: int) -> int:
    """The candidates of one suspect that run at once."""
    return workers // _SHARE_OF_WORKERS


def had_its_share(triage: float, exploring: float, plateau: Callable[[], bool]) -> bool:
    """Whether the next suspect waits for exploring, which finds what is new: by the CPU seconds that each took."""
    return triage > max(_FREE_SECONDS, _MOST_OF_CPU * (triage + exploring)) and not plateau()
