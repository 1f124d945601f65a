"""`backfuzz triage`."""

from __future__ import annotations

import json
from dataclasses import replace
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


# ---------------------------------------------------------------- merges and splits

OTHER = replace(FINDING, program=FINDING.program.replace("relu", "exp"), created="2026-01-02T00:00:00+00:00")
ALIKE = replace(FINDING, program=FINDING.program.replace("seed=1", "seed=2"), created="2026-01-03T00:00:00+00:00")


@pytest.fixture
def three(db: Path) -> Path:
    """A ledger with two faults, of which the first has two findings."""
    with open_store(db) as store:
        store.add(OTHER)
        store.add(ALIKE)
        assert sorted(fault.variants for fault in store.faults()) == [1, 2]
    return db


def test_two_faults_are_merged_and_the_merge_is_undone(three: Path) -> None:
    done = call("triage", "--merge", FINDING.id, OTHER.id[:6], "--note", "one kernel", "--by", "me", "--db", three)
    assert done.stdout.startswith(f"F{FINDING.id[:7]}  new  3 finding(s)"), done.output
    row = state(three)
    assert row["history"][-1][1:] == [f"merged with F{OTHER.id[:7]} (new): one kernel", "me"]
    done = call("triage", "--undo", OTHER.id, "--db", three)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [f"F{f.id[:7]}" for f in (FINDING, OTHER)]


def test_a_finding_is_split_off_and_the_split_is_undone(three: Path) -> None:
    done = call("triage", "--split", FINDING.id, ALIKE.id[:6], "--by", "me", "--db", three)
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        [f"F{f.id[:7]}", "new", "1"] for f in (FINDING, ALIKE)
    ]
    assert call("triage", "--undo", FINDING.id, "--db", three).stdout.startswith(
        f"F{FINDING.id[:7]}  new  2 finding(s)"
    )


def test_proposals_are_a_line_each_with_the_command_to_type(three: Path) -> None:
    call("triage", OTHER.id, "confirmed", "--note", f"as F{FINDING.id[:7]}", "--db", three)
    done = call("triage", "--proposals", OTHER.id, "--db", three)
    head, *lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert (done.exit_code, head) == (0, ["kind", "faults", "findings", "why", "command"])
    names = f"F{FINDING.id[:7]} F{OTHER.id[:7]}"
    assert lines[0] == ["merge", names, "", f"notes say: as F{FINDING.id[:7]}", f"backfuzz triage --merge {names}"]
    assert done.stderr == f"{len(lines)} proposal(s): {len(lines)} merge(s), 0 split(s)\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--merge", FINDING.id), "--merge needs two faults or more"),
        (("--split", FINDING.id), "--split needs a fault and some of its findings"),
        (("--split", FINDING.id, OTHER.id), "is no finding of"),
        (("--split", FINDING.id, FINDING.id, ALIKE.id), "all of the 2 finding(s)"),
        (("--undo",), "--undo needs a fault"),
        (("--undo", FINDING.id, OTHER.id), "--undo takes one fault, not 2"),
        (("--undo", FINDING.id), "was neither merged nor split"),
        (("--merge", "--split", FINDING.id, OTHER.id), "--merge and --split are two things"),
        (("--merge", FINDING.id, OTHER.id, "--issue", URL), "--merge takes no --issue"),
        ((FINDING.id, "confirmd"), "did you mean confirmed?"),
        ((FINDING.id, "new", "confirmed"), "can have one state"),
    ],
)
def test_a_merge_or_split_that_cannot_be_is_refused(three: Path, arguments: tuple[str, ...], told: str) -> None:
    before = three.read_bytes()
    assert told in refused(call("triage", *arguments, "--db", three))
    assert three.read_bytes() == before
