"""The picture of a campaign's panel."""

from __future__ import annotations

from benches.pictures import panel_svg

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.told.totals import Pace
from fuzzer.workers.messages import Task


def test_the_picture_is_an_svg_of_the_panel_of_a_reasonable_size() -> None:
    text = panel_svg(Campaign(Plan(Task(), workers=1, minutes=1)), Pace())
    assert text.startswith("<svg")
    assert "backfuzz" in text
    assert "faults" in text
    assert len(text) < 50_000
