"""An older ledger, brought up to date."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from fuzzer.judgement.verdict import Finding, Natural, Signature
from fuzzer.ledger import faults, file, schema
from fuzzer.ledger.rows import encode, to_row
from fuzzer.ledger.store import open_store
from fuzzer.ledger.title import title
from tests.ledger.found import RELU, TWO_OPS, finding

NOTE = "known: pytorch #180164 (pull request 2), and FlagGems pull request 2395"


def write_old(path: Path, *findings: Finding) -> None:
    """A ledger as it was before there were faults."""
    db = Database(sqlite3.connect(path, isolation_level=None))
    for step in schema.MIGRATIONS[:3]:
        step(db)
    for found in findings:
        row = to_row(encode(found))
        del row["unsupported"], row["natural"]
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
    assert known.occurrences == 1, "the count of a finding grew with copies"
    assert plain.state.name == "new"
    assert (unsupported.verdict, unsupported.decided) == (
        "unsupported",
        "setting inductor.constant_and_index_propagation",
    )
    assert path.read_bytes() == before


def test_a_ledger_of_before_natural_programs_opens_and_takes_them_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "findings.db"
    db = Database(sqlite3.connect(path, isolation_level=None))
    for step in schema.MIGRATIONS[:4]:
        step(db)
    known = finding(TWO_OPS, created="1", note="a note")
    row = to_row(encode(known))
    del row["natural"]
    db["variant"].insert(row)
    faults.enter(db, known)
    db.conn.execute(f"pragma application_id = {file._APPLICATION_ID}")
    db.conn.execute("pragma user_version = 4")
    db.conn.close()
    before = path.read_bytes()
    with open_store(path, create=False) as opened:
        [old], [fault] = opened.list(), opened.faults()
        assert (old, fault.variants) == (known, 1)
        assert path.read_bytes() == before
        grown = replace(
            known, natural=Natural(RELU, Signature("no_new_nonfinite", "wrong", "forward", "nonfinite"), "v0")
        )
        assert opened.set_natural(grown)
        assert not opened.set_natural(grown)
    with open_store(path, create=False) as opened:
        assert opened.list() == [grown]
        assert opened.faults() == (replace(fault, title=title(grown.grown)),)
    [shown] = Database(sqlite3.connect(path)).query("select * from variants")
    assert shown["natural"] == RELU


def test_what_the_rule_of_today_tells_apart_leaves_its_fault_and_takes_along_where_it_was_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, step = tmp_path / "findings.db", schema.MIGRATIONS.index(schema._join_anew)
    steps = [*schema.MIGRATIONS[:step], schema._add_scopes, schema._join_anew]  # the others find their tables made
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    first, second = finding(RELU, created="1"), finding(TWO_OPS, created="2")
    with open_store(path) as opened:
        opened.add(first)
        opened.add(second)
    db = Database(sqlite3.connect(path, isolation_level=None))
    old = db.conn.execute("select fault from variant where id = ?", [first.id]).fetchone()
    for table in ("variant", "occurrence"):  # as another rule had joined them
        db.conn.execute(f"update {table} set fault = ?", old)
    for table in ("fault", "life", "history"):
        db.conn.execute(f"delete from {table} where {'id' if table == 'fault' else 'fault'} <> ?", old)
    db.conn.execute(f"pragma user_version = {step + 1}")
    db.conn.close()
    with open_store(path, create=False) as opened:
        told = opened.faults()
        assert [fault.variants for fault in told] == [1, 1]
        assert [opened.fault_of(f.id).lives_on for f in (first, second)] == [told[0].lives_on] * 2
        assert told[0].lives_on
