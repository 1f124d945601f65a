"""What diagnosing takes: figures over findings that were diagnosed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benches import diagnosis
from benches.diagnosis import one, summary

from fuzzer.diagnosis.diagnose import CPU_SECONDS, PROGRAMS
from fuzzer.ledger.diagnosed import DIAGNOSER, VERSION
from tests.ledger.found import RELU, finding

BEFORE = finding(RELU.replace("settings", "# settings"), diagnosis={"culprit": "of old"})


def test_a_row_tells_seconds_and_whether_the_culprit_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"culprit": "donated", PROGRAMS: "30", CPU_SECONDS: "12", VERSION: str(DIAGNOSER)}
    anew = replace(BEFORE, diagnosis=told, ablation={"functorch.donated_buffer=False": "agree"})
    monkeypatch.setattr(diagnosis, "diagnose_one", lambda *_: anew)
    found, row = one(BEFORE, None, 1)
    assert found is anew
    assert (row["cpu"], row["experiments"], row["changed"], row["joins"]) == (12, 30, True, True)
    assert (row["culprit_before"], row["culprit"]) == ("of old", "donated")
    monkeypatch.setattr(diagnosis, "diagnose_one", lambda *_: None)
    assert one(BEFORE, None, 1)[1]["shows"] is False


def test_the_share_within_the_limit_is_of_those_that_showed() -> None:
    row = {"shows": True, "changed": False, "joins": True}
    rows = [row | {"wall": 30, "cpu": 20}, row | {"wall": 90, "cpu": 100}, {"shows": False, "wall": 5}]
    told = summary(rows)
    assert (told["asked"], told["shown"], told["within_limit"], told["quiet"]) == (3, 2, 0.5, 1.0)
    assert (told["wall_worst"], told["cpu_median"], told["joins"]) == (90, 60, 2)
    assert summary(rows[2:]) == {"asked": 1, "shown": 0}
