"""Tasks for a pool of workers, a few ahead of those that run."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool


def stream(
    pool: Pool, function: Callable[[Task, Any], Report], task: Task, given: Iterable[Any], minutes: float | None = None
) -> list[tuple[Any, Report]]:
    """`function(task, item)` in a worker for each item given, until all are done or the time is up.

    Returns (item, Report), in the order given. A worker that dies costs the item that it had, whose Report says so.
    """
    ends = math.inf if minutes is None else time.monotonic() + 60 * minutes
    waiting = deque(enumerate(given))
    pending: dict[Future[Report], tuple[int, Any]] = {}
    found: list[tuple[tuple[int, Any], Report]] = []
    while True:
        while waiting and len(pending) < 2 * pool.workers and time.monotonic() < ends:
            place = waiting.popleft()
            pending[pool.submit(function, task, place[1])] = place
        if not pending:
            return [(item, report) for (_, item), report in sorted(found, key=lambda pair: pair[0][0])]
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            found.append((pending.pop(future), pool.result(future, task)))
