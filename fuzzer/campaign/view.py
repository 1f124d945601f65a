"""What a campaign shows while it runs: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.totals import Totals
from fuzzer.judgement.verdict import CLASSES, FINDINGS

LINE_SECONDS = 10.0


def status_line(campaign: Campaign) -> str:
    """One line: how far, how fast, what was found."""
    totals, triage = campaign.totals, campaign.triage
    classes = ", ".join(f"{totals.classes[c]} {c}" for c in CLASSES if totals.classes[c])
    busy = f"; looking into {', '.join(str(s.signature) for s in triage.busy)}" if triage and triage.busy else ""
    waiting = f", {len(triage.waiting)} waiting" if triage is not None and triage.waiting else ""
    shown = f"; {told}" if (told := campaign.schedule.progress()) else ""
    found = f"{totals.new.total()} new fault(s)"
    if recognised := sum(map(len, totals.recognised.values())):
        found += f", {recognised} recognised"
    return f"{totals.programs} programs: {classes or 'none yet'}; {found}{busy}{waiting}{shown}"


class Lines:
    """Plain lines; on stderr when stdout carries JSON."""

    def __init__(self, as_json: bool):
        self.stream = sys.stderr if as_json else sys.stdout
        self.told, self.last = time.monotonic(), ""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    def update(self, campaign: Campaign) -> None:
        """Say how far it is, now and then, and not twice the same."""
        if time.monotonic() - self.told >= LINE_SECONDS:
            self.told = time.monotonic()
            if (line := status_line(campaign)) != self.last:
                self.last = line
                self.say(line)

    def end(self, totals: Totals) -> None:
        self.say(_summary_text(totals))


class Live(Lines):
    """A panel that is redrawn in place; findings scroll above it."""

    def __init__(self, as_json: bool):
        super().__init__(as_json)
        self.console = Console(file=self.stream)
        self.live = RichLive(console=self.console, refresh_per_second=2, transient=True)
        self.started = time.monotonic()

    def __enter__(self) -> Live:
        self.live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.live.stop()

    def say(self, line: str) -> None:
        self.console.print(Text(line))

    def update(self, campaign: Campaign) -> None:
        self.live.update(self.panel(campaign))

    def panel(self, campaign: Campaign) -> Any:
        totals = campaign.totals
        elapsed = max(time.monotonic() - self.started, 1e-9)
        table = Table.grid(padding=(0, 2))
        for name in CLASSES:
            if totals.classes[name]:
                new = f"{totals.new[name]} new fault(s)" if totals.new[name] else ""
                table.add_row(name, str(totals.classes[name]), new)
        share = totals.detectable / max(totals.programs, 1)
        head = f"{elapsed:.0f} s, {totals.programs} programs, {totals.programs / elapsed:.2f}/s, {share:.1%} detectable"
        return Group(Text(head), table, Text(status_line(campaign)))


def _summary_text(totals: Totals) -> str:
    """The summary for people."""
    s = totals.summary()
    found, variants = (", ".join(f"{of[c]} {c}" for c in FINDINGS if of[c]) for of in (totals.new, totals.variants))
    return (
        f"{s['programs']} programs in {s['seconds']} s ({s['programs_per_s']}/s); "
        f"detectable {s['detectable_share']:.1%} of programs, {s['detectable_elements_share']:.1%} of elements; "
        f"rejected {s['rejected_share']:.1%}\n"
        f"new faults: {found or 'none'}{f'; new variants of known ones: {variants}' if variants else ''}; "
        f"`backfuzz faults` shows them all\n"
        f"suspects: {_recognised_text(totals)}, {totals.minimized} minimized"
    )


def _recognised_text(totals: Totals) -> str:
    """How many suspects were recognised as known faults, and in how many experiments each."""
    told = [f"{fault} in {' + '.join(map(str, each))} experiments" for fault, each in totals.recognised.items()]
    count = sum(map(len, totals.recognised.values()))
    return f"{count} recognised as known ({'; '.join(told)})" if told else "none recognised as known"
