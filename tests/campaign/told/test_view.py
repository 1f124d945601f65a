"""What is shown of a campaign while it runs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from typing import Any

import pytest

from fuzzer.campaign import loop
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.state import State
from fuzzer.campaign.told import view
from fuzzer.campaign.told.totals import Totals
from tests.campaign.fakes import FakePool, some_wrong


def test_both_views_show_a_campaign_at_every_stage(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "Pool", lambda *_, **__: FakePool(some_wrong))
    for made in (view.Lines(False), view.Live(False)):
        campaign = Campaign(plan, made.say)
        made.begin(campaign)
        with made:
            made.update(campaign)
            totals = campaign.run(made.update)
        made.end(totals)
        shown = capsys.readouterr().out
        assert "8 programs" in shown
        assert "detectable 100.0% of programs" in " ".join(shown.split())
        assert "`backfuzz faults` shows them all" in shown


def test_plain_lines_are_short_come_once_a_minute_and_say_the_time(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, campaign = view.Lines(False), Campaign(plan, print)
    now = 1000.0
    lines.began, lines.told, campaign.course.since[State.EXPLORING] = now - 65, now, now - 65
    campaign.totals.drawn, campaign.totals.known["wrong"] = 130, 4
    for later in (10, 50, 61, 100, 122):
        monkeypatch.setattr(time, "monotonic", lambda later=later: now + later)
        lines.update(campaign)
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 0:02:06 run, 130 programs \(1.03/s now\), 0 new fault\(s\), 4 suspects known",
        first,
    )
    assert "0:03:07 run" in second


def test_the_first_lines_come_sooner(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # differences of whole numbers are not rounded
    lines, campaign, told = view.Lines(False), Campaign(plan, print), list[int]()
    for later in range(200):
        monkeypatch.setattr(time, "monotonic", lambda later=later: float(later))
        lines.tell(campaign)
        told += [later] * len(capsys.readouterr().out.splitlines())
    assert told == [5, 10, 20, 40, 80, 140]


def test_while_canaries_are_asked_a_line_a_minute_says_so(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(view, "_LOOK_SECONDS", 0.01)
    campaign = Campaign(plan, print)
    campaign.course.change(State.CHECKING)
    with view.Lines(False) as lines:
        lines.begin(campaign)
        ends, told = time.monotonic() + 10, ""
        while not told and time.monotonic() < ends:
            told = capsys.readouterr().out
    assert told.splitlines()[0].endswith(" canaries: 0 programs run")


def test_a_reader_who_has_enough_stops_the_campaign(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        lines, campaign = view.Lines(False), Campaign(plan, print)
        stopped: list[bool] = []
        monkeypatch.setattr(campaign, "stop", lambda: stopped.append(True))
        lines.update(campaign)
        assert not stopped
        lines.say("nobody reads this")
        lines.update(campaign)
        lines.say("nor this")
        assert stopped == [True]


def test_the_summary_says_what_is_new_and_what_was_recognised(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals(seconds=1.0, minimized=3)
    view.Lines(False).end(totals)
    assert "new faults: none; " in (told := capsys.readouterr().out)
    assert told.endswith("suspects: 0 of 0 key(s), none recognised as known, 3 minimized\n")
    totals.new["wrong"], totals.variants["raises"] = 1, 2
    totals.legal.update(2 * ["narrowings_agree/agree/forward/dropped rounding"])
    totals.suspects["wrong"], totals.keys = 5, 2
    totals.recognised = {
        "F1234567": Counter(keys=2, experiments=3),
        "F7654321 of other.db": Counter(keys=1, experiments=1),
    }
    view.Lines(False).end(totals)
    assert "new faults: 1 wrong; new variants of known ones: 2 raises; " in (told := capsys.readouterr().out)
    assert "\nlegal differences: 2 dropped rounding\n" in told
    assert told.endswith(
        "suspects: 5 of 2 key(s), 3 recognised as known (2 key(s) of F1234567 in 3 experiments; 1 key(s) of "
        "F7654321 of other.db in 1 experiments), 3 minimized\n"
    )
    totals.unconfirmed["key"] = "wrong gradient of x0 through unfold: compiled 3, eager 4, floor 1e-06"
    view.Lines(False).end(totals)
    told = capsys.readouterr().out
    assert told.endswith(
        "3 minimized\nunconfirmed: wrong gradient of x0 through unfold: compiled 3, eager 4, floor 1e-06\n"
    )


def test_the_end_tells_what_each_source_brought(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals()
    totals.brought("drawn", programs=3, cpu=4.0)
    view.Lines(False).end(totals)
    assert "drawn" not in capsys.readouterr().out, "there is one source"
    totals.brought("around", programs=2, cpu=1.0, suspects=1, keys=1, faults=1)
    view.Lines(False).end(totals)
    assert "around: 2 programs in 1 CPU s, 1 suspects, 1 new keys, 1 new faults\n" in capsys.readouterr().out
