"""`backfuzz list`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, RELU, call


def test_list_shows_every_finding_of_the_ledger_and_leaves_it_as_it_is(db: Path) -> None:
    before = db.read_bytes()
    text = call("list", "--db", db).stdout
    assert FINDING.id in text
    assert str(FINDING.signature) in text
    assert text.endswith("1 finding(s)\n")
    [row] = json.loads(call("list", "--db", db, "--json").stdout)
    assert (row["id"], row["class"], row["program"]) == (FINDING.id, "wrong", RELU)
    assert (row["fault"], row["state"]) == (f"F{FINDING.id[:7]}", "new")
    assert json.loads(call("list", "--db", db, "--json", "--class", "crashes").stdout) == []
    assert db.read_bytes() == before


def test_list_takes_filters_and_words(db: Path) -> None:
    def listed(*arguments: str) -> int:
        return len(json.loads(call("list", *arguments, "--db", db, "--json").stdout))

    torch = FINDING.place["torch"]
    for arguments in (("relu",), ("rel", "x0.grad"), ("--op", "relu"), ("--torch", torch), ("--lives-on", torch[:3]),
                      ("--device", "cpu"), ("--state", "new")):  # fmt: skip
        assert listed(*arguments) == 1, arguments
    for arguments in (("exp",), ("--op", "exp"), ("--device", "cuda"), ("--state", "known"), ("--lives-on", "1.0")):
        assert listed(*arguments) == 0, arguments


def test_what_torch_does_not_promise_is_listed_apart(db: Path) -> None:
    apart = replace(FINDING, signature=replace(FINDING.signature, pattern="other"), unsupported="setting x")
    with open_store(db) as store:
        store.add(apart)
    lines = call("list", "--db", db).stdout.splitlines()
    assert lines[0].startswith(FINDING.id)
    assert lines[1] == "1 of what torch does not promise (unsupported):"
    assert lines[2].split()[::2][:2] == [apart.id, "unsupported"]
