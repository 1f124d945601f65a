"""`backfuzz faults`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, RELU, call, refused


def plain(text: str) -> str:
    """What a terminal shows, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_faults_are_a_table_and_rows_of_json(db: Path) -> None:
    before = db.read_bytes()
    done = call("faults", "--db", db)
    head, line = (row.split("\t") for row in done.stdout.splitlines())
    told = dict(zip(head, line, strict=True))
    assert (told["id"], told["sev"], told["class"], told["state"]) == (f"F{FINDING.id[:7]}", "S1", "wrong", "new")
    assert (told["title"], told["first seen"]) == ("wrong gradient of F.relu", "2026-01-01")
    assert done.stderr == "1 fault(s): 1 new\n"
    [row] = json.loads(call("faults", "--db", db, "--json").stdout)
    assert (row["id"], row["class"], row["state"], row["occurrences"]) == (f"F{FINDING.id[:7]}", "wrong", "new", 1)
    assert row["lives_on"] == [f"{FINDING.place['torch'].split('+')[0]} cpu"]
    assert json.loads(call("faults", "exp", "--db", db, "--json").stdout) == []
    assert len(json.loads(call("faults", "relu", "--db", db, "--json").stdout)) == 1
    assert db.read_bytes() == before


def test_a_fault_about_which_torch_promises_nothing_stands_apart(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    with open_store(db) as store:
        store.add(replace(FINDING, signature=replace(FINDING.signature, pattern="other"), unsupported="setting x"))
    text = plain(call("faults", "--db", db).stdout)
    assert text.index("torch promises nothing here (unsupported)") > text.index(f"F{FINDING.id[:7]}")
    assert "2 fault(s)" in text


def test_those_to_post_are_confirmed_and_have_no_issue(db: Path) -> None:
    assert json.loads(call("faults", "--to-post", "--db", db, "--json").stdout) == []
    call("triage", FINDING.id, "confirmed", "--db", db)
    [row] = json.loads(call("faults", "--to-post", "--db", db, "--json").stdout)
    assert (row["id"], row["severity"]) == (f"F{FINDING.id[:7]}", "S1")
    assert "--to-post" in refused(call("faults", "--to-post", "--findings", "--db", db))


# ---------------------------------------------------------------- findings


def test_findings_are_a_table_too_and_the_ledger_stays_as_it_is(db: Path) -> None:
    before = db.read_bytes()
    text = call("faults", "--findings", "--db", db).stdout
    assert FINDING.id in text
    for part in (FINDING.signature.oracle, FINDING.signature.direction, FINDING.signature.pattern, "new"):
        assert part in text
    assert call("faults", "--findings", "--db", db).stderr == "1 finding(s)\n"
    [row] = json.loads(call("faults", "--findings", "--db", db, "--json").stdout)
    assert (row["id"], row["class"], row["program"]) == (FINDING.id, "wrong", RELU)
    assert (row["fault"], row["state"]) == (f"F{FINDING.id[:7]}", "new")
    assert json.loads(call("faults", "--findings", "--db", db, "--json", "--class", "crashes").stdout) == []
    assert db.read_bytes() == before


def test_findings_are_filtered_and_searched_and_so_are_faults(db: Path) -> None:
    def listed(*arguments: str) -> set[int]:
        kinds = ((), ("--findings",))
        return {len(json.loads(call("faults", *arguments, *kind, "--db", db, "--json").stdout)) for kind in kinds}

    torch = FINDING.place["torch"]
    for arguments in (("relu",), ("rel", "x0.grad"), ("--op", "relu"), ("--torch", torch), ("--lives-on", torch[:3]),
                      ("--device", "cpu"), ("--state", "new")):  # fmt: skip
        assert listed(*arguments) == {1}, arguments
    for arguments in (("exp",), ("--op", "exp"), ("--device", "cuda"), ("--state", "known")):
        assert listed(*arguments) == {0}, arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--op", "reluu"), "no op 'reluu'; `backfuzz ops` lists the ops; did you mean relu?"),
        (("--lives-on", "1.0"), "no release in the ledger begins with '1.0'; the ledger has "),
        (("--torch", "1.0"), "no release in the ledger begins with '1.0'; the ledger has "),
    ],
)
def test_a_filter_that_nothing_could_pass_is_refused(db: Path, arguments: tuple[str, ...], told: str) -> None:
    assert refused(call("faults", *arguments, "--db", db)).startswith(f"backfuzz: {told}")


def test_a_finding_about_which_torch_promises_nothing_stands_apart(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    apart = replace(FINDING, signature=replace(FINDING.signature, pattern="other"), unsupported="setting x")
    with open_store(db) as store:
        store.add(apart)
    lines = [line.rstrip() for line in plain(call("faults", "--findings", "--db", db).stdout).splitlines()]
    assert lines[1].startswith(FINDING.id)
    assert lines[3] == "torch promises nothing here (unsupported)"
    assert lines[5].split()[::2][:2] == [apart.id, "unsupported"]
    assert lines[6] == "2 finding(s)"


def test_the_faults_that_come_along_are_listed_without_a_ledger(tmp_path: Path) -> None:
    done = call("faults", "--shipped", "--state", "confirmed", "--db", tmp_path / "none.db")
    with open_store(SHIPPED, create=False) as store:
        ids = {fault.id for fault in store.faults() if fault.state.name == "confirmed"}
    assert {line.split("\t")[0] for line in done.stdout.splitlines()[1:]} == ids
