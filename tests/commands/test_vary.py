"""`backfuzz vary`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, RELU, call
from tests.ledger.varied import SHAPES, scope

SCOPE = scope(*SHAPES, finding=FINDING.id)


def test_vary_stores_the_scope_of_a_finding_and_prints_its_tables(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("fuzzer.commands.shared.again.vary_one", lambda *given: asked.append(given) or SCOPE)
    done = call("vary", FINDING.id[:4], "--device", "cpu", "--workers", "1", "--seconds", "30", "--db", db)
    assert done.exit_code == 0
    assert asked == [(FINDING, "cpu", 1, 30.0)]
    lines = done.stdout.splitlines()
    assert lines[0] == FINDING.id
    assert lines[1].startswith("fails in f32; any of 6 sizes and attributes tried; ")
    assert lines[1].endswith("(torch 2.11.0, cpu, at the stage ir)")
    assert "  20           7            5      1.53846 (20/13)       1.53846" in lines
    with open_store(db) as opened:
        assert opened.scopes(FINDING.id) == (SCOPE,)
    [told] = json.loads(call("vary", FINDING.id, "--db", db, "--json").stdout)
    assert told["formula"] == "n / (n - k), n = x0.shape[1], k = x1.shape[1]"


def test_vary_of_a_file_stores_nothing(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.commands.shared.again.vary_one", lambda *given: SCOPE)
    Path("x.prog").write_text(RELU)
    done = call("vary", "x.prog", "--db", db)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "x.prog")
    assert db.read_bytes() == before


def test_vary_of_what_does_not_show_here_exits_2_and_stores_nothing(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.commands.shared.again.vary_one", lambda *given: None)
    done = call("vary", FINDING.id, "--db", db)
    assert done.exit_code == 2
    assert f"{FINDING.id}: it does not reproduce here (found with torch {FINDING.place['torch']})" in done.stderr
    assert db.read_bytes() == before
