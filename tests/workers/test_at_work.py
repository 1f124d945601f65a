"""What workers are at, while they are at it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fuzzer.workers.at_work import BUILD, Work, at_work, told
from fuzzer.workers.pool import Pool
from tests.workers import worker_faults as faults
from tests.workers.asked import TASK


def test_a_worker_is_at_the_phase_that_its_journal_names_until_it_waits(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=60, scratch=tmp_path) as pool:
        pool.result(pool.submit(faults.fine, TASK, "warm"), TASK)
        while at_work(pool)[0].task:
            time.sleep(0.05)
        assert at_work(pool) == [Work()]
        assert told(pool) == "1 programs run"
        hanging = pool.submit(faults.hang, TASK, "backward")
        while at_work(pool)[0].phase != "backward":
            time.sleep(0.05)
        [work] = at_work(pool)
        assert (work.task, work.programs, str(work)) == ("hang", 1, "hang backward")
        assert 0 < work.seconds < 60
        assert told(pool) == "1 programs run, 1 at work"
        pool.abandon([hanging])


@pytest.mark.parametrize(
    ("work", "shown"),
    [
        (Work(), "waits"),
        (Work("explore_batch", 32, 7, "backward"), "7/32 backward"),
        (Work("explore_batch", 32, None, BUILD), "-/32 build"),
        (Work("examine", 1), "examine"),
    ],
)
def test_work_is_told_in_a_few_words(work: Work, shown: str) -> None:
    assert str(work) == shown
