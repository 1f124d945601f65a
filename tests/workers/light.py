"""A small program that is compiled at once."""

from __future__ import annotations

from fuzzer.judgement.trial import Place, Subject, Trial
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

BODY = """x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[4, 2], seed=2)
v0 = mm(x0, x1)
v1 = sin(v0)
backward(v1, cotangent(f32[3, 2], seed=3))
"""
# compiles graphs, and no code
LIGHT = Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu")))


def trial(route: str = "autograd", settings: str = "", body: str = BODY, task: Task = LIGHT) -> Trial:
    return run_both(parse(f'program(1)\n{settings}route("{route}")\n{body}'), task, Journal(None))
