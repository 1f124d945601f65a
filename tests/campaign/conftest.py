"""A campaign in a folder of its own, and triage that takes no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign import loop
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects import suspect as suspects
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.text import parse
from fuzzer.trial.verify import Verification
from fuzzer.workers.messages import Task
from minimizer.reduce import Reduction
from tests.campaign.fakes import EAGER, PROGRAM, as_natural


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    task = Task(place=EAGER)
    return Plan(task, 1, programs=8, db=tmp_path / "ledger.db", folder=tmp_path / "own", corpus=tmp_path / "corpus")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Minimizing, verifying, diagnosing and growing that take no time; `reproduced` may be changed."""
    state: dict[str, Any] = {"reproduced": 3}

    def verify(text: str, task: Task, signature: Signature, *_: Any) -> Verification:
        return Verification(state["reproduced"], 3, Verdict(signature, "in /srv/someone/code.py"))

    minimal = Reduction(parse(PROGRAM), 1, 0, (), (), True, "fixpoint")
    monkeypatch.setattr(suspects, "minimize_with", lambda *_: minimal)
    monkeypatch.setattr(suspects, "verify", verify)
    monkeypatch.setattr(suspects, "diagnose", lambda finding, *_: finding)
    monkeypatch.setattr(suspects, "grow_finding", lambda finding, *_: (as_natural(finding), None))
    monkeypatch.setattr(loop, "require_canaries", lambda pool, plan, say: None)
    return state
