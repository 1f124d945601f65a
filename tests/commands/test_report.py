"""`backfuzz report`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call, refused


def test_it_writes_a_page_and_leaves_the_ledger_as_it_is(db: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    before = db.read_bytes()
    assert call("report", "--db", db).stdout == "report.html: 1 fault(s), 1 of them open\n"
    assert FINDING.program.strip() in (tmp_path / "report.html").read_text().replace("&#34;", '"')
    told = json.loads(call("report", "--db", db, "-o", "x.html", "--json").stdout)
    assert told == {"file": "x.html", "faults": 1, "open": 1}
    assert db.read_bytes() == before


def test_what_is_missing_is_said_in_a_line(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no none.db" in refused(call("report", "--db", "none.db"))
    assert "no campaign c9" in refused(call("report", "--db", db, "--campaign", "c9"))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else found(name, *a))
    assert refused(call("report", "--db", db)) == "backfuzz: report needs matplotlib: pip install 'backfuzz[report]'"


def test_the_faults_that_come_along_are_a_page_too(db: Path) -> None:
    pytest.importorskip("matplotlib")
    with open_store(SHIPPED, create=False) as store:
        faults = len(store.faults())
    assert call("report", "--shipped", "--db", db).stdout.startswith(f"report.html: {faults} fault(s)")
    assert "two pages" in refused(call("report", "--shipped", "--campaign", "c", "--db", db))
