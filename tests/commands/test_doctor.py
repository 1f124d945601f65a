"""`backfuzz doctor`, with canaries that ring at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from fuzzer.campaign import canaries, self_check
from fuzzer.campaign.canaries import CanaryResult
from fuzzer.workers.messages import Report
from tests.commands.calls import call

RANG = CanaryResult("gradient_all_zero", "gradients_agree", flagged=True, silent=True, detail="", seconds=0.1)
MISSED = CanaryResult("typo", "gradients_agree", flagged=False, silent=True, detail="it agreed", seconds=0.1)


@pytest.mark.parametrize(
    ("found", "silent", "code"),
    [([RANG], [], 0), ([RANG, MISSED], [], 1), ([RANG], ["fusion"], 1)],
    ids=["all is well", "a canary was missed", "a family saw nothing"],
)
def test_what_doctor_tells_and_exits_with(
    monkeypatch: pytest.MonkeyPatch, found: list[CanaryResult], silent: list[str], code: int
) -> None:
    monkeypatch.setattr(canaries, "run_canaries", lambda pool, device: found)
    monkeypatch.setattr(self_check, "silent_families", lambda pool, task: (silent, Report("")))
    done = call("doctor", "--device", "cpu", "--workers", "1")
    assert done.exit_code == code, done.output
    assert f"torch      {torch.__version__}" in done.stdout
    assert "ok     gradient_all_zero (gradients_agree)" in done.stdout
    assert ("MISSED typo (gradients_agree) it agreed" in done.stdout) == (MISSED in found)
    assert f"show nothing of a compile: {', '.join(silent) or 'none'}" in done.stdout
    told: dict[str, Any] = json.loads(call("doctor", "--device", "cpu", "--workers", "1", "--json").stdout)
    assert told["place"]["device"] == "cpu"
    assert [row["canary"] for row in told["canaries"]] == [c.name for c in found]
    assert told["silent_families"] == silent
