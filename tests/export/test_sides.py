"""The two sides that a script runs."""

from __future__ import annotations

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


def test_a_program_whose_result_is_a_neighbour_has_no_reference_in_float64() -> None:
    text = TWO_OPS.replace("v1 = sum(v0, dim=(1,))", "v1 = nextafter(v0, v0)").replace(
        "f32[4], values", "f32[4, 4], values"
    )
    assert Sides(finding(text), parse(text)).steps_on_a_grid
    assert not Sides(finding(TWO_OPS), parse(TWO_OPS)).steps_on_a_grid
    assert "exact = eager" in repro(finding(text))
    assert "torch.isclose(compiled, eager, 0, 0, equal_nan=True)" in repro(finding(text, comparisons=(WORST,)))
