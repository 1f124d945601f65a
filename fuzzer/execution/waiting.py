"""Tasks that wait for a worker."""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeVar


class _Task(Protocol):
    behind: bool


AnyTask = TypeVar("AnyTask", bound=_Task)


class Waiting(deque[AnyTask]):
    """First come, first served; tasks that are `behind` come after all that are not."""

    def put(self, task: AnyTask) -> None:
        first = next((place for place, other in enumerate(self) if other.behind), len(self))
        self.insert(len(self) if task.behind else first, task)
