"""Programs judged at a stage, of which some are built: each has the Report of where it was judged last."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.coverage.features import Features
from fuzzer.coverage.structure import LOOPS
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.trial import batch, sift
from fuzzer.trial.batch import Batch, left_over
from fuzzer.trial.sift import Sifted, SiftedReport, explore_sifted
from fuzzer.trial.tasks import explore
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from tests.workers.test_batch import told
from tests.workers.worker_faults import TEXT

TASK = Task(Place(Subject("eager"), Subject("inductor")), seed=5, routes=ANY_BACKEND, final=False, features=True)
SMALL = replace(TASK, ops=("tanh", "exp", "mul", "sum"), routes=("autograd",))


@pytest.fixture
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker has them: code that is found there tells less of its compile."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def every_second(shown: Sequence[Features]) -> list[Sifted]:
    return [Sifted(n % 2 == 1, float(n)) for n in range(len(shown))]


def plain(report: Report) -> dict[str, Any]:
    return {name: value for name, value in told(report).items() if name != "rarity"}


@pytest.mark.usefixtures("own_caches")
def test_who_is_not_chosen_has_its_report_of_the_stage_and_who_is_that_of_its_build() -> None:
    seen: list[Features] = []

    def choose(shown: Sequence[Features]) -> list[Sifted]:
        seen.extend(shown)
        return every_second(shown)

    left, built = explore_sifted(SMALL, Batch((1, 2)), choose)
    assert isinstance(left, SiftedReport)
    assert isinstance(built, SiftedReport)
    assert (left.stage, built.stage, left.rarity, built.rarity) == ("ir", "", 0.0, 1.0)
    assert (left.verdict, built.verdict, left.rejected, built.rejected) == ("agree", "agree", "", "")
    assert seen[1][LOOPS] == built.features[LOOPS] != left.features[LOOPS], "what is built is what was told"
    assert built.features["line"]
    assert not left.features["line"]
    assert 0 < built.seconds["stage"] < built.seconds["cpu"] - built.seconds["build"]
    assert left.seconds["stage"] == pytest.approx(left.seconds["cpu"], abs=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("own_caches")
def test_reports_are_those_of_programs_alone() -> None:
    ran = 0
    for n, report in enumerate(explore_sifted(TASK, Batch(tuple(range(8))), every_second)):
        at_stage = bool(report.stage or report.built)
        alone = explore(replace(TASK, place=TASK.place.at("ir")) if at_stage else TASK, n)
        assert plain(report) == plain(alone)
        ran += not report.rejected
    assert ran >= 6


RARE = "benches.rare"
SHOWN = "tanh_of_a_broadcast_gradient"


def test_who_shows_something_at_the_stage_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anybody asked whether it is to be."""
    text = (Path(__file__).parents[2] / "corpus" / "rare" / f"{SHOWN}.prog").read_text()
    monkeypatch.setattr(sift, "draw_detectable", lambda task, number, log: batch._record(batch.parse(text), task, log))

    def choose(shown: Sequence[Features]) -> list[Sifted]:
        assert not shown
        return []

    (report,) = explore_sifted(replace(TASK, canary=f"{RARE}:all", features=False), Batch((1,)), choose)
    assert (report.stage, report.verdict, report.fired) == ("ir", "wrong", (SHOWN,))


# ---------------------------------------------------------------- deaths

ENDS: dict[str, Callable[[], object]] = {
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "deadline": lambda: signal.pause(),
}


def end_badly(task: Task, given: tuple[Batch, int, str, str]) -> list[Report]:
    """Programs of which one ends the worker in this turn of its, if it is still there."""
    asked, victim, how, at = given
    taken = batch.Member.take_turn

    def work(member: Any, turn: str) -> Report | None:
        number = asked.numbers[member.place]
        journal().begin(TEXT.replace("f32[4])\nv0", f"f32[4], seed={number})\nv0"))
        journal().phase("forward")
        if number == victim and turn == at:
            ENDS[how]()
        member.told = Report(str(number))
        return Report(str(number)) if turn in ("leave", "end") else None

    def take_turn(self: Any, asked_for: Callable[[], Report | None]) -> None:
        taken(self, lambda: work(self, getattr(asked_for, "__name__", "run")))

    batch.Member.take_turn = take_turn  # type: ignore[method-assign]
    try:
        return explore_sifted(task, asked, every_second)
    finally:
        batch.Member.take_turn = taken  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("how", "victim", "at"),
    [
        ("SIGSEGV", 12, "judge_at_stage"),
        ("deadline", 10, "judge_at_stage"),
        ("SIGSEGV", 11, "end"),
        ("deadline", 13, "run"),
    ],
)
def test_a_death_at_the_stage_or_at_the_build_is_its_programs_and_the_others_are_judged(
    pool: Pool, how: str, victim: int, at: str
) -> None:
    waiting, found = [(10, 11, 12, 13)], dict[int, Report]()
    while waiting:
        numbers = waiting.pop()
        future = pool.submit(end_badly, TASK, (Batch(numbers, 1.0), victim, how, at), len(numbers))
        reports = pool.results(future, TASK)
        found |= {n: report for n, report in zip(numbers, reports, strict=True) if report is not None}
        waiting += left_over(numbers, reports)
    kind = "hangs" if how == "deadline" else "crashes"
    guilty = {n: str(r.verdicts[0].signature) for n, r in found.items() if r.verdicts}
    assert list(guilty) == [victim]
    assert guilty[victim].startswith(f"worker_survives/{kind}/forward/{how}")
    assert f"seed={victim})" in found[victim].text
    assert sorted(found) == [10, 11, 12, 13]
    assert all(found[n].text == str(n) for n in found if n != victim)
