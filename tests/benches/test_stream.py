"""Tasks for a pool: their order, a death, and the end of the time."""

from __future__ import annotations

import os
from typing import Any

import pytest
from benches.stream import stream

from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from tests.benches.here import Here

TASK = Task(Place(Subject("eager"), Subject("eager")))
PROGRAM = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = neg(x0)
backward(v0, cotangent(f32[4], seed=3))
"""


def dies_on_the_second(task: Task, index: int) -> Report:
    if index == 1:
        journal().begin(PROGRAM)
        journal().phase("backward")
        os.abort()
    return Report(PROGRAM)


@pytest.mark.slow
def test_a_death_costs_one_item() -> None:
    with Pool(1, ["cpu"]) as pool:
        found = stream(pool, dies_on_the_second, TASK, range(4))
    assert [(index, r.verdict) for index, r in found] == [(0, "agree"), (1, "crashes"), (2, "agree"), (3, "agree")]
    assert found[1][1].text == PROGRAM


def test_nothing_begins_when_the_time_is_up() -> None:
    pool: Any = Here()
    assert stream(pool, dies_on_the_second, TASK, range(1000), minutes=0) == []
