"""A task, and how it is given to a pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

ROOT = Path(__file__).parents[2]
TASK = Task(place=Place(subject=Subject("eager", "cpu")))
DEADLINE = 4.0


def ask(pool: Pool, function: Callable[..., Report], what: Any) -> Report:
    return pool.result(pool.submit(function, TASK, what), TASK)
