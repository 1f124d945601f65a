"""The two sides that a script runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.export.script import repro
from fuzzer.export.sides import Sides
from fuzzer.language.text import parse
from tests.ledger.found import RELU, TWO_OPS, WORST, finding


def test_dynamic_and_other_backends_reach_torch_compile() -> None:
    dynamic = RELU.replace('route("autograd")', 'route("autograd", dynamic=True)')
    text = repro(finding(dynamic, place={"backend": "aot_eager", "against": "eager", "device": "cpu"}))
    assert 'torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)' in text


def test_two_places_are_run_against_each_other() -> None:
    text = repro(finding(RELU, place={"backend": "eager@cuda", "against": "eager@cpu", "device": "cuda"}))
    assert 'compiled = gradients(f, *inputs("cuda"))' in text
    assert 'eager = gradients(f, *inputs("cpu"))' in text


@pytest.mark.parametrize("node", ["nextafter(v0, v0)", "fmod_scalar(v0, other=0.1)"])
def test_a_result_that_depends_on_the_dtype_has_no_reference_in_float64(node: str) -> None:
    text = TWO_OPS.replace("v1 = sum(v0, dim=(1,))", f"v1 = {node}").replace("f32[4], values", "f32[4, 4], values")
    assert Sides(finding(text), parse(text)).depends_on_dtype
    assert not Sides(finding(TWO_OPS), parse(TWO_OPS)).depends_on_dtype
    exact = repro(finding(text, comparisons=(WORST,)))
    assert "exact = eager" in exact
    assert "torch.isclose(compiled, eager, 0, 0, equal_nan=True)" in exact
    rounded = repro(finding(text, comparisons=(replace(WORST, floor=0.1),)))
    assert "exact = eager" not in rounded
