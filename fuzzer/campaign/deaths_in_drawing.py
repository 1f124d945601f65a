"""Workers that died while they drew a program: the same drawing runs again, with each step written down."""

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
    """The second looks at such deaths, each begun once for its number. First the same drawing runs again and writes
    down all that it runs; then the program in which it died runs like any other."""

    begun: set[tuple[int, str]] = field(default_factory=set)

    def look_closer(
        self, numbers: Sequence[int], reports: Sequence[Report | None], pool: Pool, task: Task
    ) -> dict[int, Future[Any]]:
        """The runs that are begun for Reports of such deaths, by number. Their Reports take the place of those."""
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
