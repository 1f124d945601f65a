"""A finding and a pool that answers at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fuzzer.diagnosis.diagnose import diagnose as diagnosed
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, Signature, Verdict
from fuzzer.language.text import parse, show
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task

TASK = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")))
SIGNATURE = Signature("gradients_agree", "wrong", "backward", "all-zero")
PROGRAM = """program(1)
settings({"inductor.max_fusion_size": 4, "inductor.inplace_buffers": False})
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = tanh(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""


def finding(program: str = PROGRAM, signature: Signature = SIGNATURE, **fields: Any) -> Finding:
    place = {"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"}
    return Finding(signature, "x0.grad[0]: compiled 0", program, show(parse(program)), place, 3, 3, **fields)


class FakePool:
    """Answers at once, or never."""

    workers = 2

    def __init__(self, answer: Callable[[Any, Task, Any], Report | None]):
        self.answer, self.given_up = answer, 0

    def submit(self, function: Any, task: Task, what: Any, seconds: float | None = None) -> Future[Report]:
        future: Future[Report] = Future()
        report = self.answer(function, task, what)
        if report is not None:
            future.set_result(report)
        return future

    def result(self, future: Future[Report], task: Task) -> Report:
        return future.result()

    def abandon(self, futures: set[Future[Report]]) -> None:
        self.given_up += len(futures)


def wrong_if(rule: Callable[[Task, dict[str, Any]], bool]) -> FakePool:
    """A pool where a program is wrong under some tasks and settings, and agrees else."""

    def answer(function: Any, task: Task, what: Any) -> Report:
        shows = function is examine and rule(task, dict(parse(what).settings))
        return Report(what, (Verdict(SIGNATURE, "it is wrong"),) if shows else ())

    return FakePool(answer)


def run(pool: Any, found: Finding | None = None, **more: Any) -> Finding:
    return diagnosed(found or finding(), TASK, pool, Path("."), **more)
