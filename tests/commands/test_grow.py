"""`backfuzz grow`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.execution.messages import Report
from fuzzer.judgement.verdict import Natural
from tests.commands.calls import FINDING, RELU, call

WIDE = RELU.replace("[4]", "[3, 3]")


def test_grow_stores_the_natural_program_beside_the_minimal_one(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(FINDING, natural=Natural(WIDE, FINDING.signature, "x0.grad[0]: compiled 7, eager 1"))
    asked: list[Any] = []
    found = (known, ("usual_sizes",), 3)
    monkeypatch.setattr("fuzzer.commands.grow.grow_one", lambda *given: asked.append(given) or found)
    done = call("grow", FINDING.id[:4], "--device", "cpu", "--workers", "1", "--db", db)
    assert done.exit_code == 0
    assert asked == [(FINDING, "cpu", 1)]
    assert done.stdout.startswith(f"{FINDING.id}: usual_sizes (3 programs asked)\nx0.grad[0]: compiled 7, eager 1\n")
    shown = call("show", FINDING.id, "--db", db).stdout
    assert f"the natural program: x0.grad[0]: compiled 7, eager 1\n\n{WIDE}" in shown
    assert RELU in shown
    [row] = json.loads(call("grow", FINDING.id, "--db", db, "--json").stdout)
    assert (row["natural"]["program"], row["steps"]) == (WIDE, ["usual_sizes"])


def test_grow_of_what_does_not_show_here_exits_2_and_stores_nothing(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.execution.verify.examine_all", lambda pool, asked: [Report(text) for _, text in asked])
    done = call("grow", FINDING.id, "--workers", "1", "--db", db)
    assert done.exit_code == 2
    assert f"{FINDING.id}: it does not show here" in done.stderr
    assert db.read_bytes() == before
