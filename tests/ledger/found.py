"""Findings to write scripts of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fuzzer.judgement.verdict import Comparison, Finding, Signature
from fuzzer.language.program import extent

RELU = """program(1)
settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
route("autograd")
x0 = leaf(f32[3], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""
TWO_OPS = """program(1)
route("autograd")
x0 = leaf(f32[4, 4], seed=1)
x1 = leaf(f32[4, 2], values="integers", seed=2)
v0 = slice_scatter(x0, x1, dim=1, end=2)
v1 = sum(v0, dim=(1,))
backward(v1, cotangent(f32[4], values="integers", seed=3))
"""
PINNED = TWO_OPS.replace("program(1)", 'program(1)\nsettings({"triton.config": 2})')
WORST = Comparison("x0.grad", (0,), eager=1.0, compiled=0.0, float64=1.0, floor=0.0, wrong=1, total=2)
REGIONS = """program(1)
route("autograd")
x0 = leaf(f32[4, 4], values="integers", seed=1)
with autocast(dtype=bf16):
    v0 = mm(x0, x0)
    with checkpoint():
        v1 = relu(v0)
        v2 = sum(v1, dim=(1,))
backward(v2, cotangent(bf16[4], values="ones"))
"""


def finding(program: str, verdict: str = "wrong", **changes: Any) -> Finding:
    made = Finding(
        signature=Signature("gradients_agree", verdict, "backward", "all-zero"),
        detail="x0.grad is all zero where eager is not",
        original=program,
        program=program,
        place={"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0", "python": "3.11.7"},
        reproduced=3,
        runs=3,
    )
    return replace(made, **changes)


def storage(t: torch.Tensor) -> torch.Tensor:
    reach = extent(tuple(t.shape), t.stride(), t.storage_offset())
    return t.detach().as_strided((reach,), (1,), 0)
