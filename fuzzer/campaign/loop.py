"""The loop of a campaign: draw, run, judge; triage beside it on the same pool.

The main thread keeps the workers busy with fresh programs, triage threads turn suspects into findings. Whatever
happens, the ledger only ever receives verified findings.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzer.campaign.canaries import run_canaries
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.progress import Progress
from fuzzer.campaign.schedule import BySeed, Schedule
from fuzzer.campaign.suspect import Suspect
from fuzzer.campaign.totals import Totals
from fuzzer.campaign.triage import Triage
from fuzzer.execution.batch import left_over
from fuzzer.execution.messages import Report
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import INTERNAL_ERROR
from fuzzer.findings.store import CampaignRecord as Record
from fuzzer.findings.store import StoreError, open_store
from fuzzer.judgement.verdict import FINDINGS, without_paths
from fuzzer.language.errors import NoMachine

# Programs that still run this long after an interrupt are given up: nothing about them is stored yet.
_STOP_SECONDS = 5.0
# After the time is up, suspects found late may still be minimized for this share of it, at least a minute.
_GRACE_SHARE, GRACE_SECONDS = 0.5, 60.0
_MakeSchedule = Callable[[Path], Schedule]


def require_canaries(pool: Pool, plan: Plan, say: Callable[[str], None]) -> None:
    """An oracle is trusted only after it rang for its canary and stayed silent for the twin. Raises NoMachine."""
    found = run_canaries(pool, plan.task.place.subject.device, quick=True)
    bad = [f"{c.name}: {c.detail}" for c in found if not c.passed]
    if bad:
        raise NoMachine("the oracles cannot be trusted here; `backfuzz doctor` says more. " + "; ".join(bad))
    say(f"{len(found)} canaries rang, their twins were silent")


def in_flight(workers: int) -> int:
    """Batches under way on so many workers: a few more, so that none waits for the main thread."""
    return workers + max(1, workers // 4)


@dataclass
class Campaign:
    """A running campaign: its totals, and what the live view reads.

    make_schedule   gives the schedule, of a folder of the campaign's own.
    """

    plan: Plan
    say: Callable[[str], None]
    make_schedule: _MakeSchedule = lambda own: BySeed()
    totals: Totals = field(default_factory=Totals)
    stopping: bool = False
    triage: Triage | None = None
    schedule: Schedule = field(default_factory=BySeed)
    progress: Progress | None = None

    def run(self, show_progress: Callable[[Campaign], None] = lambda campaign: None) -> Totals:
        """Explore until the bound is met or `stopping` is set; then finish triage. Raises StoreError early."""
        plan = self.plan
        with open_store(plan.db) as store:  # a bad ledger is told before anything runs, not after
            store.list()
        for path in plan.known:
            with open_store(path, create=False) as store:
                store.list()
        plan.folder.mkdir(parents=True, exist_ok=True)
        began = datetime.datetime.now(datetime.UTC)
        name = began.strftime("%Y%m%dT%H%M%S") + f"-{plan.task.seed}"
        own = plan.folder / "campaigns" / name
        own.mkdir(parents=True, exist_ok=True)
        self.progress = Progress(own)
        running = Pool(plan.workers, plan.devices, scratch=plan.folder, batch=plan.batch)
        with running as pool, (own / "trials.jsonl").open("w") as log:
            self.say(plan.writes)
            require_canaries(pool, plan, self.say)
            self.triage = Triage(plan, pool, name, self.totals, self.say)
            self.triage.start()
            started = time.monotonic()
            self.schedule = self.make_schedule(own)
            self._explore(pool, log, started, show_progress)
            self.schedule.close()
            if told := self.schedule.progress():
                self.say(told)
            self.totals.seconds = time.monotonic() - started
            self.progress.note(self.totals.seconds, self.totals, self.schedule.features(), last=True)
            grace = max(GRACE_SECONDS, _GRACE_SHARE * 60 * (plan.minutes or 0))
            self.triage.finish(0.0 if self.stopping else grace)
            while self.triage.is_alive():
                self.triage.join(0.5)
                show_progress(self)
                if self.stopping:
                    self.triage.finish(0.0)
            self._leave_pending(own)
        if self.triage.error is not None:
            raise self.triage.error
        (own / "summary.json").write_text(json.dumps(self.totals.summary(), indent=1))
        self._record(name, began.isoformat(timespec="seconds"))
        return self.totals

    def _explore(self, pool: Pool, log: Any, started: float, show_progress: Callable[[Campaign], None]) -> None:
        plan, task = self.plan, replace(self.plan.task, final=False)
        pending: dict[Future[Any], tuple[int, ...]] = {}
        index = 0

        def begin(numbers: tuple[int, ...]) -> None:
            pending[self.schedule.submit(pool, task, *numbers)] = numbers

        def more() -> bool:
            timed_out = plan.minutes is not None and time.monotonic() - started > 60 * plan.minutes
            return not (self.stopping or timed_out or (plan.programs is not None and index >= plan.programs))

        stopped: float | None = None
        while pending or more():
            if self.stopping:
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > _STOP_SECONDS:
                    pool.abandon(pending)
                    break
            while more() and len(pending) < self._room():
                begin(tuple(range(index, index + self._batch(index))))
                index += self._batch(index)
            if not pending:
                break
            done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                numbers = pending.pop(future)
                for again in self._take_all(numbers, pool.results(future, plan.task), log):
                    begin(again)
            show_progress(self)
            if self.progress is not None:
                self.progress.note(time.monotonic() - started, self.totals, self.schedule.features())
            if self.triage is not None and self.triage.error is not None:
                break
            if self.totals.drawn % 256 == 0:
                pool.sweep()

    def _batch(self, index: int) -> int:
        """How many programs begin together, the first of which is number `index`: so that every worker has some."""
        plan = self.plan
        if not self.schedule.together or plan.programs is None:
            return plan.batch if self.schedule.together else 1
        return max(1, min(plan.batch, -(-(plan.programs - index) // plan.workers)))

    def _room(self) -> int:
        """Batches that may be under way: more than workers, so that none waits for us; half while suspects pile up.

        Otherwise a compiler with many faults fills the queue sooner than triage empties it, and most of what was
        found is never minimized.
        """
        workers = self.plan.workers
        piled = self.triage is not None and len(self.triage.waiting) > workers
        return max(1, workers // 2) if piled else in_flight(workers)

    def _take_all(self, numbers: tuple[int, ...], reports: list[Report | None], log: Any) -> list[tuple[int, ...]]:
        """Count and learn from Reports; the batches in which programs without one go again."""
        for number, report in zip(numbers, reports, strict=True):
            if report is not None:
                self._take(number, report, log)
                self.schedule.learn(number, report)
        return left_over(numbers, reports)

    def _take(self, index: int, report: Report, log: Any) -> None:
        self.totals.count(report)
        if self.progress is not None and not report.rejected:
            self.progress.count(report.text)
        if report.verdict == "agree":
            return
        if report.rejected.startswith(INTERNAL_ERROR):
            self.say(f"{report.rejected} on program {index} of seed {self.plan.task.seed} (please report it)")
        row = {
            "index": index,
            "candidate": report.candidate,
            "class": report.verdict,
            "rejected": report.rejected,
            "text": report.text,
        }
        row["verdicts"] = [asdict(v) for v in report.verdicts]
        row["stderr"], row["built"] = report.stderr, report.built
        log.write(json.dumps(row) + "\n")
        log.flush()
        if report.verdicts and report.verdict in FINDINGS and self.triage is not None:
            self.triage.enqueue(Suspect(report.text, report.verdicts[0].signature, report.stage))

    def _leave_pending(self, own: Path) -> None:
        """Suspects that there was no time for: kept as files, to go on with `backfuzz minimize`."""
        assert self.triage is not None
        left = [s for s in self.triage.waiting if not self.triage.given_up(s)] + self.triage.failed
        for i, suspect in enumerate(left):
            path = own / f"suspect-{i}.prog"
            path.write_text(f"# {suspect.signature}\n{suspect.text}")
        if left:
            self.say(f"{len(left)} suspect(s) not minimized yet: backfuzz minimize {own}/suspect-*.prog")

    def _record(self, name: str, began: str) -> None:
        """Store the campaign itself; in the ledger that git tracks, only one that found something new."""
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
