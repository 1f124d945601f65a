"""`backfuzz diagnose`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.ledger.diagnosed import DIAGNOSER, TRACEBACK, VERSION, is_current
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report
from tests.commands.calls import FINDING, call


def test_diagnose_stores_and_tells_what_it_found(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"not diagnosed yet: backfuzz diagnose {FINDING.id}" in call("show", FINDING.id, "--db", db).stdout
    known = replace(FINDING, diagnosis={"ratio": "all zero"}, attachments={"x0.grad.txt": "[4]"})
    asked: list[Any] = []
    monkeypatch.setattr("fuzzer.commands.shared.again.diagnose_one", lambda *given: asked.append(given) or known)
    done = call("diagnose", FINDING.id[:4], "--device", "cpu", "--workers", "1", "--db", db)
    assert done.exit_code == 0
    assert asked == [(FINDING, "cpu", 1)]
    for text in (done.stdout, call("show", FINDING.id, "--db", db).stdout):
        assert (
            "  ratio: all zero\n  diagnoser: 1; this is version 2\n  attachments (in `backfuzz export`): x0.grad.txt\n"
            in text
        )
    [row] = json.loads(call("diagnose", FINDING.id, "--db", db, "--json").stdout)
    assert row["diagnosis"] == {"ratio": "all zero"}


@pytest.mark.usefixtures("outdated")
def test_diagnose_of_what_does_not_show_here_exits_2_and_stores_that_where_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = FINDING.place | {"backend": "aot_eager"}  # compiles in no time
    elsewhere = replace(FINDING, program=WIDER, place=place | {"torch": "2.1.0"})
    db = tmp_path / "own.db"
    with open_store(db) as store:
        store.add(replace(FINDING, place=place))
        store.add(elsewhere)
        assert {fault.side for fault in store.faults()} == {"not diagnosed"}
    monkeypatch.setattr("fuzzer.trial.verify.examine_all", lambda pool, asked: [Report("") for _ in asked])
    done = call("diagnose", FINDING.id, elsewhere.id, "--workers", "1", "--db", db)
    assert done.exit_code == 2
    assert f"{FINDING.id}: it does not reproduce here (found with torch {torch.__version__})" in done.stderr
    with open_store(db) as store:
        gone = store.get(FINDING.id)
        assert gone.diagnosis["side"].startswith("undecided: it shows no more on torch ")
        assert is_current(gone)
        assert store.get(store.fault_of(FINDING.id).id).id == elsewhere.id  # which may show still
        assert not store.get(elsewhere.id).diagnosis


WIDER = FINDING.program.replace("f32[4]", "f32[4, 3]")


NEW = replace(FINDING, diagnosis={"side": "compiled raises: KeyError", VERSION: str(DIAGNOSER)},
              attachments={TRACEBACK: "Traceback\n  File"})  # fmt: skip


def test_the_whole_traceback_of_what_raised_is_shown(db: Path) -> None:
    with open_store(db) as store:
        store.set_diagnosis(NEW)
    assert f"  {TRACEBACK}:\n    Traceback\n      File\n" in call("show", FINDING.id, "--db", db).stdout
