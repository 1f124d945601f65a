"""The panel of a campaign, drawn for terminals of several sizes at several moments."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.state import State
from fuzzer.campaign.suspects.queue import Triage
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.campaign.told import panel
from fuzzer.campaign.told.logs import Progress
from fuzzer.campaign.told.panel import CampaignPanel, clock, sparkline, time_left, worker_lines
from fuzzer.campaign.told.totals import Pace
from fuzzer.language.text import parse
from fuzzer.ledger.progress import Point
from fuzzer.workers.at_work import Work
from tests.campaign.fakes import OTHER, PROGRAM, SIGNATURE


def drawn(shown: CampaignPanel, width: int = 80, height: int = 24, encoding: str = "utf-8") -> list[str]:
    """The panel's lines as a terminal has them."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=out, width=width, height=height, force_terminal=True, no_color=True).print(shown)
    out.flush()
    buffer: Any = out.buffer
    text = buffer.getvalue().decode(encoding)
    assert "\x1b[3" not in text, "a colour"
    return [line.replace("\x1b[0m", "").replace("\x1b[2m", "").replace("\x1b[1m", "") for line in text.splitlines()]


@pytest.fixture
def campaign(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """One that has explored for 20 minutes of an hour."""
    made = Campaign(SimpleNamespace(**vars(plan) | {"minutes": 60, "programs": None}), print)  # type: ignore[arg-type]
    made.course.change(State.CHECKING)
    made.course.change(State.EXPLORING)
    made.course.since[State.EXPLORING] = 0.0
    totals = made.totals
    totals.drawn, totals.detectable = 1233, 1188
    totals.classes.update(agree=1190, wrong=10, rejected=33)
    totals.stages["inductor:ir"] = 900
    totals.new.update(wrong=2, raises=1)
    totals.severities.update(S1=1, S3=2)
    totals.last_new = "711f9708ad"
    totals.known["wrong"] = 9
    made.triage = Triage(plan, "c1", totals, print)
    made.triage.waiting, made.triage.busy = [Suspect(parse(PROGRAM), SIGNATURE)] * 3, [Suspect(parse(PROGRAM), OTHER)]
    made.progress = Progress(plan.folder)
    made.progress.points = [Point(s, s, {}, {"node": s, "pair": 2 * s, "source": 7}) for s in range(10, 1200, 30)]
    made.schedule = SimpleNamespace(features=lambda: {"node": 1200, "pair": 2400, "source": 7})  # type: ignore[assignment]
    made.pool = SimpleNamespace(
        health=lambda: {"memory_bytes": 2**31, "worker_deaths": 9, "exploring_deaths": 2}, finished=5
    )  # type: ignore[assignment]
    works = [Work("explore_batch", 32, 5, "backward", 3.0), Work()]
    monkeypatch.setattr(panel, "at_work", lambda pool: works)
    return made


def look(campaign: Campaign) -> Pace:
    pace = Pace()
    pace.look(1100.0, campaign.totals)
    pace.look(1200.0, campaign.totals)
    return pace


ORDER = ("now", "time", "faults", "programs", "verdicts", "cells", "features", "lines", "workers", "queue", "machine")


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24)])
def test_the_panel_answers_in_order_within_the_terminal(campaign: Campaign, width: int, height: int) -> None:
    lines = drawn(CampaignPanel(campaign, look(campaign), lambda: 1200.0), width, height)
    assert max(map(len, lines)) == width
    assert len(lines) < height - 4
    names = [line[2:12].strip() for line in lines[1:-1]]
    assert [name for name in names if name] == list(ORDER)
    text = "\n".join(lines)
    assert "well; 3 new fault(s): 1 S1, 2 S3; backfuzz show 711f9708ad" in lines[1]
    assert "0:20:00 run, left: 0:40:00, last new fault 0:01:40 ago" in text
    assert "3 new (2 wrong, 1 raises); 9 suspects known, 1 in triage" in text
    assert "1200 run, 1.00/s now, 1.00/s mean" in text
    assert "inductor:ir 900, 0.75/s now; code 300, 0.25/s now" in text
    assert "3 s 5/32 backward" in text
    assert "3 wait: 3 wrong" in text
    assert "torch 2." in lines[-1]
    assert "seed 0" in lines[-1]
    assert "…" not in "\n".join(lines[1:-3])


def test_the_first_line_says_what_is_wrong(campaign: Campaign) -> None:
    def first() -> str:
        return drawn(CampaignPanel(campaign, look(campaign), lambda: 1200.0), 120)[1]

    campaign.totals.unconfirmed |= {"a": "raises through relu: KeyError"}
    assert "well; 3 new fault(s): 1 S1, 2 S3; 1 told, not settled;" in first()
    campaign.pool = SimpleNamespace(health=lambda: {"exploring_deaths": 99, "worker_deaths": 99}, finished=5)  # type: ignore[assignment]
    assert "99 workers died over 1200 programs; 3 new" in first()
    campaign.silent.append("cuda:1")
    assert "cuda:1 does not answer; 3 new" in first()
    campaign.course.pause("the disk is full")
    assert "paused: the disk is full; 3 new" in first()


def test_what_one_build_showed_is_seen_before_it_is_settled(campaign: Campaign) -> None:
    assert "unconfirmed" not in "\n".join(drawn(CampaignPanel(campaign, look(campaign), lambda: 1200.0)))
    campaign.totals.unconfirmed |= {"a": "raises through relu: KeyError", "b": "wrong gradient of x0 through unfold"}
    lines = drawn(CampaignPanel(campaign, look(campaign), lambda: 1200.0))
    assert [line.strip("│ ") for line in lines if "seen" in line] == [
        "seen      2 unconfirmed; wrong gradient of x0 through unfold"
    ]


def test_what_a_narrow_terminal_has_no_room_for_is_marked(campaign: Campaign) -> None:
    lines = drawn(CampaignPanel(campaign, look(campaign), lambda: 1200.0), 48)
    assert {len(line) for line in lines} == {48}
    assert [line for line in lines if line.startswith("│ time") and line.endswith("… │")]


def test_before_it_explores_it_says_what_it_is_at_and_leaves_nothing_blank(plan: Plan) -> None:
    campaign = Campaign(plan, print)
    campaign.course.change(State.CHECKING)
    text = "\n".join(drawn(CampaignPanel(campaign, Pace(), iter(range(0, 99, 9)).__next__)))
    assert "backfuzz: canaries" in text
    assert "0:00:09 of getting ready" in text
    assert "they are started" in text
    assert "nothing waits" in text


def test_a_terminal_without_unicode_gets_a_panel_too(campaign: Campaign) -> None:
    lines = drawn(CampaignPanel(campaign, look(campaign), lambda: 1200.0), encoding="ascii")
    assert ["#" in line for line in lines if "features" in line] == [True]


def test_of_many_workers_it_says_how_many_do_what_and_who_is_longest_at_it() -> None:
    works = [Work("explore_batch", 32, None, "build", float(n)) for n in range(60)] + [Work()] * 4
    head, *lines = worker_lines(works, 2, 3)
    assert head == "64: 60 build, 4 waits"
    assert [line.split() for line in lines] == [
        f"{a} s -/32 build {b} s -/32 build".split() for a, b in ((59, 58), (57, 56))
    ]
    assert worker_lines([], 2, 3) == []


def test_how_long_it_will_take_is_told_by_the_bound_that_is_met_first(campaign: Campaign) -> None:
    plan: Any = campaign.plan
    assert time_left(campaign, 60.0) == "0:59:00"
    assert time_left(campaign, 3601.0) == "the programs that run"
    plan.programs = 2 * campaign.totals.drawn
    assert time_left(campaign, 60.0) == "0:01:00"
    plan.minutes = plan.programs = None
    assert time_left(campaign, 60.0) == "until Ctrl-C"
    assert campaign.triage is not None
    campaign.triage.finish(90.5)
    assert time_left(campaign, 60.0) == "0:01:30 at most, for triage"
    campaign.course.stop()
    assert time_left(campaign, 60.0) == "it is ending"


def test_a_curve_rises_from_the_lowest_bar_to_the_highest() -> None:
    assert sparkline([0, 1, 2, 4, 7]) == "▁▂▃▅█"
    assert sparkline([0, 0]) == ""
    assert clock(86_400 + 61) == "1 day, 0:01:01"
