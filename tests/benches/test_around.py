"""Mutants around given programs: counted by why none was made, and by cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benches import around
from benches.__main__ import main
from benches.around import around_summary
from click.testing import CliRunner

from fuzzer.campaign.parents import Parents
from tests.benches.here import Here

CHAIN = """program(1)
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = {op}(x0)
v1 = exp(v0)
backward(v1, cotangent(f32[3, 4], seed=2))
"""


def test_refusals_are_counted_by_why_and_turns_by_cause() -> None:
    parents = Parents({"a": ("",), "b": ("",), "c": ("",)})
    rows = [("a", 0.004, "", True), ("a", 0.002, "", True), ("b", 0.1, "no types: v0", False), ("b", 0.2, "", False)]
    figures = around_summary(parents, rows, ["c"])
    assert (figures["mutants"], figures["made"], figures["died"], figures["keep_the_parent's_ops"]) == (5, 3, 1, 2)
    assert figures["refused"] == {"no types": 1}
    assert figures["ms"] == {"least": 2.0, "median": 4.0, "90 %": 4.0, "most": 200.0, "mean": 68.7}
    assert (figures["asked"]["least"], figures["asked"]["most"], figures["made_of_a_cause"]["least"]) == (1, 2, 0)
    assert figures["rows"] == {"barren": ["c"], "died": ["c"]}


def test_the_bench_makes_mutants_of_what_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(around, "Pool", Here)
    for op in ("sin", "tanh", "softplus"):
        (tmp_path / f"{op}.prog").write_text(CHAIN.format(op=op))
    done = CliRunner().invoke(main, ["around", str(tmp_path), "--mutants", "12", "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output)
    assert (figures["mutants"], figures["causes"], figures["died"]) == (12, 3, 0)
    assert figures["made"] == figures["keep_the_parent's_ops"] >= 10
    assert figures["asked"] == {"least": 4, "median": 4, "90 %": 4, "most": 4}
