"""A stored finding looked at again here."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner

from fuzzer.commands.shared.again import for_each, vary_one
from fuzzer.judgement.verdict import Finding, Signature, Verdict
from fuzzer.ledger.diagnosed import DIAGNOSER, TRACEBACK, VERSION
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report, Task
from tests.commands.calls import FINDING, RELU, call

NEW = replace(FINDING, diagnosis={"side": "compiled raises: KeyError", VERSION: str(DIAGNOSER)},
              attachments={TRACEBACK: "Traceback\n  File"})  # fmt: skip


@pytest.mark.usefixtures("outdated")
@pytest.mark.parametrize("command", [("show",), ("export", "--no-natural")])
def test_what_an_older_version_diagnosed_is_diagnosed_again_when_it_is_shown(
    command: tuple[str, ...], db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("fuzzer.commands.shared.again.diagnose_one", lambda *given: asked.append(given) or NEW)
    monkeypatch.setattr("fuzzer.commands.shared.handover._scripts", lambda *_: ({"repro.py": ""}, None, ""))
    verb, *options = command
    first = call(verb, FINDING.id, "--db", db, *options)
    assert "was not diagnosed: diagnosing it (--no-diagnose leaves that)" in first.stderr
    assert call(verb, FINDING.id, "--db", db, *options).stderr == ""
    assert len(asked) == 1
    with open_store(db) as store:
        assert store.get(FINDING.id).diagnosis == NEW.diagnosis


@pytest.mark.usefixtures("outdated")
def test_nothing_is_diagnosed_that_is_not_wanted_cannot_run_or_is_gone(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("it is diagnosed")

    monkeypatch.setattr("fuzzer.commands.shared.again.diagnose_one", never)
    assert call("show", FINDING.id, "--db", db, "--no-diagnose").exit_code == 0
    assert call("export", FINDING.id, "--db", db, "--no-run").exit_code == 0
    monkeypatch.setattr("fuzzer.commands.shared.again.runs_here", lambda *_: False)
    assert call("show", FINDING.id, "--db", db).exit_code == 0
    monkeypatch.undo()
    monkeypatch.setattr("fuzzer.commands.shared.again.diagnose_one", never)
    with open_store(db) as store:
        store.note_life(f"F{FINDING.id[:7]}", torch.__version__, "cpu", "gone", "2099")
    assert call("show", FINDING.id, "--db", db).exit_code == 0


@pytest.mark.usefixtures("outdated")
def test_what_does_not_show_here_keeps_its_diagnosis(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.read_bytes()
    monkeypatch.setattr("fuzzer.commands.shared.again.diagnose_one", lambda *_: None)
    done = call("show", FINDING.id, "--db", db)
    assert done.exit_code == 0
    assert "it does not reproduce here" in done.stderr
    assert db.read_bytes() == before


@pytest.mark.parametrize("verdict", ["wrong", "agree"])
def test_a_programs_text_is_varied_by_the_worst_that_it_shows(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Signature("gradients_agree", verdict, "backward", "other")
    report = Report(RELU, (Verdict(shown, "it is wrong"),))
    monkeypatch.setattr("fuzzer.trial.verify.examine_all", lambda pool, asked: [report])
    varied: list[Finding] = []

    def vary(finding: Finding, task: Task, pool: object, created: str, seconds: float) -> None:
        varied.append(finding)

    monkeypatch.setattr("fuzzer.campaign.suspects.varying.vary", vary)
    monkeypatch.setattr("fuzzer.commands.shared.again.working", lambda *_: nullcontext())
    assert vary_one(RELU, "cpu", 1) is None
    assert [(found.program, found.signature) for found in varied] == ([(RELU, shown)] if verdict == "wrong" else [])


@pytest.mark.parametrize("as_json", [False, True])
def test_what_reproduces_is_stored_and_printed_and_the_rest_is_named(db: Path, as_json: bool) -> None:
    other = replace(FINDING, program=FINDING.program.replace("seed=1", "seed=2"))
    labelled = [(FINDING.id, FINDING), (other.id, other), ("x.prog", RELU)]

    @click.command()
    def again() -> None:
        for_each(
            labelled,
            lambda looked: None if looked is other else looked,
            lambda store, found: stored.append(found),
            lambda label, found: ({"label": label}, f"{label} looked at"),
            db,
            as_json,
        )

    stored: list[Any] = []
    done = CliRunner().invoke(again)
    assert (done.exit_code, stored) == (2, [FINDING])
    assert done.stderr == f"{other.id}: it does not reproduce here (found with torch {torch.__version__})\n"
    rows, lines = [{"label": name} for name in (FINDING.id, "x.prog")], f"{FINDING.id} looked at\nx.prog looked at\n"
    assert done.stdout == (json.dumps(rows) + "\n" if as_json else lines)
