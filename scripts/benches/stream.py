"""Tasks for a pool of workers, a few ahead of those that run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

Function = Callable[[Task, Any], Report]


def stream(
    pool: Pool, function: Function, task: Task, given: Iterable[Any], minutes: float | None = None
) -> list[tuple[Any, Report]]:
    """(item, Report) of each item given, in the order given. The arguments are those of `streamed`."""
    ended = sorted(streamed(pool, function, task, given, minutes), key=lambda each: each[0])
    return [(item, report) for _, item, report in ended]


def streamed(
    pool: Pool, function: Function, task: Task, given: Iterable[Any], minutes: float | None = None
) -> Iterator[tuple[int, Any, Report]]:
    """`function(task, item)` in a worker for each item given, until all are done or the time is up: (place among those
    given, item, Report) of each, as soon as it ends.

    A worker that dies costs the item that it had, whose Report says so.
    """
    ends = math.inf if minutes is None else time.monotonic() + 60 * minutes
    waiting = enumerate(given)
    pending: dict[Future[Report], tuple[int, Any]] = {}
    while True:
        while len(pending) < 2 * pool.workers and time.monotonic() < ends:
            place = next(waiting, None)
            if place is None:
                break
            pending[pool.submit(function, task, place[1])] = place
        if not pending:
            return
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            yield *pending.pop(future), pool.result(future, task)
