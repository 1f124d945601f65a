"""The bench that ranks kernels by the elements that they make deaf."""

from __future__ import annotations

import pytest
from benches import deaf
from benches.deaf import deaf_figures, deafened, measure_deafness

from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.workers.messages import Report, Task
from tests.benches.here import Here


def program(node: str) -> Program:
    head = 'program(1)\nroute("autograd")\nx0 = leaf(f32[8], seed=1)'
    return parse(f"{head}\n{node}\nbackward(v1, cotangent(f32[8], seed=2))\n")


def test_kernels_are_ranked_by_programs_then_by_elements() -> None:
    steep = program("v0 = mul_scalar(x0, other=1e9)\nv1 = sin(v0)")
    programs = [
        program("v0 = exp(x0)\nv1 = sin(v0)"),
        steep,
        steep,
        program("v0 = mul_scalar(x0, other=100.0)\nv1 = exp(v0)"),
    ]
    reports: list[tuple[int, Report]] = list(enumerate(deafened(Task(), made) for made in programs))
    figures = deaf_figures([*reports, (4, Report("", rejected="torch: no"))])
    assert (figures["programs"], figures["with_deaf_elements"]) == (4, 3)
    ranked = figures["kernels"]
    assert next(iter(ranked)) == "sin"
    assert ranked["sin"]["programs"] == 2
    assert ranked["sin"]["examples"] == [1, 2]
    assert figures["undetectable"]


def test_the_figures_are_of_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaf, "Pool", Here)
    figures = measure_deafness(Task(seed=3, cells=True), 3, 1)
    assert 0 < figures["programs"] <= 3
