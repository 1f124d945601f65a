"""A ledger of before faults, brought up to date."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlite_utils import Database

from fuzzer.findings import file, schema
from fuzzer.findings.rows import encode, to_row
from fuzzer.findings.store import open_store
from fuzzer.judgement.verdict import Finding
from tests.findings.found import RELU, TWO_OPS, finding

NOTE = "known: pytorch #180164 (pull request 2), and FlagGems pull request 2395"


def write_old(path: Path, *findings: Finding) -> None:
    """A ledger as it was before there were faults."""
    db = Database(sqlite3.connect(path, isolation_level=None))
    for step in schema.MIGRATIONS[:3]:
        step(db)
    for found in findings:
        row = to_row(encode(found))
        del row["unsupported"]
        db["findings"].insert(row | {"triage": "duplicate", "seen": 5, "last_seen": found.created})
    db.conn.execute(f"pragma application_id = {file._APPLICATION_ID}")
    db.conn.execute("pragma user_version = 3")
    db.conn.close()


def test_findings_get_faults_with_the_states_of_their_notes_and_what_is_not_promised_is_told(tmp_path: Path) -> None:
    path = tmp_path / "findings.db"
    knob = TWO_OPS.replace('route("', 'settings({"inductor.constant_and_index_propagation": False})\nroute("')
    write_old(path, finding(RELU, note=NOTE, created="1"), finding(TWO_OPS, created="2"), finding(knob, created="3"))
    before = path.read_bytes()
    with open_store(path, create=False) as opened:
        known, plain, unsupported = opened.faults()
    url = "https://github.com/pytorch/pytorch"
    assert (known.state.name, known.state.issue) == ("known", f"{url}/issues/180164 {url}/pull/2")
    assert known.occurrences == 5
    assert plain.state.name == "new"
    assert (unsupported.verdict, unsupported.decided) == (
        "unsupported",
        "setting inductor.constant_and_index_propagation",
    )
    assert path.read_bytes() == before
