"""`backfuzz recheck`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzzer.ledger.faults import GONE, SHOWS, State
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call


def told(db: Path, monkeypatch: pytest.MonkeyPatch, release: str, outcome: str) -> tuple[int, dict[str, object]]:
    monkeypatch.setattr("fuzzer.diagnosis.matrix.release_of", lambda python: release)
    monkeypatch.setattr(
        "fuzzer.diagnosis.matrix.run_there", lambda python, findings, *_: {f.id: outcome for f in findings}
    )
    done = call("recheck", "--db", db, "--json")
    [row] = json.loads(done.stdout)
    return done.exit_code, row


def test_states_move_and_what_came_back_is_told(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, row = told(db, monkeypatch, "9.9.0", GONE)
    assert (code, row["state"], row["came_back"]) == (0, "fixed 9.9.0", False)
    code, row = told(db, monkeypatch, "9.9.1", SHOWS)
    assert (code, row["came_back"]) == (1, True)
    with open_store(db) as store:
        [fault] = store.faults()
    assert fault.state == State("confirmed", note="came back on 9.9.1")
    assert [who for _, _, who in fault.history[-2:]] == ["recheck", "recheck"]
    assert "9.9.1 cpu" in fault.lives_on


def test_what_is_no_fault_is_not_run(db: Path) -> None:
    call("triage", FINDING.id, "not-a-fault", "--note", "legal", "--db", db)
    done = call("recheck", "--db", db)
    assert done.exit_code == 2
    assert "0 show, 0 are gone" in done.stdout
