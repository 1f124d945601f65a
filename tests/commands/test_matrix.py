"""`backfuzz matrix`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzzer.findings.faults import GONE
from tests.commands.calls import FINDING, call, refused

FAULT = f"F{FINDING.id[:7]}"


def test_where_a_fault_lives_is_run_told_and_stored(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.diagnosis.matrix.release_of", lambda python: "9.9.0+cpu")
    monkeypatch.setattr(
        "fuzzer.diagnosis.matrix.run_there", lambda python, findings, db: {f.id: GONE for f in findings}
    )
    done = call("matrix", FAULT, "--python", "some/python", "--db", db)
    assert done.exit_code == 0, done.output
    release = FINDING.place["torch"].split("+")[0]
    assert f"cpu: first bad {release}, last bad {release}, fixed in 9.9.0" in done.stdout
    told = json.loads(call("matrix", "--all", "--python", "some/python", "--db", db, "--json").stdout)
    assert told["faults"][0]["gone_on"] == ["9.9.0 cpu"]
    assert told["faults"][0]["spans"]["cpu"]["fixed_in"] == "9.9.0"
    assert [run["outcome"] for run in told["runs"]] == [GONE]


def test_what_cannot_run_is_told(db: Path) -> None:
    assert "no environment of torch 1.2.3" in refused(call("matrix", FAULT, "--torch", "1.2.3", "--db", db))
    assert "takes the ids of faults, or --all" in refused(call("matrix", "--db", db))
    before = db.read_bytes()
    done = call("matrix", FAULT, "--python", "no/python", "--db", db)
    assert done.exit_code == 2
    assert "not run: no/python imports no torch" in done.stdout
    assert db.read_bytes() == before
