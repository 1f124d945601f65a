"""The ceiling of one main process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from benches import ceiling as bench
from benches.ceiling import Answers, AtOnce, ceiling

from fuzzer.workers.cluster import RAY
from fuzzer.workers.messages import Report, Task

PROGRAM = """program(1)
route("autograd")
x0 = leaf(f32[{n}])
v0 = sin(x0)
backward(v0, cotangent(f32[{n}]))
"""
REPORTS = [
    Report(PROGRAM.format(n=n), detectable=n, elements=n, seconds={"cpu": 0.5}, features={"operand": frozenset({n})})
    for n in (1, 2, 3)
]


def test_each_task_is_answered_at_once_by_the_next_report() -> None:
    pool = AtOnce(Answers([pickle.dumps(report) for report in REPORTS]), 2)
    answers = [report for n in (2, 2) for report in pool.results(pool.submit(len, Task(), n, programs=n), Task())]
    assert [report.detectable for report in answers] == [1, 2, 3, 1]
    assert pool.sent > 0


def test_a_campaign_takes_all_of_its_programs_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_STEP", 20)
    found = ceiling(REPORTS, 50, 4, tmp_path)
    assert found["programs"] == 50
    assert found["worker_cpu_s"] == 0.5
    assert found["workers_fed"] == pytest.approx(0.5 * found["last_per_s"], rel=0.01)
    assert min(found["first_per_s"], found["report_bytes"], found["task_bytes"]) > 0
    assert len([*(tmp_path / "own" / "corpus").glob("*.prog")]) == len(REPORTS), "each showed something new, once"


@pytest.mark.slow
def test_the_programs_of_a_campaign_go_through_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    found = ceiling(REPORTS, 50, 4, tmp_path, executor=RAY)
    assert found["programs"] == 50
    assert found["kept"] == len(REPORTS)


def test_programs_with_a_feature_of_their_own_fill_the_corpus_and_then_memory_is_flat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_STEP", 5)
    grown = iter([100.0, *(100.0 + min(n, 4) for n in range(1, 50))])
    monkeypatch.setattr(bench, "resident_bytes", lambda pid: int(next(grown) * 2**20))
    found = ceiling(REPORTS, 60, 4, tmp_path, new=0.5, keep=10)
    assert found["kept"] == 10
    assert (found["mib_at_first"], found["mib_at_last"], found["mib_a_million"]) == (100.0, 104.0, 0.0)
