"""What a program costs alone and in batches: CPU seconds of the same programs, by how many a worker has at once, and
by the share of them that is judged before code is built.

Every arm has a pool of its own; they take turns, so that what else the machine does meets all of them. Reports must be
equal in all that does not measure time, but for lines of the compiler, of which a process tells each once; those of
programs that one arm built and another did not are not compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuzzer.campaign.schedule import submit_numbers
from fuzzer.campaign.turns import in_flight
from fuzzer.language.errors import UsageError
from fuzzer.trial.batch import left_over
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

SIZES = "1,4,8,16"


@dataclass(frozen=True)
class Arm:
    """So many programs at once, of which this share is judged at a stage."""

    size: int
    staged: float = 0.0

    def __str__(self) -> str:
        return f"{self.size}:{self.staged:g}" if self.staged else str(self.size)


def arm_named(text: str) -> Arm:
    """The arm of `SIZE` or `SIZE:SHARE`. Raises UsageError."""
    size, _, share = text.partition(":")
    try:
        arm = Arm(int(size), float(share or 0))
    except ValueError:
        arm = Arm(0)
    if arm.size < 1 or not 0 <= arm.staged <= 1:
        raise UsageError(f"no arm {text!r}: SIZE, or SIZE:SHARE with a share from 0 to 1")
    return arm


def measure_batches(
    task: Task, programs: int, warm: int, arms: Sequence[Arm], workers: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The figures of each arm, the first of which is what the others are compared with.

    warm   programs of each pool that do not count: a young worker imports, and torch compiles a header for all.
    """
    tasks = {arm: replace(task, final=False, features=True, staged=arm.staged) for arm in arms}
    largest, found = max(arm.size for arm in arms), {arm: dict[int, Report]() for arm in arms}
    with contextlib.ExitStack() as stack:
        pools = {arm: stack.enter_context(Pool(workers, task.place.devices, batch=arm.size)) for arm in arms}
        for arm, pool in pools.items():
            explored(pool, tasks[arm], range(programs, programs + warm), arm.size)
        for first in range(0, programs, largest * workers):
            numbers = range(first, min(first + largest * workers, programs))
            for arm, pool in pools.items():
                found[arm] |= explored(pool, tasks[arm], numbers, arm.size)
            differ = _differing(found)
            say(f"{numbers.stop}: {', '.join(f'{a}: {_cost(found[a]):.3f}' for a in arms)}; {differ or 'all equal'}")
    return {"programs": programs, **batch_figures(found)}


def batch_figures(found: dict[Arm, dict[int, Report]]) -> dict[str, Any]:
    """The figures of each arm's Reports by number."""
    alone = next(iter(found.values()))
    return {
        "cpu_seconds_per_program": {str(arm): round(_cost(reports), 4) for arm, reports in found.items()},
        "of_these_building": {str(arm): round(_mean(reports, "build"), 4) for arm, reports in found.items()},
        "faster": {str(arm): round(_cost(alone) / _cost(reports), 3) for arm, reports in found.items()},
        "judged": {str(arm): sum(not r.rejected for r in reports.values()) for arm, reports in found.items()},
        "at_a_stage": {str(arm): sum(bool(r.stage) for r in reports.values()) for arm, reports in found.items()},
        "differing": _differing(found),
    }


def _differing(found: dict[Arm, dict[int, Report]]) -> list[dict[str, Any]]:
    """The Reports that are not as those of the first arm, and in what."""
    alone, *others = found.values()
    arms = list(found)[1:]
    return [
        {"arm": str(arm), "number": n, "in": names}
        for arm, reports in zip(arms, others, strict=True)
        for n, report in reports.items()
        if report.stage == alone[n].stage and (names := differing(alone[n], report))
    ]


def explored(pool: Pool, task: Task, numbers: Sequence[int], size: int) -> dict[int, Report]:
    """The Reports of the programs of these numbers, so many to a batch."""
    waiting = [tuple(numbers[i : i + size]) for i in range(0, len(numbers), size)]
    running, found = list[tuple[Any, tuple[int, ...]]](), dict[int, Report]()
    while waiting or running:
        while waiting and len(running) < in_flight(pool.workers):
            batch = waiting.pop(0)
            running.append((submit_numbers(pool, task, batch), batch))
        future, batch = running.pop(0)
        reports = pool.results(future, task)
        found |= {n: report for n, report in zip(batch, reports, strict=True) if report is not None}
        waiting += left_over(batch, reports)
    return found


def differing(a: Report, b: Report) -> list[str]:
    """The names of what two Reports of a program say that should be equal, and is not."""
    return [name for name, value in _told(a).items() if value != _told(b)[name]]


def _told(report: Report) -> dict[str, Any]:
    names = ("text", "rejected", "detectable", "elements", "gradients", "redrawn", "features")
    return {name: getattr(report, name) for name in names} | {"verdicts": [str(v.signature) for v in report.verdicts]}


def _cost(reports: dict[int, Report]) -> float:
    return _mean(reports, "cpu")


def _mean(reports: dict[int, Report], name: str) -> float:
    """CPU seconds a program, of those whose worker lived to tell."""
    told = [report.seconds.get(name, 0.0) for report in reports.values() if "cpu" in report.seconds]
    return sum(told) / max(len(told), 1)
