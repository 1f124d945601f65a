"""Measuring: the ratios that a report brings along."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.diagnosis.measure import measure
from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Task
from tests.diagnosis.cases import PROGRAM

LIGHT = Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu")))


def test_every_tensor_that_differs_brings_the_ratios_of_wrong_to_right() -> None:
    found = measure(replace(LIGHT, canary="gradients_doubled"), PROGRAM)
    assert {name: float(ratio) for name, ratio in found.notes.items()} == pytest.approx(
        {"x0.grad elements": 2.0, "x0.grad sums": 2.0, "x0.grad worst element": 2.0}
    )


def test_where_eager_is_wrong_its_numbers_are_the_wrong_ones() -> None:
    found = measure(replace(LIGHT, canary="eager_gradient_scaled"), PROGRAM)
    assert found.verdict == "eager-suspect"
    assert float(found.notes["x0.grad worst element"]) != pytest.approx(1.0)
    assert "x0.grad elements" not in found.notes


def test_what_raises_is_reported_as_ever() -> None:
    place = Place(Subject("eager", "cpu"), Subject("aot_eager_decomp_partition", "cpu"))
    found = measure(Task(place=place, canary="compiler_raises"), PROGRAM.replace("tanh", "sigmoid"))
    assert (found.verdict, found.notes) == ("raises", {})


def test_what_agrees_and_what_torch_refuses_has_no_ratio() -> None:
    assert not measure(LIGHT, PROGRAM).notes
    assert "must be a matrix" in measure(LIGHT, PROGRAM.replace("tanh(x0)", "mm(x0, x0)")).rejected
