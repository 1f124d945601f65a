"""Campaigns of eager against itself, and the programs that they count."""

from __future__ import annotations

from typing import Any

import pytest

from fuzzer.campaign.loop import Campaign
from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Report, Task

SIDE = Subject("eager", "cpu")
EAGER = Task(place=Place(SIDE, SIDE), seed=11, routes=("autograd", "vjp"), features=True)


def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs of the campaigns that follow, as they are counted."""
    found: list[str] = []
    before = Campaign._take

    def take(self: Campaign, number: int, report: Report, log: Any) -> None:
        before(self, number, report, log)
        found.append(report.text)

    monkeypatch.setattr(Campaign, "_take", take)
    return found
