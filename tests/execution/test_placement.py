"""Which device each worker has."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzzer.execution import placement as placements
from fuzzer.execution.accelerator import DeviceState
from fuzzer.execution.placement import Placement, placement

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
