"""Which suspect is looked into first, and which are left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzzer.campaign import triage as triages
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspect import Suspect
from fuzzer.findings.store import open_store
from fuzzer.judgement.verdict import UNSUPPORTED, Finding
from fuzzer.language.program import Program
from fuzzer.language.text import show
from tests.campaign.fakes import OTHER, PLACE, PROGRAM, SIGNATURE, TANH, waiting


def stored(**changes: Any) -> Finding:
    return replace(Finding(SIGNATURE, "detail", PROGRAM, PROGRAM, PLACE, 3, 3, created="2026-01-01"), **changes)


LONGER = PROGRAM.replace("seed=1", 'values="integers", seed=1')


def test_the_worst_class_is_minimized_first_and_then_the_shortest_program(plan: Plan) -> None:
    queue = waiting(plan)
    long, short, crash = Suspect(LONGER, SIGNATURE), Suspect(PROGRAM, SIGNATURE), Suspect(PROGRAM, OTHER)
    for suspect in (long, short, crash):
        queue.enqueue(suspect)
    assert queue.waiting == [crash, short, long]


def test_what_no_known_finding_explains_is_minimized_first(plan: Plan) -> None:
    with open_store(plan.db) as store:
        store.add(stored())
    queue = waiting(plan)
    known, unexplained = Suspect(PROGRAM, SIGNATURE), Suspect(TANH, SIGNATURE)
    for suspect in (known, unexplained):
        queue.enqueue(suspect)
    assert queue.waiting == [unexplained, known]


def test_a_signature_that_led_to_known_programs_too_often_is_only_minimized_where_another_op_is_at_work(
    plan: Plan,
) -> None:
    with open_store(plan.db) as store:
        store.add(stored())
    queue = waiting(plan)
    queue.fruitless[str(SIGNATURE)] = triages.MOST_FRUITLESS_COVERED
    queue.enqueue(Suspect(PROGRAM, SIGNATURE))
    assert queue.waiting == []
    queue.enqueue(Suspect(TANH, SIGNATURE))
    assert [s.text for s in queue.waiting] == [TANH]
    queue.fruitless[str(SIGNATURE)] = triages.MOST_FRUITLESS
    queue.waiting.clear()
    queue.enqueue(Suspect(TANH, SIGNATURE))
    assert queue.waiting == []


def test_of_many_suspects_with_one_signature_the_shortest_wait(plan: Plan) -> None:
    queue = waiting(plan)
    short = [PROGRAM.replace("seed=1", f"seed={i}") for i in range(triages.MOST_WAITING)]
    for text in (LONGER, *short, PROGRAM):
        queue.enqueue(Suspect(text, SIGNATURE))
    assert [s.text for s in queue.waiting] == short


def test_what_is_unsupported_is_not_minimized_and_tried_without_its_settings(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, offered = waiting(plan), list[Program]()
    monkeypatch.setattr(queue, "_offer_slip", offered.append)
    monkeypatch.setattr(triages, "triage_suspect", lambda *_: pytest.fail("it was minimized"))
    unsupported = replace(SIGNATURE, verdict=UNSUPPORTED)
    knob = PROGRAM.replace('route("', 'settings({"inductor.unroll_reductions_threshold": 1})\nroute("')
    for text in (knob, PROGRAM):
        queue._one(Suspect(text, unsupported))
    assert [show(program) for program in offered] == [PROGRAM]
    assert queue.fruitless[str(unsupported)] == 2
