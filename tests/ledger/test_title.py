"""A fault's title."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fuzzer.judgement.verdict import Comparison, Finding, Signature
from fuzzer.ledger.title import title
from tests.ledger.found import RELU, TWO_OPS, finding

RAISED = Signature("compile_does_not_raise", "raises", "forward", "TypeError < lower < call")
LOST = Signature("metadata_agrees", "wrong", "backward", "None-ness")
DTYPE = Signature("metadata_agrees", "wrong", "forward", "dtype")
EAGERS = {"side": "eager wrong: at x0[0]"}
AUTOCAST = """program(1)
route("autograd")
x0 = leaf(f32[2])
with autocast(dtype=bf16):
    v0 = polar_parts(x0, x0)
backward(v0, cotangent(f32[2, 2]))
"""
LOOP = """program(1)
route("autograd")
x0 = leaf(f32[2])
with while_loop(x0):
    with hook(scale=2.0):
        v0 = neg(x0)
backward(v0, cotangent(f32[2]))
"""
SET = " under inductor.cpp.inject_relu_bug_TESTING_ONLY=accuracy"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (finding(TWO_OPS), "silent: zero gradient of torch.slice_scatter + torch.sum"),
        (finding(LOOP), "silent: zero gradient of torch.neg in Tensor.register_hook and while_loop"),
        (finding(RELU), f"silent: zero gradient of torch.nn.functional.relu{SET}"),
        (
            replace(finding(TWO_OPS), signature=RAISED, detail="the forward raised TypeError: no"),
            "forward of torch.slice_scatter + torch.sum raises TypeError",
        ),
        (finding(TWO_OPS, "eager-suspect"), "eager: silent: wrong gradient of torch.slice_scatter + torch.sum"),
        (
            finding(TWO_OPS, diagnosis=EAGERS),
            "eager: silent: wrong gradient of torch.slice_scatter + torch.sum",  # the compiled one is zero, and right
        ),
        (
            finding(TWO_OPS, diagnosis=EAGERS, comparisons=(Comparison("x0.grad", (0,), math.nan, 0, 0, 0, 1, 1),)),
            "eager: silent: NaN or infinity in the gradient of torch.slice_scatter + torch.sum",
        ),
        (
            finding(TWO_OPS, place={"backend": "eager", "against": "eager@cpu", "device": "cuda"}, stages={}),
            "eager: silent: zero gradient of torch.slice_scatter + torch.sum",
        ),
        (
            finding(TWO_OPS, place={"backend": "flag_gems", "against": "eager", "device": "cuda"}, stages={}),
            "FlagGems: silent: zero gradient of torch.slice_scatter + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=DTYPE, detail="v1 is float32[4], the reference's is bfloat16[4]"),
            "silent: result of torch.slice_scatter + torch.sum is float32, not bfloat16",
        ),
        (
            finding(AUTOCAST),
            "silent: zero gradient of torch.polar + torch.view_as_real under torch.autocast",
        ),
        (
            replace(finding(TWO_OPS), signature=LOST, detail="x0.grad is None, the reference's is float32[4, 4]"),
            "silent: no gradient of torch.slice_scatter + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=LOST, detail="x0.grad is float32[4, 4], the reference's is None"),
            "silent: a gradient of torch.slice_scatter + torch.sum where eager has none",
        ),
        (
            replace(finding(TWO_OPS), signature=Signature("worker_survives", "crashes", "forward", "SIGSEGV")),
            "result of torch.slice_scatter + torch.sum: crashes",
        ),
    ],
)
def test_a_title_says_what_is_wrong_of_which_operators_of_torch(found: Finding, expected: str) -> None:
    assert title(found) == expected
