"""The dry run of a backward: what eager refuses, and where a wrong gradient could show."""

from __future__ import annotations

import pytest
import torch

from fuzzer.generation.dry_run import dry_gradients, has_detectable_gradient
from fuzzer.language.program import Program
from fuzzer.language.text import parse


def program(node: str, values: str = "normal") -> Program:
    return parse(
        f'program(1)\nroute("autograd")\nx0 = leaf(f32[8], values="{values}")\nv0 = {node}\n'
        "backward(v0, cotangent(f32[8]))\n"
    )


@pytest.mark.parametrize(
    ("node", "detectable"), [("sin(x0)", True), ("mul(x0, x0)", True), ("floor(x0)", False), ("sub(x0, x0)", False)]
)
def test_a_gradient_that_is_zero_everywhere_shows_no_fault(node: str, detectable: bool) -> None:
    assert has_detectable_gradient(program(node)) == detectable


def test_a_gradient_that_is_all_rounding_shows_no_fault() -> None:
    cancelled = parse("""program(1)
route("autograd")
x0 = leaf(f16[8])
v0 = exp(x0)
v1 = div(x0, v0)
v2 = mul(v1, v0)
v3 = sub(v2, x0)
backward(v3, cotangent(f16[8]))
""")
    gradients = dry_gradients(cancelled)
    assert gradients is not None
    assert bool(gradients["x0"].any())  # type: ignore[union-attr]
    assert not has_detectable_gradient(cancelled)


def test_what_eager_refuses_has_no_gradients_and_is_left_to_the_reference_side() -> None:
    refused = parse(
        'program(1)\nroute("autograd")\nx0 = leaf(f32[8])\nx1 = leaf(i64[8], values=below(2))\n'
        "v0 = exp(x0)\nv1 = take(v0, x1)\nv2 = add_(v0, v1)\nbackward(v2, cotangent(f32[8]))\n"
    )
    assert dry_gradients(refused) is None
    assert has_detectable_gradient(refused)


def test_what_is_changed_are_leaves_and_cotangents_that_float() -> None:
    wide = dry_gradients(program("sin(x0)"), torch.Tensor.double)
    assert wide is not None
    assert wide["x0"].dtype == torch.float64  # type: ignore[union-attr]
