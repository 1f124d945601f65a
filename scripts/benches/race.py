"""Campaigns side by side: exploration alone, each charged for the CPU seconds that its programs take.

CPU seconds are measured in the workers, so it does not matter what else the machine does. A wrong trial is attributed
to a fault by what acted in it (`Report.fired`), or by second looks: the same program with something else planted. Those
are not charged.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

from fuzzer.campaign.schedule import BySeedWithCorpus
from fuzzer.coverage.features import TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.execution.explore import examine
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.pool import Pool
from fuzzer.execution.usage import cpu_seconds

CPU = "cpu"  # the phase of a metered Report that holds all of its CPU seconds
_SWEPT_EVERY = 256  # programs


def _metered(task: Task, what: tuple[Callable[[Task, Any], Report], Any]) -> Report:
    """What a function of the worker reports, and the CPU seconds that it took."""
    function, given = what
    started = cpu_seconds()
    report = function(task, given)
    report.seconds[CPU] = cpu_seconds() - started
    return report


class Metered(Pool):
    """A pool whose Reports say what they took."""

    def submit(self, function: Callable[..., Any], task: Task, what: Any, programs: int = 1) -> Future[Any]:
        return super().submit(_metered, task, (function, what), programs)


@dataclass(frozen=True)
class Look:
    """A second look: under this task the program must be of this class if the fault did it."""

    fault: str
    task: Task
    expected: str


# (faults that certainly did it, looks that will tell) of a Report, where these faults are found already.
Judge = Callable[[Report, set[str]], tuple[set[str], list[Look]]]


@dataclass
class Run:
    """One campaign: an arm and a seed, until it has spent its CPU seconds or found all that it is to find.

    wanted   faults after which it ends, any number where there are none;  limit  seconds after its first program.
    """

    arm: str
    seed: int
    task: Task
    schedule: BySeedWithCorpus
    budget: float
    wanted: frozenset[str] = frozenset()
    limit: float = float("inf")
    started: float | None = None
    spent: float = 0.0
    submitted: int = 0
    flying: int = 0
    found: set[str] = field(default_factory=set)
    classes: Counter[str] = field(default_factory=Counter)

    @property
    def programs(self) -> int:
        return self.classes.total()

    @property
    def wall(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started

    @property
    def over(self) -> bool:
        return self.spent >= self.budget or self.wall > self.limit or bool(self.wanted and self.wanted <= self.found)


@dataclass
class Lane:
    """A pool of its own, and the runs that it works off one after the other."""

    pool: Pool
    runs: list[Run]
    flying: int = 0

    @property
    def run(self) -> Run | None:
        """The one whose turn it is."""
        return next((run for run in self.runs if not run.over), None)

    @property
    def room(self) -> bool:
        """Whether a worker waits, or would soon."""
        return self.flying < self.pool.workers + self.pool.workers // 8


@dataclass(frozen=True)
class Flight:
    """A program under way, or a second look at one; when it was submitted."""

    lane: Lane
    run: Run
    number: int
    began: float
    look: Look | None = None
    seen: dict[str, Any] = field(default_factory=dict)


class Race:
    """Lanes side by side; rows go to `write` as things happen, of each run's state every so many CPU seconds."""

    def __init__(self, lanes: Sequence[Lane], judge: Judge, write: Callable[[dict[str, Any]], None], every: float):
        self.lanes, self.judge, self.write, self.every = lanes, judge, write, every
        self.flying: dict[Future[Report], Flight] = {}

    def go(self, ends: float) -> None:
        """Until all runs are over, or no program is begun after `ends` on the monotonic clock."""
        while True:
            for lane in self.lanes:
                while time.monotonic() < ends and lane.room and (run := lane.run):
                    self._begin(lane, run)
            if not self.flying:
                break
            for future in wait(self.flying, return_when=FIRST_COMPLETED).done:
                self._take(future)
        for run in (run for lane in self.lanes for run in lane.runs):
            self._tell(run, "end", classes=dict(run.classes), found=sorted(run.found))
            run.schedule.close()

    def _begin(self, lane: Lane, run: Run) -> None:
        run.started = run.started or time.monotonic()
        future = run.schedule.submit(lane.pool, run.task, run.submitted)
        self.flying[future] = Flight(lane, run, run.submitted, time.monotonic())
        run.submitted += 1
        lane.flying += 1

    def _take(self, future: Future[Report]) -> None:
        flight = self.flying.pop(future)
        lane, run, before = flight.lane, flight.run, flight.run.spent
        report = lane.pool.result(future, run.task)
        if flight.look is not None:
            self._looked(flight, flight.look, report)
            return
        lane.flying -= 1
        run.spent += report.seconds.get(CPU, time.monotonic() - flight.began)  # a death tells nothing of its own
        run.classes[report.verdict] += 1
        run.schedule.learn(flight.number, report)
        if run.programs % _SWEPT_EVERY == 0:
            lane.pool.sweep()
        if run.spent // self.every > before // self.every:
            self._tell(run, "at")
        self._judge(lane, run, report)

    def _judge(self, lane: Lane, run: Run, report: Report) -> None:
        said = str(report.verdicts[0].signature) if report.verdicts else ""
        seen = self._row(run) | {"text": report.text, "signature": said, "fired": report.fired}
        sure, looks = self.judge(report, run.found)
        for fault in sorted(sure):
            self._find(run, fault, seen)
        for look in looks:
            future = lane.pool.submit(examine, look.task, report.text)
            self.flying[future] = Flight(lane, run, -1, time.monotonic(), look, seen)
        explained = sure or looks or run.found.intersection(report.fired)
        if not explained and report.verdict not in ("agree", "rejected"):
            self.write({"row": "unexplained", **seen})

    def _looked(self, flight: Flight, look: Look, report: Report) -> None:
        if report.verdict == look.expected:
            self._find(flight.run, look.fault, flight.seen)
        elif not flight.seen["fired"]:
            self.write({"row": "unexplained", **flight.seen})

    def _find(self, run: Run, fault: str, seen: dict[str, Any]) -> None:
        if fault not in run.found:
            run.found.add(fault)
            self.write({"row": "found", "fault": fault, **seen})

    def _row(self, run: Run) -> dict[str, Any]:
        told = {"arm": run.arm, "seed": run.seed, "cpu": round(run.spent, 3), "wall": round(run.wall, 3)}
        return told | {"programs": run.programs}

    def _tell(self, run: Run, row: str, **more: Any) -> None:
        counted = run.schedule.corpus.frontier.families
        shown = {family: counted[family] for family in (*TRACE_FAMILIES, *COMPILED_FAMILIES)}
        self.write({"row": row, **self._row(run), "features": sum(shown.values()), "families": shown, **more})
