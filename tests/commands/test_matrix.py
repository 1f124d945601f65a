"""`backfuzz matrix`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.faults import GONE, SHOWS, State
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call, refused

FAULT = f"F{FINDING.id[:7]}"


def test_where_a_fault_lives_is_run_told_and_stored(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.diagnosis.rerun.release_of", lambda python: "9.9.0+cpu")
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

    monkeypatch.setattr("fuzzer.diagnosis.rerun.release_of", lambda python: "9.9.0+cpu")
    monkeypatch.setattr("fuzzer.diagnosis.matrix.run_there", run_there)
    monkeypatch.setattr("fuzzer.diagnosis.rerun.runs_here", lambda device: device == "cpu")
    options = ("--python", "some/python", "--db", db, "--json")
    told = json.loads(call("matrix", found.id, *options, "--device", "cpu", "--workers", "1").stdout)
    assert asked == [(FINDING.id, "cpu", 1)]  # of the same fault, and found there: it is asked first
    assert told["faults"][0]["spans"]["cpu"]["last_bad"] == "9.9.0"
    assert told["runs"][0]["variants"] == {FINDING.id: SHOWS}


def test_what_cannot_run_is_told(db: Path) -> None:
    assert "no environment of torch 1.2.3" in refused(call("matrix", FAULT, "--torch", "1.2.3", "--db", db))
    assert "takes the ids of faults, or --all, or --here" in refused(call("matrix", "--db", db))
    before = db.read_bytes()
    done = call("matrix", FAULT, "--python", "no/python", "--db", db)
    assert done.exit_code == 2
    assert "not run: no/python imports no torch" in done.stdout
    assert db.read_bytes() == before


def test_here_is_no_other_release(db: Path) -> None:
    assert "leave out --torch and --python" in refused(call("matrix", "--here", "--torch", "2.11.0", "--db", db))


# ---------------------------------------------------------------- here


def told(db: Path, monkeypatch: pytest.MonkeyPatch, release: str, outcome: str) -> tuple[int, dict[str, object]]:
    monkeypatch.setattr("fuzzer.diagnosis.rerun.release_of", lambda python: release)
    monkeypatch.setattr(
        "fuzzer.diagnosis.matrix.run_there", lambda python, findings, *_: {f.id: outcome for f in findings}
    )
    done = call("matrix", "--here", "--db", db, "--json")
    [row] = json.loads(done.stdout)["runs"]
    return done.exit_code, row


def test_states_move_and_what_came_back_is_told(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, row = told(db, monkeypatch, "9.9.0", GONE)
    assert (code, row["state"], row["came_back"]) == (0, "fixed 9.9.0", False)
    code, row = told(db, monkeypatch, "9.9.1", SHOWS)
    assert (code, row["came_back"]) == (1, True)
    with open_store(db) as store:
        [fault] = store.faults()
    assert fault.state == State("confirmed", note="came back on 9.9.1")
    assert [who for _, _, who in fault.history[-2:]] == ["matrix", "matrix"]
    assert "9.9.1 cpu" in fault.lives_on


def test_what_is_no_fault_is_not_run(db: Path) -> None:
    call("triage", FINDING.id, "not-a-fault", "--note", "legal", "--db", db)
    done = call("matrix", "--here", "--db", db)
    assert done.exit_code == 2
    assert "here 0 reproduce, 0 are gone, 0 are unknown" in done.stdout


def test_a_fault_that_is_named_is_run_here_whatever_its_state(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("triage", FINDING.id, "not-a-fault", "--note", "legal", "--db", db)
    monkeypatch.setattr(
        "fuzzer.diagnosis.matrix.run_there", lambda python, findings, *_: {f.id: SHOWS for f in findings}
    )
    done = call("matrix", "--here", FAULT, "--db", db)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].startswith(f"{FAULT}  shows   not-a-fault legal  wrong gradient")
    assert done.stdout.splitlines()[1] == "here 1 reproduce, 0 are gone, 0 are unknown; 0 were found on other devices"
