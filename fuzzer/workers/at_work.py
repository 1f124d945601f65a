"""The task that each worker of a pool has, and its phase, as its journal tells them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuzzer.workers.journal import read_journal, read_turn

if TYPE_CHECKING:
    from fuzzer.workers.pool import Pool

BUILD = "build"  # of several programs together: nobody's turn


@dataclass(frozen=True)
class Work:
    """The task of a worker.

    task     the function that it runs; "" where it waits for a task.  seconds   since the task began.
    phase    of the program: "reference forward", "backward", ...; BUILD while several programs are compiled together.
    program  which of several programs has its turn, from 1; None where the task has one program, or none has its turn.
    """

    task: str = ""
    programs: int = 0
    program: int | None = None
    phase: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.task:
            return "waits"
        which = f"{self.program or '-'}/{self.programs}" if self.programs > 1 else self.task.replace("_", " ")
        return f"{which} {self.phase}".rstrip()


def at_work(pool: Pool) -> list[Work]:
    """The Work of each worker that runs."""
    found, now = [], time.monotonic()
    for pid, future, began in pool.executor.at_work():
        owner = pool.owners.get(future) if future is not None else None
        if owner is None:
            found.append(Work())
            continue
        try:
            text = (pool.scratch / f"worker-{pid}" / "journal").read_text()
        except OSError:
            text = ""
        turn, (_, phase) = read_turn(text), read_journal(text)
        if owner.programs > 1 and turn is None and text:
            phase = BUILD
        found.append(Work(owner.function, owner.programs, None if turn is None else turn + 1, phase, now - began))
    return found


def told(pool: Pool) -> str:
    """The number of programs that a pool has run, and its workers' tasks, in a few words."""
    busy = [work for work in at_work(pool) if work.task]
    return f"{pool.finished} programs run" + (f", {len(busy)} at work" if busy else "")
