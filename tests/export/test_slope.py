"""The script of a gradient that is no derivative: a difference quotient beside it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzzer.export.script import repro
from fuzzer.judgement.verdict import BOTH, COMPILED, NO_DERIVATIVE, Finding, Signature
from tests.ledger.found import TWO_OPS, finding
from tests.scripts import run


def of_eager(text: str) -> Finding:
    signature = Signature("gradients_are_derivatives", "eager-suspect", "backward", NO_DERIVATIVE)
    return replace(finding(text, "eager-suspect"), signature=signature, detail="x0.grad is no derivative: so")


def test_eager_alone_is_run() -> None:
    script = repro(of_eager(TWO_OPS))
    ast.parse(script)
    assert "torch.compile" not in script
    assert 'gradient = gradients(f, *inputs())["x0.grad"]' in script


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 2])
def test_the_exit_code_says_whether_it_is_a_derivative(scale: int, tmp_path: Path) -> None:
    script = repro(of_eager(TWO_OPS)).replace('["x0.grad"]', f'["x0.grad"].mul({scale})')
    done = run(tmp_path, script)
    assert done.returncode == scale - 1, done.stdout + done.stderr
    assert "by a central difference; eager has" in done.stdout


LOOP = """program(1)
route("autograd")
x0 = leaf(f32[()], requires_grad=False, values="ones")
x1 = leaf(f32[()], values="ones")
with while_loop(x0):
    v0 = mul(x0, x1)
backward(v0, cotangent(f32[()], values="ones"))
"""


def of_a_loop(side: str) -> Finding:
    return finding(LOOP, detail="x1.grad[]: compiled 1, eager 2, float64 2", diagnosis={"side": f"{side}: so"})


def test_torchs_own_control_flow_is_held_against_its_forward_where_eager_is_wrong_too() -> None:
    script = repro(of_a_loop(BOTH))
    assert "derivative = " in script
    assert "eager has {eager:.9g}, compiled {compiled:.9g}" in script
    assert "eager 2" not in script  # a value of the trial, whose eager is a loop in Python
    assert "derivative = " not in repro(of_a_loop(COMPILED))


def test_a_half_precision_that_the_program_names_is_the_unit() -> None:
    loop = LOOP.replace("with while_loop(x0):\n    v0 = mul(x0, x1)", "v0 = mul(x0, x1)\nv1 = to(v0, dtype=f16)")
    made = of_eager(loop.replace("backward(v0, cotangent(f32", "backward(v1, cotangent(f16"))
    assert "for dtype in (gradient.dtype, torch.float16))" in repro(made)
    assert "unit = (gradient.double() * along).sum().item(), torch.finfo(gradient.dtype).eps" in repro(of_eager(LOOP))


@pytest.mark.slow
def test_the_script_of_a_loop_exits_with_1_if_torchs_own_loop_is_wrong_in_eager(tmp_path: Path) -> None:
    x = torch.ones((), requires_grad=True)
    loop = torch._higher_order_ops.while_loop
    _, y = loop(lambda i, v: i < 2, lambda i, v: (i + 1, v * x), (torch.zeros((), dtype=torch.int64), torch.ones(())))
    (own,) = torch.autograd.grad(y, x)
    done = run(tmp_path, repro(of_a_loop(BOTH)))
    assert done.returncode == int(own.item() != 2), done.stdout + done.stderr
    assert "compiled " in done.stdout
