"""What travels between the campaign and its workers."""

from __future__ import annotations

import pickle
from dataclasses import replace

from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.workers.messages import Report, Task

CRASH = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "it died")
WRONG = Verdict(Signature("gradients_agree", "wrong", "backward", "other"), "x0.grad[2] is 0")


def test_a_report_is_of_the_class_of_its_first_verdict() -> None:
    assert Report("").verdict == "agree"
    assert Report("", (CRASH, WRONG)).verdict == "crashes"
    assert Report("", (WRONG,)).verdict == "wrong"
    assert Report("", rejected="torch refused it").verdict == "rejected"


def test_tasks_and_reports_come_back_as_they_were_sent() -> None:
    task = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu", 8)), seed=3, lacking=("fusion",))
    report = Report("program(1)\n", (WRONG,), notes={"ratio": "1.5"}, features={"operand": frozenset({7})})
    assert pickle.loads(pickle.dumps((task, report))) == (task, report)
    assert hash(task) == hash(replace(task))
