"""The two sides that a script runs."""

from __future__ import annotations

from fuzzer.export.script import repro
from tests.ledger.found import RELU, finding


def test_dynamic_and_other_backends_reach_torch_compile() -> None:
    dynamic = RELU.replace('route("autograd")', 'route("autograd", dynamic=True)')
    text = repro(finding(dynamic, place={"backend": "aot_eager", "against": "eager", "device": "cpu"}))
    assert 'torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)' in text


def test_two_places_are_run_against_each_other() -> None:
    text = repro(finding(RELU, place={"backend": "eager@cuda", "against": "eager@cpu", "device": "cuda"}))
    assert 'compiled = gradients(f, *inputs("cuda"))' in text
    assert 'eager = gradients(f, *inputs("cpu"))' in text
