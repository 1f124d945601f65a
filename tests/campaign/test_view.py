"""What is shown of a campaign while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from fuzzer.campaign import loop, view
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from tests.campaign.fakes import FakePool, some_wrong


def test_both_views_show_a_campaign_at_every_stage(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "Pool", lambda *_, **__: FakePool(some_wrong))
    for made in (view.Lines(False), view.Live(False)):
        with made:
            made.update(Campaign(plan, made.say))
            totals = Campaign(plan, made.say).run(made.update)
        made.end(totals)
        shown = capsys.readouterr().out
        assert "8 programs" in shown
        assert "detectable 100.0% of programs" in " ".join(shown.split())
        assert "`backfuzz list` shows them all" in shown
