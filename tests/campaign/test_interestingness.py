"""What was asked and answered of a suspect: no candidate runs twice."""

from __future__ import annotations

import math
from typing import Any

from fuzzer.campaign.interestingness import CandidateCache
from fuzzer.campaign.plan import Plan
from fuzzer.execution.messages import Report, Task
from fuzzer.judgement.verdict import Verdict
from fuzzer.language.text import parse, show
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
