"""What runs next: how exploring and triage share the workers. The order and its reasons stand here alone.

A worker that is free takes the first of these that there is:

1. a task of triage. What one candidate shows decides which is next, so none may wait until a batch has ended: the tasks
   of exploring are submitted `behind` them (`Pool.submit`);
2. a batch that goes again, because its worker ended or the machine lacked something: its numbers come before others;
3. a batch of new programs, while fewer than `batches` are under way.

A lane of triage takes the suspect that is first by `turn`, unless that is dear and triage `had_its_share`. While the
machine lacks room or a compiler, neither begins anything (`State.PAUSED`, `Triage.held`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuzzer.campaign.suspects.suspect import Step, Suspect
from fuzzer.judgement.verdict import CLASSES

# Triage keeps this fraction of the workers busy while exploration goes on: reduction is a chain of decisions, so more
# of them would mostly try candidates that are never needed.
_SHARE_OF_WORKERS = 4
_MOST_DEAR = 4
_MOST_LANES = 64
_MOST_OF_CPU = 0.25  # seconds of the CPU, while exploring finds features that are new
_FREE_SECONDS = 60.0  # that it has anyway: a small suspect's

# Steps in order, each with whether it is for a silent gradient (None: for any) and a slip. The cheap come before the
# dear; what a person waits for (a line about a gradient that is wrong without a word) comes before all.
_STEPS: tuple[tuple[tuple[Step, ...], bool | None, bool | None], ...] = (
    ((Step.EXPLAIN, Step.CONFIRM), True, None),
    ((Step.SORT,), None, False),
    ((Step.EXPLAIN, Step.CONFIRM), None, None),
    ((Step.WHOLE,), None, False),
    ((Step.SETTLE,), None, False),
    ((Step.SORT, Step.WHOLE), None, True),  # no drawn program
    ((Step.SETTLE,), None, True),
    ((Step.DOUBT,), None, None),
    ((Step.GROW,), None, None),
)
# Steps of few runs, each taken once by a suspect; of the others few go on at once, and only for their share of the CPU.
CHEAP = (Step.SORT, Step.WHOLE, Step.EXPLAIN, Step.CONFIRM, Step.DOUBT)


def turn(suspect: Suspect, sorted_by_class: Mapping[str, int], covered: bool) -> tuple[int, ...]:
    """The place of a suspect in the order: the lowest is next.

    sorted_by_class  suspects that were taken to be sorted so far: while sorting, classes take turns.
    covered          whether the suspect has all ops of a known finding of its signature.

    Within a step silent gradients come first, then the worst class, then those that no known finding covers, then
    short programs, which are soon minimal.
    """
    step = next(
        place
        for place, (steps, silent, slip) in enumerate(_STEPS)
        if suspect.step in steps and silent in (None, suspect.silent) and slip in (None, suspect.slip)
    )
    verdict = suspect.signature.verdict
    done = sorted_by_class.get(verdict, 0) if suspect.step is Step.SORT else 0
    backward = suspect.signature.direction == "backward"
    return step, done, not suspect.silent, CLASSES.index(verdict), covered, not backward, len(suspect.text)


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
    """The suspects that triage works on side by side: while they are sorted, each needs one worker."""
    return min(_MOST_LANES, workers)


def dear_lanes(workers: int) -> int:
    """How many of them may be at a step that is not CHEAP."""
    return max(1, min(_MOST_DEAR, candidates(workers)))


def candidates(workers: int) -> int:
    """The candidates of one suspect that run at once."""
    return workers // _SHARE_OF_WORKERS


def had_its_share(triage: float, exploring: float, plateau: Callable[[], bool]) -> bool:
    """Whether what is dear waits for exploring, which finds what is new: by the CPU seconds that each took."""
    return triage > max(_FREE_SECONDS, _MOST_OF_CPU * (triage + exploring)) and not plateau()
