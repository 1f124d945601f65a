"""The script of torch's own control flow that is wrong in eager too: the same in plain Python beside it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.export.loops import plain_loops
from fuzzer.export.script import repro
from fuzzer.judgement.verdict import BOTH, COMPILED, Finding
from fuzzer.language import control
from fuzzer.language.text import parse
from tests.ledger.found import WORST, finding
from tests.scripts import run

LOOP = """program(1)
route("autograd")
x0 = leaf(f32[()], requires_grad=False, values="ones")
x1 = leaf(f32[()], values="ones")
with while_loop(x0):
    v0 = mul(x0, x1)
backward(v0, cotangent(f32[()], values="ones"))
"""


def of_a_loop(side: str, program: str = LOOP) -> Finding:
    worst = replace(WORST, name="x1.grad", index=())
    detail = "x1.grad[]: compiled 1, eager 2, float64 2"
    return finding(program, detail=detail, comparisons=(worst,), diagnosis={"side": f"{side}: so"})


def test_where_eager_is_wrong_too_the_reference_is_plain_python() -> None:
    script = repro(of_a_loop(BOTH))
    ast.parse(script)
    assert "= control.while_loop(" in script
    assert script.index("eager = ") < script.index("control = loops") < script.index("plain = ")
    assert "eager 2" not in script  # a value of the trial, whose eager is a loop in Python
    alone = repro(of_a_loop(COMPILED))
    assert "= torch._higher_order_ops.while_loop(" in alone
    assert "loops" not in alone


ALL = """program(1)
route("autograd")
x0 = leaf(f32[3, 2], values="ones")
x1 = leaf(f32[2], values="ones")
with cond(x0):
    v0 = sin(x0)
with map(v0):
    v1 = cos(v0)
with scan(x1, v1, reverse=True):
    v2 = mul(x1, v1)
    v3 = add(v2, x1)
with while_loop(v3):
    v4 = mul(v3, v3)
backward(v4, cotangent(f32[2], values="ones"))
"""


def test_the_plain_forms_compute_what_a_trials_eager_does() -> None:
    space: dict[str, Any] = {"torch": torch}
    exec("\n".join(plain_loops(parse(ALL))), space)
    loops, x = space["loops"], torch.arange(6.0).reshape(3, 2)
    calls: list[Callable[[Any], Any]] = [
        lambda c: c.cond(torch.tensor(True), lambda t: (t + 1,), lambda t: (t + 2,), (x,)),
        lambda c: c.cond(torch.tensor(False), lambda t: (t + 1,), lambda t: (t + 2,), (x,)),
        lambda c: c.map(lambda row: (row.sin(), row.sum()), x),
        lambda c: c.scan(lambda carry, row: (carry * 2 + row, (carry - row,)), torch.ones(2), x),
        lambda c: c.scan(lambda carry, row: (carry * 2 + row, (carry - row,)), torch.ones(2), x, reverse=True),
        lambda c: c.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x)),
    ]
    for call in calls:
        torch.testing.assert_close(call(loops), call(control), rtol=0, atol=0)


@pytest.mark.slow
def test_the_script_exits_with_1_if_torchs_own_loop_is_wrong_in_eager(tmp_path: Path) -> None:
    x = torch.ones((), requires_grad=True)
    loop = torch._higher_order_ops.while_loop
    _, y = loop(lambda i, v: i < 2, lambda i, v: (i + 1, v * x), (torch.zeros((), dtype=torch.int64), torch.ones(())))
    (own,) = torch.autograd.grad(y, x)
    done = run(tmp_path, repro(of_a_loop(BOTH)))
    assert done.returncode == int(own.item() != 2), done.stdout + done.stderr
    assert "in plain Python 2.0, float64 2.0" in done.stdout
