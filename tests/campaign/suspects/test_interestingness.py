"""What was asked and answered of a suspect: no candidate runs twice."""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import Any

import pytest

from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects.interestingness import CandidateCache, minimize_with, searches
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Comparison, Signature, Verdict
from fuzzer.language.text import parse, show
from fuzzer.workers.messages import Report, Task
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


def test_verdicts_that_another_lane_pushed_out_are_asked_for_again(plan: Plan) -> None:
    ran: list[str] = []

    class Busy(CandidateCache):
        def start(self, text: str) -> Future[Report] | None:
            future = super().start(text)
            if len(ran) == 1:  # another lane takes the answer, and many more
                self.collect()
                del self.kept[text], self.verdicts[text]
            return future

    def answer(task: Task, text: str) -> Report:
        ran.append(text)
        return Report(text, (WRONG,))

    pool: Any = FakePool(answer)
    assert Busy(pool, plan.task).verdicts_of(parse(PROGRAM)) == (WRONG,)
    assert len(ran) == 2


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


HUNG = Verdict(Signature("worker_survives", "hangs", "backward", "deadline"), "it hangs")
# relu hangs; the rest is in its way
HANGS = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
x1 = leaf(f32[4], seed=2)
v0 = tanh(x1)
v1 = relu(x0)
v2 = mul(v0, v1)
backward(v2, cotangent(f32[4], values="ones"))
"""


def test_while_a_hang_is_minimized_it_costs_its_deadline_once_and_then_a_few_sound_candidates() -> None:
    spent: list[tuple[str, float]] = []

    class Timed(FakePool):
        def submit(self, function: Any, task: Task, what: Any, seconds: float | None = None) -> Future[Report]:
            spent.append((what, (self.deadline if seconds is None else seconds) if "relu" in what else 3.0))
            return super().submit(function, task, what)

    def answer(task: Task, text: str) -> Report:
        if "relu" in text:
            return Report(text, (HUNG,))
        return Report(text, seconds={"reference": 1.0, "subject": 2.0})

    pool: Any = Timed(answer)
    cache = CandidateCache(pool, Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu"))))
    hasty, patient = searches(parse(HANGS), HUNG, cache, DETERMINISTIC)
    assert patient is cache, "what is only slow may seem to hang: then it is searched once more"
    found = minimize_with(parse(HANGS), HUNG, hasty)
    assert [node.op for node in found.program.nodes] == ["relu"]
    hung = [seconds for text, seconds in spent if "relu" in text]
    assert hung[0] == pool.deadline, "nothing has ended before"
    assert hung[1:] == [15.0] * (len(hung) - 1), "five times 3 s"
    assert len(hung) > 2
