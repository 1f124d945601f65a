"""A suspect held against known faults, by experiments that are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuzzer.campaign.recognition import fault_shown
from fuzzer.execution.messages import Report, Task
from fuzzer.findings.recognise import STAGE, Known, Question
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Verdict
from tests.campaign.fakes import OTHER, PROGRAM, SIGNATURE, FakePool

TASK = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")))
LEFT_TO_ATEN = Question("aten.threshold_backward.default left to ATen", True)
BEFORE = Question(f"{STAGE}aot_eager", True)


def known(*questions: Question) -> Known:
    return Known("F0123456", frozenset({SIGNATURE}), frozenset({frozenset({"relu"})}), questions, True)


def pool(agrees: Callable[[Task], bool]) -> tuple[Any, list[Task]]:
    ran: list[Task] = []

    def answer(task: Task, text: str) -> Report:
        ran.append(task)
        return Report(text, () if agrees(task) else (Verdict(SIGNATURE, "it is wrong"),))

    return FakePool(answer), ran


def test_what_makes_the_fault_vanish_is_tried_and_decides() -> None:
    gone, ran = pool(lambda task: task.lacking == ("aten.threshold_backward.default",))
    assert fault_shown(PROGRAM, SIGNATURE, [known(LEFT_TO_ATEN)], TASK, gone) == "F0123456"
    assert [task.lacking for task in ran] == [("aten.threshold_backward.default",)]
    assert ran[0].fresh
    still, _ = pool(lambda task: False)
    assert fault_shown(PROGRAM, SIGNATURE, [known(LEFT_TO_ATEN)], TASK, still) is None


def test_a_stage_is_asked_as_a_backend() -> None:
    gone, ran = pool(lambda task: task.place.subject.backend == "aot_eager")
    assert fault_shown(PROGRAM, SIGNATURE, [known(BEFORE)], TASK, gone) == "F0123456"
    assert len(ran) == 1


@pytest.mark.parametrize("question", [Question("no.such_setting=1", True), Question(f"{STAGE}no_such_stage", True)])
def test_an_experiment_that_there_is_not_explains_nothing(question: Question) -> None:
    gone, ran = pool(lambda task: True)
    assert fault_shown(PROGRAM, SIGNATURE, [known(question)], TASK, gone) is None
    assert ran == []


def test_nothing_runs_for_a_suspect_that_no_fault_resembles() -> None:
    gone, ran = pool(lambda task: True)
    assert fault_shown(PROGRAM, OTHER, [known(LEFT_TO_ATEN)], TASK, gone) is None
    assert ran == []
