"""Faults of the ledger run again under a Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.diagnosis import matrix, rerun
from fuzzer.diagnosis.rerun import moved, run_under, runnable
from fuzzer.ledger.faults import GONE, SHOWS, Fault, State
from fuzzer.ledger.store import open_store
from tests.diagnosis.cases import finding

FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu", "2.11.0 cpu"), ("2.15.0 cpu",))
FIXED = replace(FAULT, state=State("fixed", "u", "", "2.15.0"))


@pytest.mark.parametrize(
    ("fault", "release", "outcome", "state"),
    [
        (FAULT, "2.15.0+cpu", GONE, State("fixed", fixed_in="2.15.0+cpu")),
        (FAULT, "2.13.0", GONE, None),  # it showed there once: perhaps not every time
        (FAULT, "2.15.0", SHOWS, None),
        (FAULT, "2.15.0", "not run: x", None),
        (replace(FAULT, lives_on=("2.11.0 cuda",)), "2.15.0", GONE, None),  # of another device nothing is known
        (replace(FAULT, state=State("not-a-fault", note="x")), "2.15.0", GONE, None),
        (FIXED, "2.16.0", SHOWS, State("confirmed", "u", "came back on 2.16.0")),
        (FIXED, "2.13.0", SHOWS, None),  # before it was fixed
        (FIXED, "2.16.0", GONE, None),
    ],
)
def test_a_state_moves_where_a_newer_release_says_so(
    fault: Fault, release: str, outcome: str, state: State | None
) -> None:
    assert moved(fault, release, "cpu", outcome) == state


def test_states_move_only_in_a_name_and_what_is_unknown_moves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, python, found = tmp_path / "a.db", Path("some/python"), finding()
    outcome = GONE
    monkeypatch.setattr(rerun, "release_of", lambda python: "99.0.0+cpu")
    monkeypatch.setattr(matrix, "run_there", lambda python, findings, *_: {f.id: outcome for f in findings})
    with open_store(db) as store:
        store.add(found)
        asked = runnable(store, store.faults(), "cpu")
    [row] = run_under(python, asked, db, 1, "2026-01-01")
    assert (row["outcome"], row["state"], row["came_back"], row["variants"]) == (GONE, "new", False, {found.id: GONE})
    outcome = "not run: no op x"
    [row] = run_under(python, asked, db, 1, "2026-01-02", mover="me")
    assert (row["outcome"], row["state"]) == (outcome, "new")
    outcome = GONE
    [row] = run_under(python, asked, db, 1, "2026-01-03", mover="me")
    assert row["state"] == "fixed 99.0.0"
    with open_store(db) as store:
        [fault] = store.faults()
    assert (fault.gone_on, fault.unsaid, fault.history[-1][2]) == (("99.0.0 cpu",), (), "me")
