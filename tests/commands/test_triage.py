"""`backfuzz triage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call, refused

URL = "https://github.com/pytorch/pytorch/issues/1"


def state(db: Path) -> dict[str, Any]:
    [row] = json.loads(call("faults", "--db", db, "--json").stdout)
    found: dict[str, Any] = row
    return found


@pytest.mark.parametrize("reference", [FINDING.id, f"F{FINDING.id[:4]}"])
def test_triage_sets_the_state_of_a_fault_and_remembers_who(db: Path, reference: str) -> None:
    done = call("triage", reference, "known", "--issue", URL, "--note", "the same", "--db", db)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"F{FINDING.id[:7]}  known {URL}")
    row = state(db)
    assert (row["state"], row["issue"], row["note"]) == ("known", URL, "the same")
    time, what, who = row["history"][-1]
    assert (what, bool(time), bool(who)) == (f"new -> known {URL}: the same", True, True)


def test_what_was_searched_for_and_who_says_so_are_remembered(db: Path) -> None:
    call("triage", FINDING.id, "new", "--searched", "relu zero gradient", "--by", "somebody", "--db", db)
    told = [(what, who) for _, what, who in state(db)["history"]]
    assert told[-1] == ("searched the tracker for: relu zero gradient", "somebody")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((FINDING.id,), "the new state of"),
        ((FINDING.id, "known"), "known needs --issue"),
        ((FINDING.id, "fixed"), "fixed needs --fixed-in"),
        ((FINDING.id, "not-a-fault"), "not-a-fault needs --note"),
        ((FINDING.id, "known", "--issue", "soon"), "'soon' is no issue: write its URL, or a tracker's #number"),
        ((FINDING.id, "fixed", "--fixed-in", "next"), "'next' is no release"),
        (("F0000000", "confirmed"), "no fault F0000000"),
    ],
)
def test_a_state_without_what_it_needs_is_refused(db: Path, arguments: tuple[str, ...], told: str) -> None:
    before = db.read_bytes()
    assert told in refused(call("triage", *arguments, "--db", db))
    assert db.read_bytes() == before


def test_without_a_terminal_the_open_faults_are_listed(db: Path) -> None:
    done = call("triage", "--db", db)
    assert done.exit_code == 0
    assert f"F{FINDING.id[:7]}" in done.stdout
    assert "no terminal" in done.stderr
    with open_store(db) as store:
        assert store.faults()[0].state.name == "new"
