"""What is shown of a campaign while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from fuzzer.campaign import loop, view
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.totals import Totals
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
        assert "`backfuzz faults` shows them all" in shown


def test_plain_lines_say_nothing_twice(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "LINE_SECONDS", 0.0)
    lines, campaign = view.Lines(False), Campaign(plan, print)
    for agreed in (1, 1, 2):
        campaign.totals.classes["agree"] = agreed
        lines.update(campaign)
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]


def test_the_summary_says_what_is_new_and_what_was_recognised(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals(seconds=1.0, minimized=3)
    view.Lines(False).end(totals)
    assert "new faults: none; " in (told := capsys.readouterr().out)
    assert told.endswith("suspects: none recognised as known, 3 minimized\n")
    totals.new["wrong"], totals.variants["raises"] = 1, 2
    totals.recognised = {"F1234567": [1, 2], "F7654321 of other.db": [1]}
    view.Lines(False).end(totals)
    assert "new faults: 1 wrong; new variants of known ones: 2 raises; " in (told := capsys.readouterr().out)
    assert told.endswith(
        "suspects: 3 recognised as known (F1234567 in 1 + 2 experiments; F7654321 of other.db in 1 experiments), "
        "3 minimized\n"
    )
