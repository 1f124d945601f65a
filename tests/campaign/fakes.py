"""A pool that answers at once, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects.interestingness import CandidateCache
from fuzzer.campaign.suspects.queue import Triage
from fuzzer.campaign.suspects.suspect import Suspect, TriageOutcome, triage_suspect
from fuzzer.campaign.told.totals import Totals
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, Natural, Signature, Verdict
from fuzzer.language.text import parse
from fuzzer.workers.messages import Report, Task

SIGNATURE = Signature("gradients_agree", "wrong", "backward", "other")
OTHER = Signature("worker_survives", "crashes", "backward", "SIGSEGV")
PROGRAM = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
PLACE = {"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"}
EAGER = Place(Subject("eager", "cpu"), Subject("eager", "cpu"))


def wrong(signature: Signature = SIGNATURE, text: str = PROGRAM) -> Report:
    return Report(text, (Verdict(signature, "x0.grad[2]: compiled 0, eager 1"),), detectable=3, elements=4)


def as_natural(finding: Finding) -> Finding:
    """The finding whose minimal program is natural."""
    return replace(finding, natural=Natural(finding.program, finding.signature, finding.detail))


class FakePool:
    """Answers every task at once with the report that `answer` gives for (task, what)."""

    workers, deadline = 1, 90.0

    def health(self) -> dict[str, int]:
        return {}

    def engaged(self) -> bool:
        return False

    def silent_devices(self) -> list[str]:
        return []

    def __init__(self, answer: Callable[[Task, Any], Report]):
        self.answer = answer

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(
        self, function: Any, task: Task, what: Any, seconds: float | None = None, behind: bool = False
    ) -> Future[Report]:
        future: Future[Report] = Future()
        future.set_result(self.answer(task, what))
        return future

    def result(self, future: Future[Report], task: Task) -> Report:
        return future.result()

    def results(self, future: Future[Report], task: Task) -> list[Report | None]:
        return [future.result()]


def one(plan: Plan, report: Report | None = None, suspect: Suspect | None = None) -> TriageOutcome:
    pool: Any = FakePool(lambda task, what: report or wrong())
    return triage_suspect(
        suspect or Suspect(parse(PROGRAM), SIGNATURE), plan, CandidateCache(pool, plan.task), PLACE, "c1"
    )


def waiting(plan: Plan) -> Triage:
    made = Triage(plan, "c1", Totals(), lambda line: None)
    made.pool = FakePool(lambda task, what: wrong())  # type: ignore[assignment]
    return made


TANH = PROGRAM.replace("relu", "tanh").replace("seed=1", 'values="integers", seed=1')


def some_wrong(task: Task, what: Any) -> Report:
    """Programs 0, 1, ...: every second is wrong; those of triage: wrong."""
    return wrong() if not isinstance(what, int) or what % 2 else Report(PROGRAM, detectable=4, elements=4)
