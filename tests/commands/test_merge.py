"""`backfuzz merge`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, RELU, call, refused


def test_merge_tells_what_was_new_and_twice_nothing_is(db: Path) -> None:
    with open_store("other.db") as other:
        other.add(replace(FINDING, program=RELU.replace("relu", "exp")))
    done = call("merge", "other.db", "--db", db)
    assert done.stdout == "other.db: 1 fault(s), 1 finding(s), 1 program(s), 0 campaign(s) new\n"
    before = db.read_bytes()
    [row] = json.loads(call("merge", "other.db", "--db", db, "--json").stdout)
    assert row == {"ledger": "other.db", "faults": 0, "variants": 0, "occurrences": 0, "campaigns": 0}
    assert db.read_bytes() == before


def test_a_ledger_that_is_missing_is_told(db: Path) -> None:
    before = db.read_bytes()
    assert "name a ledger to take over" in refused(call("merge", "--db", db))
    assert "there is no nowhere.db" in refused(call("merge", "nowhere.db", "--db", db))
    assert db.read_bytes() == before
