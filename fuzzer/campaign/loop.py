"""The loop of a campaign: draw, run, judge; triage beside it on the same pool.

The main thread keeps the workers busy with fresh programs, triage threads turn suspects into findings. Whatever
happens, the ledger only ever receives verified findings.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzer.campaign.bounds import Room, compiler_of
from fuzzer.campaign.canaries import run_canaries
from fuzzer.campaign.deaths_in_drawing import Undrawn
from fuzzer.campaign.heap import trim_heap
from fuzzer.campaign.mixture import source_of
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.schedule import BySeed, Schedule
from fuzzer.campaign.state import Course, State
from fuzzer.campaign.suspects.patience import require_ledgers
from fuzzer.campaign.suspects.queue import Triage
from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.campaign.told.logs import Heartbeat, Progress, RotatingLog, free_bytes
from fuzzer.campaign.told.totals import Totals
from fuzzer.campaign.told.written import now
from fuzzer.campaign.turns import batches
from fuzzer.judgement.verdict import FINDINGS, without_paths
from fuzzer.language.errors import NoMachine
from fuzzer.language.text import parse
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.store import CampaignRecord as Record
from fuzzer.ledger.store import open_store
from fuzzer.trial.batch import left_over
from fuzzer.workers.capacity import cores
from fuzzer.workers.folders import alone, remove_own
from fuzzer.workers.interface import Stopped, stop_all
from fuzzer.workers.messages import Report
from fuzzer.workers.pool import DEADLINE_SECONDS, Pool
from fuzzer.workers.worker import INTERNAL_ERROR

# After a campaign is stopped: when the programs that still run are given up (nothing about them is stored yet), when no
# triage is waited for, when workers are killed, whatever waits for them, and when it has ended.
_STOP_SECONDS, _LEAVE_TRIAGE_SECONDS, _KILL_WORKERS_SECONDS, END_SECONDS = 5.0, 9.0, 11.0, 20.0
_FIRST_BATCH = 2  # programs
_LOOK_SECONDS = 0.5  # at what is to be done beside waiting for programs
KILLED = 130  # the exit status where something hung until then
# Once the time is up: when the programs that still run are given up, how long suspects are worked on where the plan
# says nothing else, and how long after that the step that a suspect is at may take. A campaign of so many programs has
# no time that could be up.
_LATE_SECONDS, GRACE_SECONDS, _LAST_STEP_SECONDS = 4.0, 8.0, 3.0
_GRACE_OF_PROGRAMS = 60.0
_MakeSchedule = Callable[[Path], Schedule]


def require_canaries(pool: Pool, plan: Plan, say: Callable[[str], None]) -> None:
    """Run the quick canaries: an oracle is trusted only after it flagged its canary and was silent on the twin. Raises
    NoMachine."""
    found = run_canaries(pool, plan.task.place.subject.device, quick=True)
    bad = [c for c in found if not c.passed]
    if bad and all(c.late for c in bad):
        raise NoMachine(
            f"{len(bad)} of {len(found)} canaries did not end in time: this machine is too slow, or too busy "
            f"({os.getloadavg()[0]:.1f} processes want its {cores()} cores); fewer --workers leave each more"
        )
    if bad:
        told = "; ".join(f"{c.name}: {c.detail}" for c in bad)
        raise NoMachine(f"the oracles cannot be trusted here; `backfuzz doctor` says more. {told}")
    say(f"{len(found)} canaries rang, their twins were silent")


_NAMED_BY = "%Y%m%dT%H%M%S"


def name_by_time(now: datetime.datetime, last: str = "") -> str:
    """The time as a campaign's folder is named by it: after that of the last folder, also where the clock was set back,
    so that the last by name is the last that ran."""
    with contextlib.suppress(ValueError):  # a folder of another name
        told = datetime.datetime.strptime(last.partition("-")[0], _NAMED_BY).replace(tzinfo=now.tzinfo)
        now = max(now, told + datetime.timedelta(seconds=1))
    return now.strftime(_NAMED_BY)


def _make_pool(plan: Plan) -> Pool:
    """The workers of a campaign, within its bounds."""
    deadline = DEADLINE_SECONDS if plan.bounds.deadline is None else plan.bounds.deadline
    return Pool(plan.workers, plan.devices, deadline, plan.folder, batch=plan.batch, memory=plan.bounds.memory,
                cluster=plan.cluster)  # fmt: skip


@dataclass
class Campaign:
    """A running campaign: its totals, and what the live view reads.

    make_schedule   gives the schedule, of a folder of the campaign's own.
    course          its state.
    silent          devices that do not answer any more.
    """

    plan: Plan
    say: Callable[[str], None] = print
    make_schedule: _MakeSchedule = lambda own: BySeed()
    totals: Totals = field(default_factory=Totals)
    course: Course = field(default_factory=Course)
    triage: Triage | None = None
    schedule: Schedule = field(default_factory=BySeed)
    progress: Progress | None = None
    heartbeat: Heartbeat | None = None
    pool: Pool | None = None
    silent: list[str] = field(default_factory=list)
    own: Path | None = None
    undrawn: Undrawn = field(default_factory=Undrawn)

    def run(self, show_progress: Callable[[Campaign], None] = lambda campaign: None) -> Totals:
        """Explore until the bound is met or it is stopped, then finish triage. Raises StoreError, UsageError early."""
        plan = self.plan
        require_ledgers(plan)
        try:
            with alone(plan.folder, plan.command):
                return self._run_alone(show_progress)
        finally:
            self.course.end()

    def _run_alone(self, show_progress: Callable[[Campaign], None]) -> Totals:
        plan, began = self.plan, datetime.datetime.now(datetime.UTC)
        self.room = Room(plan.folder, plan.bounds.disk, compiler_of(plan.task.place.subject))
        self.room.require_compiler()
        last = sorted(plan.campaigns.glob("*"))[-1:]
        name = f"{name_by_time(began, *(path.name for path in last))}-{plan.task.seed}"
        before = last if plan.resumed else []
        own = plan.own(name)
        own.mkdir(parents=True, exist_ok=True)
        self.own = own
        self.progress, self.heartbeat = Progress(own), Heartbeat(own)
        self.triage = Triage(plan, name, self.totals, self.say)
        left = [suspect for folder in before for suspect in self.triage.shelf.take_over(Shelf(folder))]
        for suspect in left:
            self.triage.enqueue(suspect)
        if before:
            self.say(f"goes on from {before[0]}, with {len(left)} suspect(s) that it left")
        self._run(own, show_progress)
        if beside := self.triage.beside():
            self.say(f"findings that {plan.db} lacks: backfuzz merge {beside} --db {plan.db}")
        if error := self.triage.error or self.triage.blocked:
            raise error
        self.heartbeat.beat(self._pulse(self.totals.seconds) | {"ended": True, "state": State.ENDED.value})
        self._summarize()
        self._record(name, began.isoformat(timespec="seconds"))
        return self.totals

    def _run(self, own: Path, show_progress: Callable[[Campaign], None]) -> None:
        """The part of a campaign that needs workers. Where a stop cuts it short, suspects stay on the shelf."""
        plan = self.plan
        assert self.triage is not None
        log = RotatingLog(own / "trials.jsonl")
        with contextlib.ExitStack() as stack:
            try:
                self.pool = pool = stack.enter_context(_make_pool(plan))
                self.say(plan.writes)
                self.course.change(State.CHECKING)
                require_canaries(pool, plan, self.say)
                pool.deaths = 0  # theirs are meant
                self.course.change(State.EXPLORING)
                self.schedule = self.make_schedule(own)
                self.triage.start(pool, self.schedule.plateau)
                self._explore(pool, log, show_progress)
                self.schedule.close()
                self.course.change(State.SETTLING)
                if told := self.schedule.progress():
                    self.say(told)
                self._end_exploring()
                self._finish_triage(show_progress)
            except Stopped as error:
                if not self.course.stopped:
                    raise NoMachine(str(error)) from None
            finally:
                self._end_exploring()
                if self.course.stopped:
                    stop_all()
        assert self.progress is not None
        self.progress.note(self.totals.seconds, self.totals, self.schedule.features(), last=True)
        if left := self.triage.leave():
            self.say(f"{left} suspect(s) not minimized yet: backfuzz minimize --unless-known {own}/suspect-*.prog")

    def _end_exploring(self) -> None:
        """Set the seconds of exploring, unless they are set: a stop may end it anywhere."""
        if not self.totals.seconds:
            self.totals.seconds = self.course.seconds(State.EXPLORING)

    def _finish_triage(self, show_progress: Callable[[Campaign], None]) -> None:
        """Give suspects that were found late their time; after a stop, only the time that a stop leaves."""
        assert self.triage is not None
        usual = _GRACE_OF_PROGRAMS if self.plan.minutes is None else GRACE_SECONDS
        left = 0.0 if self.plan.minutes is None else max(0.0, -self._seconds_over())  # the programs ended before it
        grace = left + (usual if self.plan.grace is None else self.plan.grace)
        self.triage.finish(0.0 if self.course.stopped else grace)
        while self.triage.is_alive():
            self.triage.join(0.5)
            self._look_at_machine()
            show_progress(self)
            self._beat(self.totals.seconds)
            if self.course.stopped:
                self.triage.finish(0.0)
                if self.course.seconds(State.STOPPING) > _LEAVE_TRIAGE_SECONDS:
                    break  # its suspects are on the shelf
            elif self.triage.late_seconds() > _LAST_STEP_SECONDS:
                stop_all("the time is up")

    def stop(self) -> None:
        """End cleanly within END_SECONDS, whatever hangs. A signal handler may call this."""
        self.course.stop()
        threading.Thread(target=self._end_by, daemon=True).start()

    def _end_by(self) -> None:
        """First kill the workers, then this process, where it has not ended by then."""
        if self.course.wait(_KILL_WORKERS_SECONDS):
            return
        stop_all("the campaign was stopped")
        if not self.course.wait(END_SECONDS - _KILL_WORKERS_SECONDS - 1):
            with contextlib.suppress(Exception):  # whatever hangs, or is half done
                self._end_exploring()
                self._summarize()
            stop_all()
            remove_own()
            os._exit(KILLED)

    def _summarize(self) -> None:
        self.totals.wall_seconds = self.course.seconds(State.STARTING)
        if self.own is not None:
            (self.own / "summary.json").write_text(json.dumps(self.totals.summary(), indent=1))

    def _explore(self, pool: Pool, log: RotatingLog, show_progress: Callable[[Campaign], None]) -> None:
        plan, task = self.plan, replace(self.plan.task, final=False)
        pending: dict[Future[Any], tuple[int, ...]] = {}
        again: list[tuple[int, ...]] = []
        index = 0

        def begin(numbers: tuple[int, ...]) -> None:
            pending[self.schedule.submit(pool, task, *numbers)] = numbers

        while pending or again or self._goes_on(index):
            late = self._seconds_over() > _LATE_SECONDS
            if late or self.course.seconds(State.STOPPING) > _STOP_SECONDS:
                pool.abandon(pending)
                break
            self._look_at_machine()
            while again and not (self.course.lacks or self.course.stopped):
                begin(again.pop(0))
            room = 0 if self.course.lacks else self._room()
            while self._goes_on(index) and len(pending) < room:
                begin(tuple(range(index, index + self._batch(index))))
                index += self._batch(index)
            if not pending and (self.course.stopped or room or self._timed_out()):
                break
            if not pending:
                time.sleep(_LOOK_SECONDS)
            for future in wait(pending, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
                numbers = pending.pop(future)
                reports = self.room.without_troubled(numbers, pool.results(future, plan.task))
                closer = self.undrawn.look_closer(numbers, reports, pool, task)
                pending |= {future: (number,) for number, future in closer.items()}
                again += self._take_all(numbers, reports, log, closer)
            show_progress(self)
            self._note(self.course.seconds(State.EXPLORING))
            if self.triage is not None and self.triage.error is not None:
                break

    def _goes_on(self, index: int) -> bool:
        """Whether program number `index` is still to be drawn."""
        plan = self.plan
        done = plan.programs is not None and index >= plan.programs
        flat = plan.bounds.plateau and (self.schedule.plateau() or self.schedule.full())
        return not (self.course.stopped or self._timed_out() or done or flat)

    def _timed_out(self) -> bool:
        return self._seconds_over() > 0

    def _seconds_over(self) -> float:
        """Seconds since the time for drawing programs was up; negative before."""
        if self.plan.minutes is None:
            return -math.inf
        return self.course.seconds(State.EXPLORING) - 60 * self.plan.minutes

    def _look_at_machine(self) -> None:
        """Pause while the machine lacks room or a compiler, and say so in one line; go on when it has them."""
        lacking = self.room.lacking()
        if lacking and not self.course.lacks:
            self.say(f"{lacking}: nothing new begins until that is mended")
        elif self.course.lacks and not lacking:
            self.say("that is mended: going on")
        self.course.pause(lacking)
        for device in self.pool.silent_devices()[len(self.silent) :] if self.pool is not None else []:
            self.silent.append(device)
            self.say(f"{device} does not answer any more: its workers run on others")
        if self.triage is not None:
            self.triage.held = bool(lacking)

    def _note(self, seconds: float) -> None:
        assert self.progress is not None
        self.progress.note(seconds, self.totals, self.schedule.features())
        self._beat(seconds)

    def _beat(self, seconds: float) -> None:
        """Trim the heap and write a row of the heartbeat where a minute is over. `seconds`: of exploring."""
        if self.heartbeat is not None and self.heartbeat.due():
            trim_heap()
            self.heartbeat.beat(self._pulse(seconds))

    def _pulse(self, seconds: float) -> dict[str, Any]:
        """The figures of a row of the heartbeat."""
        totals, triage = self.totals, self.triage
        found: dict[str, Any] = {
            "state": self.course.state.value,
            "seconds": round(seconds, 1),
            "programs": totals.programs,
            "new": dict(totals.new),
        }
        found |= {"classes": dict(totals.classes), "paused": self.course.lacks}
        found |= {"told": totals.told, "severities": dict(totals.severities)}
        found["legal"] = totals.legal_by_pattern()
        found["exploration_cpu_seconds"] = round(totals.phases["cpu"], 1)
        if triage is not None:
            found |= {"suspects_waiting": len(triage.waiting), "suspects": triage.queue()}
            found["triage_cpu_seconds"] = round(triage.cpu_seconds(), 1)
            triage.count_open()
            found["triage"], found["unconfirmed"] = totals.triage(), [*totals.unconfirmed.values()]
        if self.pool is not None:
            found |= self.pool.health()
        return found | {"disk_free_bytes": free_bytes(self.plan.folder)}

    def _batch(self, index: int) -> int:
        """How many programs begin together from number `index` on: few at first, so that something is seen soon, and
        few enough that every worker has some and the last end in time."""
        plan, most = self.plan, max(_FIRST_BATCH, index // self.plan.workers)
        if plan.programs is not None:
            most = min(most, -(-(plan.programs - index) // plan.workers))
        if plan.minutes is not None and self.totals.drawn:
            each = self.course.seconds(State.EXPLORING) * plan.workers / self.totals.drawn
            most = min(most, int(-self._seconds_over() / each))
        return max(1, min(plan.batch, most))

    def _room(self) -> int:
        """Batches that may be under way now."""
        suspects = len(self.triage.waiting) if self.triage is not None else 0
        engaged = self.pool is not None and self.pool.engaged()
        return batches(self.plan.workers, suspects, self.schedule.plateau, engaged)

    def _take_all(
        self, numbers: tuple[int, ...], reports: list[Report | None], log: RotatingLog, closer: Collection[int] = ()
    ) -> list[tuple[int, ...]]:
        """Count and learn from Reports, except those of numbers in `closer`. Gives the batches in which programs
        without a Report run again."""
        for number, report in zip(numbers, reports, strict=True):
            if report is not None and number not in closer:
                self._take(number, report, log)
                self.schedule.learn(number, report)
        return left_over(numbers, reports)

    def _take(self, index: int, report: Report, log: RotatingLog) -> None:
        self.totals.count(report)
        self.totals.brought(source_of(report), programs=not report.rejected, cpu=report.seconds.get("cpu", 0.0))
        if self.progress is not None and not report.rejected:
            self.progress.count(report.text)
        if report.verdict == "agree":
            return
        if report.rejected.startswith(INTERNAL_ERROR):
            self.say(f"{report.rejected} on program {index} of seed {self.plan.task.seed} (please report it)")
        row = {
            "time": now(),
            "index": index,
            "candidate": report.candidate,
            "class": report.verdict,
            "rejected": report.rejected,
            "text": report.text,
        }
        row["verdicts"] = [asdict(v) for v in report.verdicts]
        row["stderr"], row["built"] = report.stderr, report.built
        if report.verdicts and report.verdict in FINDINGS and self.triage is not None:
            signature = report.verdicts[0].signature
            self.triage.enqueue(Suspect(parse(report.text), signature, report.stage, source=source_of(report)))
        log.write(row)  # once it is on the shelf: what is logged is not lost

    def _record(self, name: str, began: str) -> None:
        """Store the row of the campaign. In the ledger that git tracks, only a campaign that found something new has
        one."""
        assert self.triage is not None
        if self.plan.corpus is not None and not self.triage.findings:
            return
        record = Record(
            name,
            without_paths(self.plan.command),
            self.plan.task.seed,
            began,
            self.totals.seconds,
            self.totals.summary() | {"progress": self.progress.rows() if self.progress else []},
            self.triage.place,
        )
        try:
            with open_store(self.plan.db) as store:
                store.add_campaign(record)
        except StoreError as error:
            self.say(f"the campaign's own row was not stored: {error}")
