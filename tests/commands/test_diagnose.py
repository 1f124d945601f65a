"""`backfuzz diagnose`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.execution.messages import Report
from tests.commands.calls import FINDING, call


def test_diagnose_stores_and_tells_what_it_found(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"not diagnosed yet: backfuzz diagnose {FINDING.id}" in call("show", FINDING.id, "--db", db).stdout
    known = replace(FINDING, diagnosis={"ratio": "all zero"}, attachments={"x0.grad.txt": "[4]"})
    asked: list[Any] = []
    monkeypatch.setattr("fuzzer.commands.diagnose.diagnose_one", lambda *given: asked.append(given) or known)
    done = call("diagnose", FINDING.id[:4], "--device", "cpu", "--workers", "1", "--db", db)
    assert done.exit_code == 0
    assert asked == [(FINDING, "cpu", 1)]
    for text in (done.stdout, call("show", FINDING.id, "--db", db).stdout):
        assert "  ratio: all zero\n  attachments (in `backfuzz export`): x0.grad.txt\n" in text
    [row] = json.loads(call("diagnose", FINDING.id, "--db", db, "--json").stdout)
    assert row["diagnosis"] == {"ratio": "all zero"}


def test_diagnose_of_what_does_not_show_here_exits_2_and_stores_nothing(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.execution.verify.examine_all", lambda pool, asked: [Report(text) for _, text in asked])
    done = call("diagnose", FINDING.id, "--workers", "1", "--db", db)
    assert done.exit_code == 2
    assert f"{FINDING.id}: it does not show here (found with torch {torch.__version__})" in done.stderr
    assert db.read_bytes() == before
