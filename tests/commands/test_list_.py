"""`backfuzz list`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.calls import FINDING, RELU, call


def test_list_shows_every_finding_of_the_ledger_and_leaves_it_as_it_is(db: Path) -> None:
    before = db.read_bytes()
    text = call("list", "--db", db).stdout
    assert FINDING.id in text
    assert str(FINDING.signature) in text
    assert text.endswith("1 finding(s)\n")
    [row] = json.loads(call("list", "--db", db, "--json").stdout)
    assert (row["id"], row["class"], row["program"]) == (FINDING.id, "wrong", RELU)
    assert json.loads(call("list", "--db", db, "--json", "--class", "crashes").stdout) == []
    assert db.read_bytes() == before
