"""`backfuzz matrix`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.faults import GONE, SHOWS
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call, refused

FAULT = f"F{FINDING.id[:7]}"


def test_where_a_fault_lives_is_run_told_and_stored(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.diagnosis.matrix.release_of", lambda python: "9.9.0+cpu")
    monkeypatch.setattr(
        "fuzzer.diagnosis.matrix.run_there", lambda python, findings, *_: {f.id: GONE for f in findings}
    )
    done = call("matrix", FAULT, "--python", "some/python", "--db", db)
    assert done.exit_code == 0, done.output
    release = FINDING.place["torch"].split("+")[0]
    assert f"cpu: first bad {release}, last bad {release}, fixed in 9.9.0" in done.stdout
    told = json.loads(call("matrix", "--all", "--python", "some/python", "--db", db, "--json").stdout)
    assert told["faults"][0]["gone_on"] == ["9.9.0 cpu"]
    assert told["faults"][0]["spans"]["cpu"]["fixed_in"] == "9.9.0"
    assert [run["outcome"] for run in told["runs"]] == [GONE]


def test_a_fault_of_another_device_is_run_on_the_one_that_is_named(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = FINDING.place | {"device": "cuda"}
    found = replace(FINDING, place=place, program=FINDING.program.replace("seed=1", "seed=2"))
    with open_store(db) as store:
        store.add(found)
    asked: list[tuple[str, str | None, int | None]] = []

    def run_there(python: Path, findings: list[Finding], db: Path, device: str, workers: int) -> dict[str, str]:
        asked.extend((f.id, device, workers) for f in findings)
        return {f.id: SHOWS for f in findings}

    monkeypatch.setattr("fuzzer.diagnosis.matrix.release_of", lambda python: "9.9.0+cpu")
    monkeypatch.setattr("fuzzer.diagnosis.matrix.run_there", run_there)
    monkeypatch.setattr("fuzzer.trial.places.runs_here", lambda device: device == "cpu")
    options = ("--python", "some/python", "--db", db, "--json")
    told = json.loads(call("matrix", found.id, *options, "--device", "cpu", "--workers", "1").stdout)
    assert asked == [(FINDING.id, "cpu", 1)]  # of the same fault, and found there: it is asked first
    assert told["faults"][0]["spans"]["cpu"]["last_bad"] == "9.9.0"
    assert told["runs"][0]["variants"] == {FINDING.id: SHOWS}


def test_what_cannot_run_is_told(db: Path) -> None:
    assert "no environment of torch 1.2.3" in refused(call("matrix", FAULT, "--torch", "1.2.3", "--db", db))
    assert "takes the ids of faults, or --all" in refused(call("matrix", "--db", db))
    before = db.read_bytes()
    done = call("matrix", FAULT, "--python", "no/python", "--db", db)
    assert done.exit_code == 2
    assert "not run: no/python imports no torch" in done.stdout
    assert db.read_bytes() == before
