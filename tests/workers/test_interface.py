"""What both executors promise, beside what test_pool.py and test_executor.py hold of them: order, errors, ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fuzzer.language.text import ParseError
from fuzzer.workers.cluster import LOCAL, RAY, Cluster
from fuzzer.workers.interface import Stopped, Waiting, stop_all
from fuzzer.workers.pool import Pool
from tests.workers import worker_faults as faults
from tests.workers.asked import TASK, ask

Make = Callable[[int], Pool]


@pytest.fixture(params=[LOCAL, RAY])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A pool of so many workers, wherever they are."""
    if request.param == RAY:
        pytest.importorskip("ray")
    cluster = Cluster("local") if request.param == RAY else None
    return lambda workers: Pool(workers, ["cpu"], deadline=60, scratch=tmp_path, cluster=cluster)


def test_tasks_run_side_by_side_and_what_they_take_of_memory_is_known(make: Make) -> None:
    with make(2) as pool:
        [ask(pool, faults.fine, "warm") for _ in range(4)]
        futures = [pool.submit(faults.sleep, TASK, 1.0) for _ in range(2)]
        until = time.monotonic() + 30
        while sum(future is not None for _, future, _ in pool.executor.at_work()) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert {future for _, future, _ in pool.executor.at_work()} == set(futures)
        assert [pool.result(future, TASK).stderr for future in futures] == ["slept"] * 2
        assert 0 < pool.health()["memory_bytes"] < 2**33
        assert pool.finished == 6


def test_an_error_of_a_task_is_raised_where_it_is_waited_for(make: Make) -> None:
    with make(1) as pool:
        with pytest.raises(ParseError, match="not a program"):
            ask(pool, faults.refuse, "not a program")
        assert ask(pool, faults.fine, "still here").stderr == "still here"


def test_whoever_closes_waits_for_what_was_scheduled_and_nothing_is_taken_any_more(make: Make) -> None:
    pool = make(1)
    futures = [pool.submit(faults.sleep, TASK, 0.2) for _ in range(3)]
    pool.close()
    assert [pool.result(future, TASK).stderr for future in futures] == ["slept"] * 3
    with pytest.raises(Stopped, match="no more tasks"):
        pool.submit(faults.fine, TASK, "late")


def test_a_stop_of_all_fails_what_is_under_way_and_says_why(make: Make) -> None:
    pool = make(1)
    ask(pool, faults.fine, "warm")
    futures = [pool.submit(faults.hang, TASK, "forward") for _ in range(2)]
    stop_all("the campaign was stopped")
    assert [str(future.exception(10)) for future in futures] == ["the campaign was stopped"] * 2
    pool.close(kill=True)


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
