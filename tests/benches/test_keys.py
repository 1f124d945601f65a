"""Keys against faults, counted over findings of a ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benches import keys
from benches.keys import Sorted, chosen, figures, sort_all, task_for
from benches.options import task_on

from fuzzer.campaign.suspects.sort import BEFORE, STAGE
from fuzzer.judgement.verdict import Verdict
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report, Task
from tests.benches.here import Here
from tests.commands.calls import FINDING

ROWS = [
    Sorted("a", "F1", "wrong through relu", "eager", 1.0),
    Sorted("b", "F1", "wrong through relu", "eager", 2.0),
    Sorted("c", "F1", "wrong through tanh", "aot_eager", 3.0),
    Sorted("d", "F2", "wrong through tanh", "aot_eager", 4.0),
    Sorted("e", "F3", "", "", 5.0),
]


def test_pairs_under_one_key_and_pairs_of_one_fault_are_counted() -> None:
    found = figures(ROWS)
    assert (found["findings"], found["with_a_key"], found["keys"], found["faults"]) == (5, 4, 2, 2)
    assert found["merged"] == 0.5
    assert found["mixed"] == {"wrong through tanh": ["F1", "F2"]}
    assert found["split"] == {"F1": 2}
    assert found["one_of_each"] == 1
    assert found["stages"] == {"eager": 2, "aot_eager": 2, "none": 1}
    assert found["cpu_seconds"] == {"median": 3.0, "mean": 3.0}


def test_findings_of_the_device_are_taken_and_sorted_as_suspects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_on("cpu")
    crash = replace(FINDING, signature=replace(FINDING.signature, verdict="crashes"))
    elsewhere = replace(FINDING, place={**FINDING.place, "device": "cuda"}, program=FINDING.program + "\n")
    with open_store(tmp_path / "ledger.db") as store:
        for finding in (FINDING, crash, elsewhere):
            assert store.add(finding)
        fault = store.fault_of(FINDING.id).id
    asked = chosen(tmp_path / "ledger.db", task, 1)
    assert [(finding.id, of) for finding, of in asked] == [(FINDING.id, fault)]

    def sorts(task: Task, what: Any) -> Report:
        assert what[:2] == (FINDING.original, FINDING.signature)
        verdict = Verdict(FINDING.signature, "detail")
        return Report(FINDING.program, (verdict,), notes={STAGE: "eager", BEFORE: ""}, seconds={"cpu": 2.0})

    monkeypatch.setattr(keys, "sort", sorts)
    pool: Any = Here()
    [row] = sort_all(asked, task, pool)
    assert (row.finding, row.fault, row.stage, row.cpu_seconds) == (FINDING.id, fault, "eager", 2.0)
    assert row.key.startswith(FINDING.signature.verdict)


def test_an_oracle_that_speaks_only_if_it_is_asked_is_asked() -> None:
    asked = replace(FINDING, signature=replace(FINDING.signature, oracle="settings_agree"))
    assert task_for(asked, task_on("cpu")).also == ("settings_agree",)
    assert task_for(FINDING, task_on("cpu")).also == ()
