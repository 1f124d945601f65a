"""Which device each worker has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzer.workers import placement as placements
from fuzzer.workers.accelerator import DeviceState
from fuzzer.workers.interface import Stopped
from fuzzer.workers.placement import Answering, Placement, answers, placement
from fuzzer.workers.pool import Pool
from tests.workers import worker_faults as faults
from tests.workers.asked import TASK, ask

GIB = 2**30
FREE = DeviceState(140 * GIB)


def taken(workers: int, *devices: DeviceState) -> list[int]:
    placed = Placement(devices)
    return [placed.take() for _ in range(workers)]


def test_equal_devices_have_their_turns() -> None:
    assert taken(6, FREE, FREE, FREE) == [0, 1, 2, 0, 1, 2]


def test_a_device_that_others_use_has_fewer_by_what_they_leave_of_its_time() -> None:
    assert Counter(taken(15, FREE, DeviceState(140 * GIB, busy=0.5))) == {0: 10, 1: 5}
    assert Counter(taken(21, FREE, DeviceState(140 * GIB, busy=1.0))) == {0: 20, 1: 1}


def test_no_device_has_more_than_its_memory_holds_while_another_has_room() -> None:
    assert Counter(taken(10, FREE, DeviceState(3 * GIB))) == {0: 7, 1: 3}
    assert taken(3, DeviceState(GIB), DeviceState(GIB)) == [0, 1, 0], "where none has room, all are equal"


def test_whoever_takes_the_place_of_a_worker_gets_its_device() -> None:
    placed = Placement([FREE, FREE])
    assert [placed.take() for _ in range(4)] == [0, 1, 0, 1]
    placed.give(1)
    assert placed.take() == 1


def test_a_device_that_is_left_out_gets_none() -> None:
    placed = Placement([FREE, FREE, FREE])
    assert [placed.take([0, 2]) for _ in range(3)] == [0, 2, 0]


def test_devices_are_asked_once_and_only_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    counts = {"cuda": 2, "xpu": 1}
    states = {"cuda": [FREE, DeviceState(GIB, 0.9)], "xpu": [FREE]}
    monkeypatch.setattr(placements, "count_devices", lambda type: counts.get(type, 0))
    monkeypatch.setattr(placements, "query_devices", lambda type: asked.append(type) or states[type])
    placement.cache_clear()
    try:
        assert [placement("cuda").devices[1].busy for _ in range(3)] == [0.9] * 3
        assert [len(placement(type).devices) for type in ("xpu", "cpu")] == [1, 1]
        assert asked == ["cuda"]
        counts["cuda"] = 3
        placement.cache_clear()
        assert placement("cuda").devices == (DeviceState(),) * 3, "what cannot be told is taken as equal"
    finally:
        placement.cache_clear()


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


def test_where_no_process_can_be_started_nothing_is_known_about_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*given: object, **how: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.run", run)
    assert answers("cuda", 0)


@pytest.mark.slow
def test_a_device_is_asked_in_a_process_of_its_own_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers("cpu", 0)
    assert not answers("meta", 0), "it computes nothing"
    monkeypatch.setattr(placements, "ASK_SECONDS", 0.01)
    assert not answers("cpu", 0)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_task_that_reaches_a_worker_without_a_device_is_not_counted_and_not_lost(tmp_path: Path) -> None:
    lives: list[tuple[int, int]] = []
    with Pool(1, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        pool.executor.lived = lambda number, tasks: lives.append((number, tasks)) or ""  # type: ignore[func-returns-value]
        both = [pool.submit(faults.lose_device, TASK, "a"), pool.submit(faults.fine, TASK, "b")]
        assert [pool.result(future, TASK).stderr for future in both] == ["a", "b"]
    assert lives == [(0, 1)]


@pytest.mark.slow
def test_workers_that_each_lose_their_device_have_it_asked_though_tasks_wait(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    device = Answering("cuda", [0], lambda kind, index: asked.append((kind, index)) is not None)
    with Pool(1, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        pool.executor.lived = lambda number, tasks: device.lived(0, tasks)
        futures = [pool.submit(faults.lose_device, TASK, str(n)) for n in range(8)]
        with pytest.raises(Stopped, match="no CUDA device answers any more"):
            [pool.result(future, TASK) for future in futures]
    assert asked == [("cuda", 0)]
