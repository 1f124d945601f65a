"""Programs whose code is built together: each gets the Report that it gets alone, whatever becomes of the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import parse
from fuzzer.trial import batch
from fuzzer.trial.batch import Batch, examine_batch, explore_batch, left_over
from fuzzer.trial.tasks import examine, explore
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from tests.workers.worker_faults import TEXT

TASK = Task(Place(Subject("eager"), Subject("inductor")), seed=23, routes=ANY_BACKEND, final=False, features=True)
EAGER = replace(TASK, place=Place(Subject("eager"), Subject("eager")), features=False)

CHAIN = """program(1)
SETTINGSroute("ROUTE")
x0 = leaf(f32[3, 5], seed=1)
x1 = leaf(f32[3, 5], seed=2)
v0 = OP(x0)
v1 = mul(v0, x1)
backward(v1, cotangent(f32[3, 5], seed=3))
"""


def program(op: str, settings: str = "", route: str = "autograd") -> str:
    text = f"settings({{{settings}}})\n" if settings else ""
    return CHAIN.replace("OP", op).replace("SETTINGS", text).replace("ROUTE", route)


def told(report: Report) -> dict[str, Any]:
    """What a Report says that is no time."""
    seen = {name: value for name, value in vars(report).items() if name not in ("seconds", "verdicts", "features")}
    return seen | {"verdicts": [str(verdict.signature) for verdict in report.verdicts]} | dict(report.features)


def bug(kind: str) -> str:
    return f'"inductor.cpp.inject_relu_bug_TESTING_ONLY": "{kind}"'


@pytest.fixture
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker has them: code that is found there tells less of its compile."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


# ---------------------------------------------------------------- the same reports


# texts and their verdicts: one whose kernel does not build and one that raises among them, and one with other flags;
# drawn programs, below, go the other routes
TOLD = {
    program("sin"): "agree",
    program("relu", bug("compile_error"), "vjp"): "raises",
    program("tanh", '"inductor.cpp.simdlen": 1', "backward_twice"): "agree",
    program("relu", bug("runtime_error"), "vjp"): "raises",
    program("relu", bug("accuracy"), "accumulate"): "wrong",
}


@pytest.mark.usefixtures("own_caches")
@pytest.mark.slow
def test_a_batch_gives_each_program_the_report_that_it_gets_alone() -> None:
    together = examine_batch(TASK, list(TOLD))
    assert list(map(told, together)) == [told(examine(TASK, text)) for text in TOLD]
    assert {report.text: report.verdict for report in together} == TOLD
    assert "CppCompileError" in str(together[1].verdicts[0].signature)


@pytest.mark.slow
@pytest.mark.usefixtures("own_caches")
def test_drawn_programs_report_the_same_alone_and_in_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (0, 8, 9, 49)
    together = explore_batch(TASK, Batch(numbers))
    # what is not for a batch left its code
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "alone"))
    alone = [explore(TASK, number) for number in numbers]
    assert list(map(told, together)) == list(map(told, alone))
    assert not any(report.rejected for report in together)
    routes = {parse(text).route.name for text in (*TOLD, *(report.text for report in together))}
    assert routes == set(ANY_BACKEND)


def test_what_is_not_for_a_batch_is_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it ran beside others")

    monkeypatch.setattr(batch.Member, "run", never)
    together = explore_batch(EAGER, Batch((3, 4, 5)))
    assert list(map(told, together)) == [told(explore(EAGER, number)) for number in (3, 4, 5)]
    [asked] = examine_batch(replace(EAGER, canary="gradient_missing"), [program("sin")])
    assert asked.verdict == "wrong" or asked.verdicts


def test_a_fault_of_ours_costs_its_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(trial: Any, *given: Any) -> Any:
        if "tanh" in str(trial.program):
            raise KeyError("ours")
        return rerun(trial, *given)

    rerun = batch.rerun_reference
    monkeypatch.setattr(batch, "rerun_reference", failing)
    found = examine_batch(EAGER, [program("sin"), program("tanh"), program("exp")])
    assert [report.rejected for report in found] == ["", "backfuzz itself failed: KeyError('ours')", ""]


def test_each_program_has_its_own_cpu_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(batch, "cpu_seconds", lambda: float(next(clock)))
    found = examine_batch(EAGER, [program("sin"), program("tanh")])
    assert [report.seconds["cpu"] for report in found] == [2.0, 2.0], "two turns of one second: drawn, ended"


# ---------------------------------------------------------------- deaths


@pytest.mark.parametrize(
    ("numbers", "without", "again"),
    [
        ((4, 5, 6), (), []),
        ((4, 5, 6), (4, 6), [(4, 6)]),
        ((4, 5, 6, 7), (4, 5, 6, 7), [(4, 5), (6, 7)]),
        ((4, 5, 6), (4, 5, 6), [(4,), (5, 6)]),
    ],
)
def test_who_was_not_at_fault_runs_again_and_all_in_halves_where_nobody_was(
    numbers: tuple[int, ...], without: Sequence[int], again: list[tuple[int, ...]]
) -> None:
    assert left_over(numbers, [None if n in without else Report("") for n in numbers]) == again


ENDS: dict[str, Callable[[], object]] = {
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "deadline": lambda: signal.pause(),
}


def end_badly(task: Task, given: tuple[Batch, int, str, str]) -> list[Report]:
    """A batch of which one program, if it is still there, ends the worker in a phase of its second turn; a number below
    zero: nobody, between two turns."""
    asked, victim, how, phase = given
    taken = batch.Member.take_turn
    places = [place for place, number in enumerate(asked.numbers) if number == victim]

    def work(place: int, turn: str) -> Report | None:
        journal().begin(TEXT.replace("f32[4])\nv0", f"f32[4], seed={asked.numbers[place]})\nv0"))
        journal().phase(phase)
        if place in places and turn == "end":
            ENDS[how]()
        return Report(f"{asked.numbers[place]}") if turn == "end" else None

    def take_turn(self: Any, asked_for: Callable[[], Report | None]) -> None:
        taken(self, lambda: work(self.place, getattr(asked_for, "__name__", "run")))
        if victim < 0 and len(asked.numbers) > 1 and self.place == 1:
            ENDS[how]()

    batch.Member.take_turn = take_turn  # type: ignore[method-assign]
    try:
        return explore_batch(task, asked)
    finally:
        batch.Member.take_turn = taken  # type: ignore[method-assign]


def all_reports(pool: Pool, numbers: tuple[int, ...], victim: int, how: str, phase: str) -> dict[int, Report]:
    """The Reports of these numbers, run again as a campaign does."""
    waiting, found = [numbers], dict[int, Report]()
    while waiting:
        asked = waiting.pop()
        future = pool.submit(end_badly, EAGER, (Batch(asked, 1.0), victim, how, phase), max(2, len(asked)))
        reports = pool.results(future, EAGER)[: len(asked)]
        found |= {number: report for number, report in zip(asked, reports, strict=True) if report is not None}
        waiting += left_over(asked, reports)
    return found


def check_attribution(pool: Pool, how: str, victim: int, phase: str) -> None:
    numbers = tuple(range(10, 18))
    found = all_reports(pool, numbers, victim, how, phase)
    assert sorted(found) == list(numbers)
    guilty = {n: [str(v.signature) for v in r.verdicts] for n, r in found.items() if r.verdicts}
    kind = "hangs" if how == "deadline" else "crashes"
    assert list(guilty) == [victim]
    assert guilty[victim][0].startswith(f"worker_survives/{kind}/{phase}/{how}")
    assert f"seed={victim})" in found[victim].text
    assert all(found[n].text == str(n) for n in numbers if n != victim)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "victim", "phase"), [("SIGSEGV", 10, "forward"), ("SIGKILL", 14, "backward"),
                         ("deadline", 17, "backward")])  # fmt: skip
def test_a_death_within_a_batch_is_its_programs_and_the_others_are_judged(
    pool: Pool, how: str, victim: int, phase: str
) -> None:
    check_attribution(pool, how, victim, phase)


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_a_death_is_attributed_in_every_try(how: str, tmp_path: Path) -> None:
    with Pool(2, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        for victim in (10, 13, 17):  # the first, one between, the last
            for phase in ("forward", "backward"):
                check_attribution(pool, how, victim, phase)


@pytest.mark.slow
def test_a_death_in_nobodys_turn_accuses_nobody(pool: Pool) -> None:
    found = all_reports(pool, (10, 11, 12, 13), -1, "SIGKILL", "backward")
    assert sorted(found) == [10, 11, 12, 13]
    assert not any(report.verdicts or report.rejected for report in found.values())
