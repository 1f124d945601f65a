"""Which task a worker gets next."""

from __future__ import annotations

from dataclasses import dataclass

from fuzzer.execution.waiting import Waiting


@dataclass(frozen=True)
class Named:
    name: str
    behind: bool


def test_tasks_come_in_their_order_and_those_behind_after_all_others() -> None:
    waiting: Waiting[Named] = Waiting()
    for name in ("b1", "a1", "b2", "a2", "a3"):
        waiting.put(Named(name, name.startswith("b")))
    assert [waiting.popleft().name for _ in range(5)] == ["a1", "a2", "a3", "b1", "b2"]


def test_what_a_worker_gave_back_stays_first_of_its_kind() -> None:
    waiting: Waiting[Named] = Waiting()
    waiting.put(Named("b2", True))
    waiting.appendleft(Named("b1", True))
    waiting.put(Named("a1", False))
    assert [task.name for task in waiting] == ["a1", "b1", "b2"]
