"""The view of a running campaign: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live as RichLive
from rich.text import Text

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.state import State
from fuzzer.campaign.told.panel import CampaignPanel, clock
from fuzzer.campaign.told.totals import Pace, Totals
from fuzzer.judgement.verdict import FINDINGS

LINE_SECONDS = 60.0
# The first line comes after this, each of the next when twice the time is over, until a minute lies between two.
_FIRST_LINE_SECONDS = 5.0
_LOOK_SECONDS = 1.0


def status_line(campaign: Campaign, pace: Pace) -> str:
    """One short line: the time, the speed, the faults, the queue."""
    totals, triage = campaign.totals, campaign.triage
    seconds = totals.seconds or campaign.course.seconds(State.EXPLORING)
    told = [f"{clock(seconds)} run", f"{totals.programs} programs ({sum(pace.now().values()):.2f}/s now)"]
    told += [f"{totals.new.total()} new fault(s)"]
    told += [f"{len(totals.unconfirmed)} unconfirmed"] if totals.unconfirmed else []
    told += [f"{known} suspects known"] if (known := totals.known.total()) else []
    told += [f"{len(triage.busy)} in triage"] if triage and triage.busy else []
    told += [f"{len(triage.waiting)} waiting"] if triage and triage.waiting else []
    if State.EXPLORING not in campaign.course.since:
        told = [f"{campaign.course.state.value}: {campaign.pool.finished if campaign.pool else 0} programs run"]
    features = sum(campaign.schedule.features().values())
    return ", ".join(told + ([f"{features} features"] if features else []))


class Lines:
    """Plain lines, each with the time; on stderr when stdout carries JSON.

    unread   whether the reader has gone (`| head`): then the campaign is stopped, and nothing is printed any more.
    """

    def __init__(self, as_json: bool):
        self.stream = sys.stderr if as_json else sys.stdout
        self.began = self.told = time.monotonic()
        self.pace, self.unread = Pace(), False
        self.over = threading.Event()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.over.set()

    def begin(self, campaign: Campaign) -> None:
        """Show this campaign from now until the view ends, also before it explores."""

        def watch() -> None:
            while not self.over.wait(_LOOK_SECONDS) and State.EXPLORING not in campaign.course.since:
                self.tell(campaign)

        threading.Thread(target=watch, daemon=True).start()

    def say(self, line: str) -> None:
        self.write(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {line}")

    def write(self, text: str) -> None:
        """Print this as it is; from any thread."""
        try:
            print(text, file=self.stream, flush=True)
        except BrokenPipeError:
            self.unread = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def update(self, campaign: Campaign) -> None:
        """Look at the campaign, which explores; say how far it is, soon at first, then once a minute."""
        self.look(campaign)
        self.tell(campaign)

    def tell(self, campaign: Campaign) -> None:
        between = min(LINE_SECONDS, max(_FIRST_LINE_SECONDS, self.told - self.began))
        if time.monotonic() - self.told >= between:
            self.told = time.monotonic()
            self.say(status_line(campaign, self.pace))

    def look(self, campaign: Campaign) -> None:
        if State.EXPLORING in campaign.course.since:
            self.pace.look(campaign.course.seconds(State.EXPLORING), campaign.totals)
        if self.unread and not campaign.course.stopped:
            campaign.stop()

    def end(self, totals: Totals) -> None:
        self.write(_summary_text(totals))


class Live(Lines):
    """A panel that is redrawn in place; findings scroll above it."""

    def __init__(self, as_json: bool):
        super().__init__(as_json)
        self.console = Console(file=self.stream)
        self.panel: RenderableType = ""
        self.live = RichLive(
            console=self.console, refresh_per_second=2, transient=True, get_renderable=lambda: self.panel
        )

    def __enter__(self) -> Live:
        self.live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.live.stop()

    def begin(self, campaign: Campaign) -> None:
        self.panel = CampaignPanel(campaign, self.pace)

    def write(self, text: str) -> None:
        self.console.print(Text(text))

    def update(self, campaign: Campaign) -> None:
        self.look(campaign)


def _summary_text(totals: Totals) -> str:
    """The summary for people."""
    s = totals.summary()
    found, variants = (", ".join(f"{of[c]} {c}" for c in FINDINGS if of[c]) for of in (totals.new, totals.variants))
    counted = ", ".join(f"{n} {pattern}" for pattern, n in totals.legal_by_pattern().items())
    legal = f"legal differences: {counted}\n" if counted else ""
    return (
        f"{s['programs']} programs in {s['seconds']} s ({s['programs_per_s']}/s); "
        f"detectable {s['detectable_share']:.1%} of programs, {s['detectable_elements_share']:.1%} of elements, "
        f"{s['deaf_elements_share']:.1%} deaf; "
        f"rejected {s['rejected_share']:.1%}\n"
        f"{legal}new faults: {found or 'none'}{f'; new variants of known ones: {variants}' if variants else ''}; "
        f"`backfuzz faults` shows them all\n"
        f"suspects: {totals.suspects.total()} of {totals.keys} key(s), {_recognised_text(totals)}, "
        f"{totals.minimized} minimized{_sources_text(s['sources'])}"
        + "".join(f"\nunconfirmed: {line}" for line in totals.unconfirmed.values())
    )


def _sources_text(sources: dict[str, dict[str, float]]) -> str:
    """Lines about what programs of each source brought, where there are several."""
    if len(sources) < 2:
        return ""
    return "".join(
        f"\n{name}: {of['programs']:.0f} programs in {of['cpu']:.0f} CPU s, {of['suspects']:.0f} suspects, "
        f"{of['keys']:.0f} new keys, {of['faults']:.0f} new faults" for name, of in sources.items()
    )  # fmt: skip


def _recognised_text(totals: Totals) -> str:
    """How many suspects were recognised as known faults, and in how many experiments each."""
    told = [f"{of['keys']} key(s) of {fault} in {of['experiments']} experiments"
            for fault, of in totals.recognised.items()]  # fmt: skip
    count = sum(of["keys"] for of in totals.recognised.values())
    return f"{count} recognised as known ({'; '.join(told)})" if told else "none recognised as known"
