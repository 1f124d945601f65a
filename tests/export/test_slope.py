"""The script of a gradient that is no derivative: a difference quotient beside it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.export.script import repro
from fuzzer.judgement.verdict import NO_DERIVATIVE, Finding, Signature
from tests.ledger.found import TWO_OPS, finding
from tests.scripts import run


def of_eager(text: str) -> Finding:
    signature = Signature("gradients_are_derivatives", "eager-suspect", "backward", NO_DERIVATIVE)
    return replace(finding(text, "eager-suspect"), signature=signature, detail="x0.grad is no derivative: so")


def test_eager_alone_is_run() -> None:
    script = repro(of_eager(TWO_OPS))
    ast.parse(script)
    assert "torch.compile" not in script
    assert 'eager = gradients(f, *inputs())["x0.grad"]' in script


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 2])
def test_the_exit_code_says_whether_it_is_a_derivative(scale: int, tmp_path: Path) -> None:
    script = repro(of_eager(TWO_OPS)).replace('["x0.grad"]', f'["x0.grad"].mul({scale})')
    done = run(tmp_path, script)
    assert done.returncode == scale - 1, done.stdout + done.stderr
    told = {
        1: "x0.grad[0, 0]: eager 0, by a central difference 0",
        2: "x0.grad[2, 2]: eager -8, by a central difference -4",
    }
    assert told[scale] in done.stdout
    done = run(tmp_path, repro(of_eager(LARGE)).replace('["x0.grad"]', f'["x0.grad"].mul({scale})'))
    assert done.returncode == scale - 1, done.stdout + done.stderr
    assert "along a random direction: " in done.stdout


LARGE = """program(1)
route("autograd")
x0 = leaf(f32[20, 20], seed=1)
v0 = square(x0)
backward(v0, cotangent(f32[20, 20], seed=2))
"""
HALF = """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
v0 = to(x0, dtype=f16)
backward(v0, cotangent(f16[()], values="ones"))
"""


def test_a_half_precision_that_the_program_names_is_the_unit() -> None:
    made = of_eager(HALF)
    assert "for dtype in (eager.dtype, torch.float16))" in repro(made)
    assert "unit = torch.finfo(eager.dtype).eps" in repro(of_eager(TWO_OPS))
