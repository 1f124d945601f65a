"""Faults planted in campaigns of their own: what is counted, and to whom a program is due."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from benches import told
from benches.options import task_on
from benches.told import Told, Watched, told_figures
from click.testing import CliRunner

from fuzzer.language.text import parse
from fuzzer.workers.messages import Report, Task
from tests.campaign.fakes import OTHER, PROGRAM, TANH, FakePool, wrong

FAULT = min(told.rare.PLANTS)
ROWS = [
    Told("a", 9, 2, 2, True, True, True, 61.0, ["wrong"]),
    Told("b", 9, 1, 1, True, True, False, 60.0),
    Told("c", 9, 1, 1, True, False, False, 62.0),
    Told("d", 9, 1, 1, False, False, False, 60.0),
]


def test_of_the_faults_that_were_hit_those_told_and_settled_are_counted() -> None:
    found = told_figures(ROWS)
    counts = [found[name] for name in ("campaigns", "hit", "told", "settled", "longest_seconds")]
    assert counts == [4, 3, 2, 1, 62.0]
    assert found["untold"] == ["c"]


def test_programs_that_differ_where_the_fault_acted_are_kept() -> None:
    watched = Watched("mine")
    for report in (
        wrong(),
        Report(PROGRAM, fired=("mine",)),
        Report(PROGRAM, wrong(OTHER).verdicts, fired=("other",)),
        Report(PROGRAM, wrong().verdicts, fired=("mine", "other")),
    ):
        watched.learn(0, report)
    assert watched.acted == [PROGRAM]


@pytest.mark.parametrize(("text", "due"), [(PROGRAM, True), (TANH, False)])
def test_a_program_is_due_to_a_fault_without_which_it_agrees(text: str, due: bool) -> None:
    def shows(task: Task, program: str) -> Report:
        return wrong() if task.canary or program == TANH else Report(program)

    pool: Any = FakePool(shows)
    assert told._is_due([parse(text)], Task(canary="mine"), pool) is due


def test_each_of_several_faults_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = tmp_path / "known.db"
    known.touch()
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        ran.append(command[4:])
        fault = command[command.index("--fault") + 1]
        row = Told(fault, 1, 1, 1, True, True, False, 1.0)
        return type("Done", (), {"stdout": told.json.dumps({"rows": [asdict(row)]})})

    monkeypatch.setattr(told.subprocess, "run", run)
    names = sorted(told.rare.PLANTS)[:2]
    asked = [word for name in names for word in ("--fault", name)]
    done = CliRunner().invoke(told.told_command, [*asked, "--minutes", "0.5", "--known", str(known), "--json"])
    found = told.json.loads(done.stdout)
    assert (found["hit"], found["told"], [row["fault"] for row in found["rows"]]) == (2, 2, names)
    assert sorted(words[3] for words in ran) == names
    assert all(words[-2:] == ["--known", str(known)] for words in ran)


@pytest.mark.slow
def test_a_campaign_with_a_planted_fault_has_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.campaign.loop.require_canaries", lambda *_: None)
    row = told.campaign_on(FAULT, task_on("cpu"), 0.2, (), tmp_path)
    assert row.fault == FAULT
    assert row.programs > 0
    assert row.seconds < 120
