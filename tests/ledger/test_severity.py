"""How severe a finding is, and which finding represents a fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.judgement.verdict import CORRUPT_HEAP, Finding, Signature
from fuzzer.ledger.diagnosed import NO_MORE
from fuzzer.ledger.severity import label, severity_of
from fuzzer.ledger.store import open_store
from tests.ledger.found import WORST, finding

PLAIN = """program(1)
route("autograd")
x0 = leaf(f32[3], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""
LOUD = Signature("compile_does_not_raise", "raises", "backward", "TypeError < f")
HEAP = Signature("worker_survives", "crashes", "backward", CORRUPT_HEAP)
UNDER_A_SETTING = PLAIN.replace("route", 'settings({"inductor.freezing": True})\nroute')
DEMANDED = PLAIN.replace("route", 'settings({"inductor.fallback_random": True})\nroute')
HOOKED = PLAIN.replace("v0 = relu(x0)\n", "with hook(x0, scale=2.0):\n    v0 = relu(x0)\n")
DYNAMIC = PLAIN.replace('"autograd"', '"autograd", dynamic=True')
COMPILED = PLAIN.replace('"autograd"', '"compiled_autograd"')
VJP = PLAIN.replace('"autograd"', '"vjp"')
NONFINITE = PLAIN.replace("seed=1", 'values="nonfinite", seed=1')
STATED = PLAIN.replace("seed=1", "values=data([1.0, 1e+30, 2.0])")
OVERLAPPING = PLAIN.replace("f32[3], seed=1", "f32[3, 2], stride=(1, 1), seed=1").replace("f32[3], v", "f32[3, 2], v")
BROADCAST = PLAIN.replace("f32[3], seed=1", "f32[3, 2], stride=(1, 0), seed=1").replace("f32[3], v", "f32[3, 2], v")


def of(text: str, signature: Signature | None = None, **fields: object) -> Finding:
    made = finding(text)
    return replace(made, signature=signature or made.signature, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (of(PLAIN), "S1"),
        (of(DEMANDED), "S1"),  # no such program runs without it
        (of(BROADCAST), "S1"),
        (of(PLAIN, HEAP), "S1"),
        (of(HOOKED), "S2"),
        (of(VJP), "S2"),
        (of(DYNAMIC), "S2"),
        (of(UNDER_A_SETTING), "S2"),
        (of(PLAIN, Signature("metadata_agrees", "wrong", "forward", "dtype")), "S2"),
        (of(PLAIN, LOUD), "S3"),
        (of(DYNAMIC, LOUD), "S3"),
        (of(PLAIN, replace(HEAP, pattern="SIGSEGV")), "S3"),
        (of(NONFINITE), "S4"),
        (of(STATED), "S4"),
        (of(PLAIN, comparisons=(replace(WORST, eager=float("inf")),)), "S4"),
        (of(PLAIN, Signature("finiteness_agrees", "nonfinite-differs", "backward", "NaN for finite")), "S4"),
        (of(COMPILED, LOUD), "S5"),
        (of(UNDER_A_SETTING, LOUD), "S5"),
        (of(OVERLAPPING), "S5"),
        (of(PLAIN, unsupported="operator torch._x"), "S5"),
    ],
)
def test_a_finding_has_a_level_and_says_why_it_is_not_the_first(found: Finding, level: str) -> None:
    severity = severity_of(found)
    assert str(severity) == label(severity.points) == level
    assert severity.reasons or level == "S1"


def test_compiled_garbage_where_eager_is_finite_is_no_edge() -> None:
    assert str(severity_of(of(PLAIN, comparisons=(replace(WORST, compiled=float("nan")),)))) == "S1"


def test_within_a_level_what_needs_more_rare_things_comes_later() -> None:
    both = HOOKED.replace('"autograd"', '"autograd", dynamic=True')
    assert severity_of(of(HOOKED)).points < severity_of(of(both)).points
    assert severity_of(of(both)).reasons == ("hook", "dynamic sizes")


def test_the_most_severe_finding_that_reproduces_represents_a_fault(tmp_path: Path) -> None:
    same = {"stages": {"eager": "agree", "aot_eager": "wrong"}, "ablation": {"relu left to ATen": "agree"}}
    rare, plain = of(HOOKED, **same), of(PLAIN.replace("seed=1", "seed=12"), **same)
    gone = replace(of(PLAIN, **same), diagnosis={"side": f"{NO_MORE} on torch 2.13.0"})
    with open_store(tmp_path / "ledger.db") as store:
        for one in (rare, plain, gone):
            store.add(one)
        [fault] = store.faults()
        assert (fault.variants, label(fault.severity)) == (3, "S1")
        assert store.representatives() == {fault.id: plain}
        assert [v.id for v in store.variants(fault.id)] == [plain.id, rare.id, gone.id]
        assert store.get(fault.id) == plain
