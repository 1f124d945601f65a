"""Devices that answer no more: noticed by workers' short lives, asked, and left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzer.execution import answering
from fuzzer.execution.answering import Answering, answers
from fuzzer.execution.interface import Stopped
from fuzzer.execution.pool import Pool
from tests.execution import worker_faults as faults
from tests.execution.asked import ask


def asked(wedged: set[int], seen: list[int]) -> Callable[[str, int], bool]:
    def ask(type: str, index: int) -> bool:
        seen.append(index)
        return index not in wedged

    return ask


def test_the_workers_of_a_device_that_does_not_answer_run_on_the_others() -> None:
    seen: list[int] = []
    devices = Answering("cuda", range(3), asked({1}, seen))
    assert list(devices.left()) == [0, 1, 2]
    assert [devices.lived(1, tasks) for tasks in (1, 0, 1)] == [""] * 3
    assert (seen, devices.silent) == ([], [])
    assert devices.lived(1, 1) == ""
    assert (seen, devices.silent) == ([1], [1])
    assert devices.left() == [0, 2]


def test_a_device_that_answers_keeps_its_workers_and_long_lives_speak_for_it() -> None:
    seen: list[int] = []
    devices = Answering("cuda", range(2), asked(set(), seen))
    for tasks in (1, 1, 1, 7, 1, 1, 1):
        devices.lived(0, tasks)
    assert seen == []
    devices.lived(0, 0)
    assert (seen, devices.silent) == ([0], [])


def test_without_any_device_that_answers_there_is_no_use_in_going_on() -> None:
    devices = Answering("cuda", [1], asked({1}, []))
    assert devices.left() == [1]
    assert [devices.lived(1, 0) for _ in range(4)] == ["", "", "", "no CUDA device answers any more"]
    assert Answering("cpu", range(0)).lived(0, 0) == ""


def test_a_device_is_asked_in_a_process_of_its_own_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers("cpu", 0)
    assert not answers("meta", 0), "it computes nothing"
    monkeypatch.setattr(answering, "ASK_SECONDS", 0.01)
    assert not answers("cpu", 0)


def test_an_executor_tells_how_many_tasks_those_had_that_ended_by_themselves(tmp_path: Path) -> None:
    lives: list[tuple[int, int]] = []

    def lived(number: int, tasks: int) -> str:
        lives.append((number, tasks))
        return "no device" if len(lives) == 2 else ""

    with Pool(1, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        pool.executor.lived = lived
        ask(pool, faults.fine, "a")
        ask(pool, faults.leave, "forward")
        ask(pool, faults.leave, "forward")
        with pytest.raises(Stopped, match="no device"):
            ask(pool, faults.fine, "late")
    assert lives == [(0, 2), (0, 1)]
