"""The pictures of a campaign's panel and of the triage screen."""

from __future__ import annotations

import re
from html import unescape

import pytest
from benches.agreement import ROOT
from benches.pictures import DOWN, TERMINALS, panel_svg, triage_svg

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.told.totals import Pace
from fuzzer.ledger.listing import to_post
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Task


@pytest.mark.parametrize("size", TERMINALS, ids=str)
def test_the_picture_is_an_svg_of_the_panel_of_a_reasonable_size(size: tuple[int, int]) -> None:
    text = panel_svg(Campaign(Plan(Task(), workers=1, minutes=1)), Pace(), *size)
    assert text.startswith("<svg")
    assert "backfuzz" in text
    assert "faults" in text
    assert len(text) < 80_000


@pytest.mark.parametrize("size", TERMINALS, ids=str)
def test_head_chosen_row_and_keys_are_on_the_picture_of_the_triage_screen(size: tuple[int, int]) -> None:
    text = unescape(re.sub("<[^>]+>", "", triage_svg(ROOT / "findings.db", *size))).replace("\u00a0", " ")
    assert "open fault(s)" in text
    with open_store(ROOT / "findings.db", create=False) as store:
        chosen = to_post(store.faults())[DOWN].id
    assert chosen in text
    assert "q leave" in text
