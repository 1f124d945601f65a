"""Campaigns side by side: exploration alone, each charged for the CPU seconds that its programs take.

CPU seconds are measured in the workers, so it does not matter what else the machine does. Programs come alone or in
batches, whose Reports arrive together: what a batch took is charged before any of them is looked at. A suspect that a
campaign has not met is built once more, by itself and under the final look, as a campaign does before it goes on with
it; that is charged too. A trial is attributed to a planted fault by what acted in it (`Report.fired`), or by second
looks: the same program with something else planted. Those are the bench's own, and not charged.
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
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.trial.batch import left_over
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

CPU = "cpu"  # the phase of a Report that holds all of its CPU seconds
SERIOUS = ("crashes", "hangs", "wrong", "raises")  # what counts where nothing planted explains it


@dataclass(frozen=True)
class Look:
    """A second look: under this task the program must be of this class if the fault did it."""

    fault: str
    task: Task
    expected: str


# (faults that certainly did it, looks that will tell) of a Report, where these faults are found already.
Judge = Callable[[Report, set[str]], tuple[set[str], list[Look]]]
# The task under which a suspect is built once more, of its campaign's; "" in place of a fault: nothing planted did it.
Check = Callable[[Task, str], Task]


@dataclass
class Run:
    """One campaign: an arm and a seed, until it has spent its CPU seconds or found all that it is to find.

    wanted   faults after which it ends, any number where there are none;  limit  seconds after its first program.
    batch    programs that begin together;  again  those that a worker took with it when it died.
    built    programs that were built;  met  signatures that nothing planted explains, and that were checked.
    """

    arm: str
    seed: int
    task: Task
    schedule: BySeedWithCorpus
    budget: float
    wanted: frozenset[str] = frozenset()
    limit: float = float("inf")
    batch: int = 1
    started: float | None = None
    spent: float = 0.0
    submitted: int = 0
    flying: int = 0
    built: int = 0
    again: list[tuple[int, ...]] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)
    classes: Counter[str] = field(default_factory=Counter)

    @property
    def programs(self) -> int:
        return self.classes.total()

    def next(self) -> tuple[int, ...]:
        """The numbers of the programs that begin now."""
        if self.again:
            return self.again.pop()
        self.submitted += self.batch
        return tuple(range(self.submitted - self.batch, self.submitted))

    @property
    def wall(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started

    @property
    def over(self) -> bool:
        """Whether no program is begun any more; of the last batch counts what came in time (`rows.report`)."""
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
    """Programs under way, or one that is looked at again or checked; when it was submitted."""

    lane: Lane
    run: Run
    numbers: tuple[int, ...]
    began: float
    look: Look | None = None
    seen: dict[str, Any] = field(default_factory=dict)
    checks: str | None = None  # the fault that is to show again

    def spent(self, reports: Sequence[Report | None]) -> float:
        """The CPU seconds that it took; where a worker died, which tells nothing of its own, seconds on the clock."""
        told = [report.seconds[CPU] for report in reports if report is not None and CPU in report.seconds]
        return sum(told) if len(told) == len(reports) else max(sum(told), time.monotonic() - self.began)


class Race:
    """Lanes side by side; rows go to `write` as things happen, of each run's state every so many CPU seconds.

    check: of suspects that a campaign has not met; without it none is checked.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        judge: Judge,
        write: Callable[[dict[str, Any]], None],
        every: float,
        check: Check | None = None,
    ):
        self.lanes, self.judge, self.write, self.every, self.check = lanes, judge, write, every, check
        self.flying: dict[Future[Any], Flight] = {}

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
        run.started, numbers = run.started or time.monotonic(), run.next()
        future = run.schedule.submit(lane.pool, run.task, *numbers)
        self.flying[future] = Flight(lane, run, numbers, time.monotonic())
        lane.flying += 1

    def _take(self, future: Future[Any]) -> None:
        flight = self.flying.pop(future)
        lane, run = flight.lane, flight.run
        if flight.look is not None:
            report = lane.pool.result(future, flight.look.task)
            self._checked(flight, report) if flight.checks is not None else self._looked(flight, flight.look, report)
            return
        reports = lane.pool.results(future, run.task)
        lane.flying -= 1
        before, run.spent = run.spent, run.spent + flight.spent(reports)
        for number, told in zip(flight.numbers, reports, strict=True):
            if told is not None:
                self._count(lane, run, number, told)
        run.again += left_over(flight.numbers, reports)
        self._mark(run, before)
        for told in reports:
            if told is not None:
                self._judge(lane, run, told)

    def _mark(self, run: Run, before: float) -> None:
        if run.spent // self.every > before // self.every:
            self._tell(run, "at")

    def _count(self, lane: Lane, run: Run, number: int, report: Report) -> None:
        run.classes[report.verdict] += 1
        run.built += not (report.stage or report.rejected)
        run.schedule.learn(number, report)

    def _judge(self, lane: Lane, run: Run, report: Report) -> None:
        said = str(report.verdicts[0].signature) if report.verdicts else ""
        seen = self._row(run) | {"text": report.text, "signature": said, "fired": report.fired, "stage": report.stage}
        seen["class"] = report.verdict
        sure, looks = self.judge(report, run.found)
        for fault in sorted(sure):
            self._find(lane, run, fault, seen)
        for look in looks:
            self._look(lane, run, look, seen)
        explained = sure or looks or run.found.intersection(report.fired)
        if not explained and report.verdict not in ("agree", "rejected"):
            self._leave_open(lane, run, seen)

    def _look(self, lane: Lane, run: Run, look: Look, seen: dict[str, Any], checks: str | None = None) -> None:
        future = lane.pool.submit(examine, look.task, seen["text"])
        self.flying[future] = Flight(lane, run, (), time.monotonic(), look, seen, checks)

    def _looked(self, flight: Flight, look: Look, report: Report) -> None:
        if report.verdict == look.expected:
            self._find(flight.lane, flight.run, look.fault, flight.seen)
        elif not flight.seen["fired"]:
            self._leave_open(flight.lane, flight.run, flight.seen)

    def _find(self, lane: Lane, run: Run, fault: str, seen: dict[str, Any]) -> None:
        if fault not in run.found:
            run.found.add(fault)
            self.write({"row": "found", "fault": fault, **seen})
            if self.check is not None:
                self._look(lane, run, Look(fault, self.check(run.task, fault), ""), seen, fault)

    def _leave_open(self, lane: Lane, run: Run, seen: dict[str, Any]) -> None:
        """Nothing planted explains this: is it there with nothing planted? Asked until a signature was seen to be."""
        self.write({"row": "unexplained", **seen})
        if self.check is not None and seen["class"] in SERIOUS and seen["signature"] not in run.met:
            run.met.add(seen["signature"])
            self._look(lane, run, Look("", self.check(run.task, ""), ""), seen, "")

    def _checked(self, flight: Flight, report: Report) -> None:
        """A suspect was built once more: one that shows nothing is none, and is looked for again."""
        run, fault, seen = flight.run, flight.checks, flight.seen
        before, run.spent = run.spent, run.spent + flight.spent([report])
        self._mark(run, before)
        said = str(report.verdicts[0].signature) if report.verdicts else ""
        if report.verdict in (FINDINGS if fault else SERIOUS):
            self.write({"row": "checked" if fault else "real", "fault": fault, **seen, "signature": said})
            return
        (run.found if fault else run.met).discard(fault or seen["signature"])
        self.write({"row": "lost", "fault": fault, **seen})

    def _row(self, run: Run) -> dict[str, Any]:
        told = {"arm": run.arm, "seed": run.seed, "cpu": round(run.spent, 3), "wall": round(run.wall, 3)}
        return told | {"programs": run.programs, "built": run.built}

    def _tell(self, run: Run, row: str, **more: Any) -> None:
        counted = run.schedule.corpus.frontier.families
        shown = {family: counted[family] for family in (*TRACE_FAMILIES, *COMPILED_FAMILIES)}
        self.write({"row": row, **self._row(run), "features": sum(shown.values()), "families": shown, **more})
