"""What a program exercises, with cotangents as the compiler will see them."""

from __future__ import annotations

import pytest

from fuzzer.coverage.features import Words
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import parse
from fuzzer.trial.exercise import trial_words, with_seen_cotangents
from fuzzer.trial.pipeline import run_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")))
BROADCAST = """program(1)
route("ROUTE")
x0 = leaf(f32[4, 13, 33], seed=1)
x1 = leaf(f32[4, 6, 33], seed=2)
v0 = slice_scatter(x0, x1, dim=1, start=0, end=6)
END
"""
SUMMED = 'v1 = sum(v0, dim=1)\nbackward(v1, cotangent(f32[4, 33], values="ones"))'
DECLARED = "backward(v0, cotangent(f32[4, 13, 33], stride=(33, 0, 1)))"
ARRIVES = "backward cotangent > slice_scatter 0: broadcast"


def words(text: str) -> Words:
    return trial_words(run_reference(parse(text), EAGER, Journal(None)))


@pytest.mark.parametrize(("route", "end", "there"), [("autograd", SUMMED, True), ("vjp", SUMMED, True),
                         ("vjp", DECLARED, True), ("autograd", DECLARED, False)])  # fmt: skip
def test_a_cotangent_counts_as_the_compiler_will_see_it(route: str, end: str, there: bool) -> None:
    found = words(BROADCAST.replace("ROUTE", route).replace("END", end))
    assert (ARRIVES in found["edge"]) == there
    assert ("backward slice_scatter 0: f32 rank 3 broadcast" in found["operand"]) == there
    assert "forward slice_scatter 0: f32 rank 3 contiguous" in found["operand"]


def test_only_a_declared_layout_that_does_not_act_is_replaced() -> None:
    program = parse(BROADCAST.replace("ROUTE", "autograd").replace("END", SUMMED))
    assert with_seen_cotangents(program) == program
