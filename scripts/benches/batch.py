"""What a program costs alone and in batches: CPU seconds of the same programs, by how many a worker has at once.

Every size has a pool of its own; they take turns, so that what else the machine does meets all of them. Reports must be
equal in all that does not measure time, but for lines of the compiler, of which a process tells each once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fuzzer.campaign.loop import in_flight
from fuzzer.campaign.schedule import submit_numbers
from fuzzer.execution.batch import left_over
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.pool import Pool

SIZES = (1, 4, 8, 16)


def measure_batches(
    task: Task, programs: int, warm: int, sizes: Sequence[int], workers: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The figures of each size, the first of which is what the others are compared with.

    warm   programs of each pool that do not count: a young worker imports, and torch compiles a header for all.
    """
    task = replace(task, final=False, features=True)
    largest, found = max(sizes), {size: dict[int, Report]() for size in sizes}
    with contextlib.ExitStack() as stack:
        pools = {size: stack.enter_context(Pool(workers, task.place.devices, batch=size)) for size in sizes}
        for size, pool in pools.items():
            explored(pool, task, range(programs, programs + warm), size)
        for first in range(0, programs, largest * workers):
            numbers = range(first, min(first + largest * workers, programs))
            for size, pool in pools.items():
                found[size] |= explored(pool, task, numbers, size)
            differ = _differing(found)
            say(f"{numbers.stop}: {', '.join(f'{s}: {_cost(found[s]):.3f}' for s in sizes)}; {differ or 'all equal'}")
    alone = found[sizes[0]]
    return {
        "cpu_seconds_per_program": {size: round(_cost(reports), 4) for size, reports in found.items()},
        "of_these_building": {size: round(_mean(reports, "build"), 4) for size, reports in found.items()},
        "faster": {size: round(_cost(alone) / _cost(reports), 3) for size, reports in found.items()},
        "programs": programs,
        "judged": {size: sum(not report.rejected for report in reports.values()) for size, reports in found.items()},
        "differing": _differing(found),
    }


def _differing(found: dict[int, dict[int, Report]]) -> list[dict[str, Any]]:
    """The Reports that are not as those of the first size, and in what."""
    alone, *others = found.values()
    sizes = list(found)[1:]
    return [
        {"size": size, "number": n, "in": names}
        for size, reports in zip(sizes, others, strict=True)
        for n, report in reports.items()
        if (names := differing(alone[n], report))
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
