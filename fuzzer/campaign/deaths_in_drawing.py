"""Deaths while a program was drawn: the drawing that takes its process with it is looked at more closely."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fuzzer.trial.tasks import examine, explore_announced
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.obituary import died_of, number_undrawn
from fuzzer.workers.pool import Pool


@dataclass
class Undrawn:
    """What was begun for such deaths, by number and step, each once: the same drawing with all that it runs written
    down, and then what it died of, as a program like any other."""

    begun: set[tuple[int, str]] = field(default_factory=set)

    def look_closer(
        self, numbers: Sequence[int], reports: Sequence[Report | None], pool: Pool, task: Task
    ) -> dict[int, Future[Any]]:
        """What is begun for Reports of such deaths, by number: its Report takes the place of theirs."""
        found: dict[int, Future[Any]] = {}
        for number, report in zip(numbers, reports, strict=True):
            if report is None:
                continue
            text, index = died_of(report), number_undrawn(report)
            if text and self._first(number, "program"):
                found[number] = pool.submit(examine, task, text)
            elif index is not None and self._first(number, "drawing"):
                found[number] = pool.submit(explore_announced, task, index)
        return found

    def _first(self, number: int, step: str) -> bool:
        first = (number, step) not in self.begun
        self.begun.add((number, step))
        return first
