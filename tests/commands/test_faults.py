"""`backfuzz faults`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call


def test_faults_are_a_table_and_rows_of_json(db: Path) -> None:
    before = db.read_bytes()
    text = call("faults", "--db", db).stdout
    for part in (f"F{FINDING.id[:7]}", "silent: wrong gradient of F.relu", "wrong", "new", "cpu", "2026-01-01"):
        assert part in text
    assert "1 fault(s): 1 new" in text
    [row] = json.loads(call("faults", "--db", db, "--json").stdout)
    assert (row["id"], row["class"], row["state"], row["occurrences"]) == (f"F{FINDING.id[:7]}", "wrong", "new", 1)
    assert row["lives_on"] == [f"{FINDING.place['torch'].split('+')[0]} cpu"]
    assert json.loads(call("faults", "exp", "--db", db, "--json").stdout) == []
    assert len(json.loads(call("faults", "relu", "--db", db, "--json").stdout)) == 1
    assert db.read_bytes() == before


def test_what_torch_does_not_promise_stands_apart(db: Path) -> None:
    with open_store(db) as store:
        store.add(replace(FINDING, signature=replace(FINDING.signature, pattern="other"), unsupported="setting x"))
    text = call("faults", "--db", db).stdout
    assert text.index("what torch does not promise (unsupported)") > text.index(f"F{FINDING.id[:7]}")
    assert "2 fault(s)" in text
