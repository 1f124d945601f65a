"""The panel of a campaign on a terminal: the first lines answer a person's first questions."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.state import State
from fuzzer.campaign.told.logs import free_bytes, thinned
from fuzzer.campaign.told.totals import Pace, by_stage
from fuzzer.coverage.cells import CELL_FAMILIES
from fuzzer.coverage.features import LINES
from fuzzer.judgement.verdict import CLASSES, FINDINGS
from fuzzer.workers.at_work import Work, at_work
from fuzzer.workers.capacity import cores, free_ram

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_CURVE = 24  # points of a curve
_WORKER_WIDTH = 33  # columns for what one worker is at
_BESIDE = 14  # columns of the frame and the names of rows
_NAMES = 14  # columns of the first column, of what is between the two, and of the frame
_AROUND = 14  # lines of the panel without workers; they take half of what is left, what is said the other
_FEW_DEATHS, _MANY_DEATHS = 5, 0.05  # workers that died over drawn programs, and as a share of these
_COLORS = {"wrong": "bold red", "crashes": "bold red", "hangs": "bold red"}


def clock(seconds: float) -> str:
    """So many seconds as hours, minutes, seconds."""
    return str(timedelta(seconds=max(0, int(seconds))))


def sparkline(values: Sequence[float], bars: str = _BARS) -> str:
    """A curve in one line, from 0 to its highest value."""
    most = max(values, default=0)
    return "".join(bars[round((len(bars) - 1) * value / most)] for value in values) if most else ""


def time_left(campaign: Campaign, seconds: float) -> str:
    """How long it will still take after so many seconds of exploring, by the bound that is met first."""
    plan, programs, triage = campaign.plan, campaign.totals.programs, campaign.triage
    if campaign.course.stopped:
        return "it is ending"
    if triage is not None and triage.deadline is not None:
        return f"{clock(triage.deadline - time.monotonic())} at most, for triage"
    left = [] if plan.minutes is None else [60 * plan.minutes - seconds]
    if plan.programs is not None:
        wanted = plan.programs - campaign.totals.drawn
        if not programs:
            return f"{wanted} programs" if not left else f"{clock(left[0])}, or {wanted} programs"
        left.append(wanted * seconds / campaign.totals.drawn)
    if left:
        return clock(min(left)) if min(left) > 0 else "the programs that run"
    return "until nothing is new" if plan.bounds.plateau else "until Ctrl-C"


class CampaignPanel:
    """A campaign as it is whenever this is drawn.

    began   when it was started, by `clock`, as `campaign.course.since` is.
    """

    def __init__(self, campaign: Campaign, pace: Pace, clock: Callable[[], float] = time.monotonic):
        self.campaign, self.pace, self.clock, self.began = campaign, pace, clock, clock()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        campaign = self.campaign
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True, min_width=8)
        cut: Literal["crop", "ellipsis"] = "crop" if options.ascii_only else "ellipsis"
        # rich would shrink no column that must not wrap, and cut it without a mark
        table.add_column(no_wrap=True, overflow=cut, max_width=max(1, options.max_width - _NAMES))
        bars = _PLAIN_BARS if options.ascii_only else _BARS
        for name, text in self._rows(bars):
            table.add_row(name, text)
        room = max(1, (options.max_width - _BESIDE) // _WORKER_WIDTH), max(1, (console.height - _AROUND) // 2)
        for name, text in self._below(*room):
            table.add_row(name, text)
        place = {} if campaign.triage is None else campaign.triage.place
        subject, ledger = campaign.plan.task.place.subject, campaign.plan.db
        torch = f"torch {place['torch']}, " if "torch" in place else ""
        about = (
            f"{torch}{place.get('gpu', subject.device)}, {subject.backend}, seed {campaign.plan.task.seed}, {ledger}"
        )
        yield Panel(table, title=f"backfuzz: {campaign.course.state.value}", subtitle=Text(about), title_align="left",
                    subtitle_align="left")  # fmt: skip

    def seconds(self) -> float:
        """Since exploring began; 0 before."""
        since = self.campaign.course.since.get(State.EXPLORING)
        return 0.0 if since is None else self.clock() - since

    def _rows(self, bars: str) -> Iterator[tuple[str, Text | str]]:
        """The rows that a person looks at first."""
        totals, seconds = self.campaign.totals, self.seconds()
        yield "now", self._now()
        if State.EXPLORING not in self.campaign.course.since:
            ran = f", {pool.finished} programs run" if (pool := self.campaign.pool) is not None else ""
            yield "time", f"{clock(self.clock() - self.began)} of getting ready{ran}; the rates leave it out"
        else:
            new = self.pace.last_new
            last = "no new fault yet" if new is None else f"last new fault {clock(seconds - new)} ago"
            yield "time", f"{clock(seconds)} run, left: {time_left(self.campaign, seconds)}, {last}"
        yield "faults", self._faults()
        shown = f"{totals.programs} run, {sum(self.pace.now().values()):.2f}/s now, "
        explored = totals.seconds or seconds
        shown += f"{totals.programs / explored if explored else 0.0:.2f}/s mean"
        if told := [*totals.unconfirmed.values()]:
            yield "seen", Text(f"{len(told)} unconfirmed; {told[-1]}", style="bold yellow")
        yield "programs", shown
        if len(stages := by_stage(totals)) > 1:
            now = self.pace.now()
            yield "", "; ".join(f"{name} {n}, {now.get(name, 0.0):.2f}/s now" for name, n in stages.items())
        judged = ", ".join(f"{totals.classes[c]} {c}" for c in CLASSES if totals.classes[c])
        seen = f"; {totals.detectable / totals.differentiated:.0%} detectable" if totals.differentiated else ""
        yield "verdicts", f"{judged or 'none yet: programs come in batches'}{seen}"
        if legal := totals.legal_by_pattern():
            yield "", "legal, counted: " + ", ".join(f"{n} {pattern}" for pattern, n in legal.items())
        yield from self._curves(bars)

    def _now(self) -> Text:
        """Whether the campaign is well, what it finds, and the one command to type now, if there is one."""
        totals, pool = self.campaign.totals, self.campaign.pool
        trouble = self._trouble(pool.health() if pool is not None else {})
        told = Text(trouble or "well", style="bold red" if trouble else "bold green")
        worst = ", ".join(f"{n} {name}" for name, n in sorted(totals.severities.items()))
        told.append(f"; {totals.new.total()} new fault(s){f': {worst}' if worst else ''}", style="default")
        if waiting := len(totals.unconfirmed):
            told.append(f"; {waiting} told, not settled", style="default")
        return told.append(f"; backfuzz show {totals.last_new}" if totals.last_new else "", style="bold")

    def _trouble(self, health: Mapping[str, int]) -> str:
        """What is wrong with the machine or the workers; "" where nothing is. A worker may die of a drawn program; of
        many something else is the cause."""
        deaths, programs = health.get("exploring_deaths", 0), self.campaign.totals.programs
        if self.campaign.course.lacks:
            return f"paused: {self.campaign.course.lacks}"
        if self.campaign.silent:
            return f"{', '.join(self.campaign.silent)} does not answer"
        if deaths > _FEW_DEATHS and deaths > _MANY_DEATHS * programs:
            return f"{deaths} workers died over {programs} programs"
        return ""

    def _faults(self) -> Text:
        totals, triage = self.campaign.totals, self.campaign.triage
        new = [(f"{n} {name}", _COLORS.get(name, "bold yellow")) for name in FINDINGS if (n := totals.new[name])]
        told = Text(f"{totals.new.total()} new")
        if new:
            told.append_text(Text(" (") + Text(", ").join(Text(*one) for one in new) + Text(")"))
        variants = f", {totals.variants.total()} variants of known ones" if totals.variants.total() else ""
        at_it = len(triage.busy) if triage else 0
        return told.append(f"{variants}; {totals.known.total()} suspects known, {at_it} in triage")

    def _curves(self, bars: str) -> Iterator[tuple[str, str]]:
        """Cells, features and lines of the compiler, each with how it grew."""
        families = dict(self.campaign.schedule.features())
        points = [p.features for p in thinned(self.campaign.progress.points if self.campaign.progress else [], _CURVE)]
        kinds = {"cells": set(CELL_FAMILIES), "lines": set(LINES)}
        kinds["features"] = set(families) - kinds["cells"] - kinds["lines"]
        for name in ("cells", "features", "lines"):
            counts = [sum(n for family, n in point.items() if family in kinds[name]) for point in (*points, families)]
            if counts[-1]:
                yield name, f"{counts[-1]:<7} {sparkline([0, *counts], bars)}"

    def _below(self, columns: int, rows: int) -> Iterator[tuple[str, Text | str]]:
        """The workers, the queue and the machine."""
        campaign, pool = self.campaign, self.campaign.pool
        works = at_work(pool) if pool is not None else []
        for i, line in enumerate(worker_lines(works, columns, rows) or ["they are started"]):
            yield "" if i else "workers", line
        yield "queue", self._queue()
        health = pool.health() if pool is not None else {}
        load = f"load {os.getloadavg()[0]:.1f}/{cores()} cores"
        free = f"memory {_gib(health.get('memory_bytes', 0))}, {_gib(free_ram())} free"
        disk = f"; disk {_gib(free_bytes(campaign.plan.folder))} free" if campaign.plan.folder.exists() else ""
        yield "machine", f"{load}; {free}{disk}"
        if deaths := health.get("exploring_deaths"):
            yield "", f"{deaths} workers died of drawn programs, or met their deadline"

    def _queue(self) -> str:
        triage = self.campaign.triage
        if triage is None:
            return "nothing waits"
        queue = triage.queue()
        waiting = ", ".join(f"{queue[name]} {name}" for name in CLASSES if name in queue)
        # without the oracle, which the class tells
        busy = ", ".join(str(suspect.signature).partition("/")[2] for suspect in list(triage.busy))
        return f"{sum(queue.values())} wait{f': {waiting}' if waiting else ''}{f'; at work on {busy}' if busy else ''}"


def worker_lines(works: Sequence[Work], columns: int, rows: int) -> list[str]:
    """The task of each worker and its seconds, so many in a line. Where there is no room for all: how many do which,
    and those that have taken longest."""
    head = []
    if len(works) > columns * rows:
        phases = Counter(work.phase or str(work) for work in works)
        head = [f"{len(works)}: " + ", ".join(f"{n} {phase}" for phase, n in phases.most_common())]
        works = sorted(works, key=lambda work: -work.seconds)[: columns * (rows - 1)]
    cells = [f"{f'{work.seconds:.0f} s' if work.task else '':>5} {work}"[: _WORKER_WIDTH - 1] for work in works]
    lines = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    return [*head, *("".join(f"{cell:{_WORKER_WIDTH}}" for cell in line).rstrip() for line in lines)]


def _gib(size: int) -> str:
    return f"{size / 2**30:.{0 if size >= 10 * 2**30 else 1}f} GiB"
