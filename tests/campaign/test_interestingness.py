"""What was asked and answered of a suspect: no candidate runs twice."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fuzzer.campaign.interestingness import CandidateCache, searches
from fuzzer.campaign.plan import Plan
from fuzzer.execution.messages import Report, Task
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Comparison, Verdict
from fuzzer.language.text import parse, show
from minimizer.same import DETERMINISTIC, FLAKY, Sameness
from tests.campaign.fakes import PROGRAM, SIGNATURE, FakePool


def test_no_candidate_runs_twice_and_what_nobody_waited_for_is_kept(plan: Plan) -> None:
    ran: list[str] = []

    def answer(task: Task, text: str) -> Report:
        ran.append(text)
        return Report(text, (Verdict(SIGNATURE, "it is wrong"),))

    pool: Any = FakePool(answer)
    cache = CandidateCache(pool, plan.task)
    one, other = parse(PROGRAM), parse(PROGRAM.replace("seed=1", "seed=2"))
    assert one != other
    assert next(iter(cache([one, other]))) == {SIGNATURE: math.inf}
    assert list(cache.running) == [show(other)]  # it ran, and its answer was not taken
    assert list(cache([other, one])) == [{SIGNATURE: math.inf}] * 2
    assert not cache.running
    assert sorted(ran) == sorted(map(show, (one, other)))


def off_by(floors: float) -> Verdict:
    return Verdict(SIGNATURE, "it is wrong", (Comparison("x0.grad", (0,), 1.0, 1.0 + floors, 1.0, 1.0, 1, 4),))


WRONG = off_by(4.0)


@pytest.mark.parametrize(
    ("shown", "how", "order"),
    [
        ({"graph": (WRONG, ""), "ir": (WRONG, "")}, DETERMINISTIC, ["graph", ""]),
        ({"graph": (None, ""), "ir": (WRONG, "")}, DETERMINISTIC, ["ir", ""]),
        ({"graph": (WRONG, "route: aoti"), "ir": (WRONG, "route: aoti")}, DETERMINISTIC, [""]),
        ({"graph": (None, ""), "ir": (off_by(1.5), "")}, DETERMINISTIC, [""]),
        ({"graph": (WRONG, ""), "ir": (WRONG, "")}, FLAKY, [""]),
    ],
    ids=["at the graph", "at the ir", "built after all", "too faintly", "not in every run"],
)
def test_a_search_is_at_the_first_stage_that_shows_the_verdict_and_then_where_it_is_built(
    shown: dict[str, tuple[Verdict | None, str]], how: Sameness, order: list[str]
) -> None:
    def answer(task: Task, text: str) -> Report:
        verdict, built = shown[task.place.subject.stage]
        return Report(text, () if verdict is None else (verdict,), built=built)

    pool: Any = FakePool(answer)
    cache = CandidateCache(pool, Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu"))))
    found = [looks.task.place.subject.stage for looks in searches(parse(PROGRAM), WRONG, cache, how)]
    assert found == order


def test_what_has_no_stages_is_searched_where_it_is() -> None:
    pool: Any = FakePool(lambda task, text: Report(text, (WRONG,)))
    cache = CandidateCache(pool, Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu"))))
    assert list(searches(parse(PROGRAM), WRONG, cache, DETERMINISTIC)) == [cache]
