"""The loop: draw, run, judge; minimize, verify, diagnose and store what differs. The only module that knows all others.

Exploration and triage share one pool: the main thread keeps the workers busy with fresh programs, triage threads
turn suspects into findings. Whatever happens, the ledger only ever receives verified findings.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import json
import platform
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzer.answers import Answers, minimize
from fuzzer.canaries import run_canaries
from fuzzer.corpus import Corpus, resumed
from fuzzer.diagnose import RUNS, Verification, diagnose, examine_all, matching, verify
from fuzzer.execution.messages import Report
from fuzzer.execution.pool import NoMachine, Pool
from fuzzer.execution.worker import OUR_FAULT, Task, without_settings
from fuzzer.program import Program
from fuzzer.schedule import Again, Chosen, Fresh, Guidance, Guided, Schedule, drawing_from, guidance_from
from fuzzer.store import Campaign as Record
from fuzzer.store import StoreError, open_store
from fuzzer.text import parse, show
from fuzzer.verdict import CLASSES, FINDINGS, Finding, Signature, without_paths
from minimizer.reduce import Reduction
from minimizer.same import sameness

# Signatures are coarse: several faults share one. A suspect that holds the ops of a known finding of its signature is
# most likely that finding again: those are minimized only until this many suspects of the signature in a row brought
# nothing new. Any other suspect gets its turn much longer.
PATIENCE = 2
MOST_FRUITLESS = 12
MOST_WAITING = 8  # of one signature
# Triage keeps this fraction of the workers busy while exploration goes on: reduction is a chain of decisions, so more
# of them would mostly try candidates that are never needed.
SHARE_OF_WORKERS = 4
MOST_LANES = 4
# Programs that still run this long after an interrupt are given up: nothing about them is stored yet.
STOP_SECONDS = 5.0
# After the time is up, suspects found late may still be minimized for this share of it, at least a minute.
GRACE_SHARE, GRACE_SECONDS = 0.5, 60.0


@dataclass(frozen=True)
class Plan:
    """What a campaign was asked to do. minutes or programs (or neither) bound it.

    guidance: by what programs are chosen; without, by nothing, and neither features nor a corpus are kept.
    resume: the corpus is that of an earlier campaign.  again: the programs that another campaign chose, no others.
    """

    task: Task
    workers: int
    minutes: float | None = None
    programs: int | None = None
    db: Path = Path("findings.db")
    folder: Path = Path(".backfuzz")
    corpus: Path | None = None
    command: str = "backfuzz fuzz"
    guidance: Guidance | None = None
    resume: bool = False
    again: tuple[Chosen, ...] = ()

    @property
    def devices(self) -> list[str]:
        return self.task.place.devices

    def schedule(self, own: Path) -> Schedule:
        """What decides on the programs; where there is guidance, it logs its choices in this folder."""
        if self.again:
            return Again(list(self.again))
        if self.guidance is None:
            return Fresh()
        if self.resume:
            corpus, state = resumed(self.explored, shown_at(self.task))
            return Guided(self.task, own, corpus, self.guidance, state)
        return Guided(self.task, own, Corpus(self.explored, shown_at(self.task)).start(), self.guidance)

    @property
    def explored(self) -> Path:
        """Where a campaign keeps its programs."""
        return self.folder / "corpus"


@dataclass
class Totals:
    """Counts of a campaign; `summary` is the JSON object that `fuzz --json` prints last."""

    drawn: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    redrawn: int = 0
    detectable: int = 0
    elements: int = 0
    elements_seen: int = 0
    new: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    legal: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    phases: Counter[str] = field(default_factory=Counter)

    @property
    def programs(self) -> int:
        """Programs that ran."""
        return self.drawn - self.classes["rejected"]

    def count(self, report: Report) -> None:
        self.drawn += 1
        self.classes[report.verdict] += 1
        if report.rejected:
            self.rejected[report.rejected.split(":")[0]] += 1
        self.legal.update(str(v.signature) for v in report.verdicts if v.signature.verdict == "agree")
        self.redrawn += report.redrawn
        self.detectable += report.detectable > 0
        self.elements_seen += report.detectable
        self.elements += report.elements
        self.phases.update(report.seconds)

    def summary(self) -> dict[str, Any]:
        compared = max(self.programs, 1)
        phases = {name: round(spent, 1) for name, spent in sorted(self.phases.items())}
        return {
            "programs": self.programs,
            "programs_per_s": round(self.programs / self.seconds, 3) if self.seconds else 0.0,
            "detectable_share": round(self.detectable / compared, 4),
            "detectable_elements_share": round(self.elements_seen / max(self.elements, 1), 4),
            "redrawn_share": round(self.redrawn / max(self.drawn + self.redrawn, 1), 4),
            "rejected_share": round(self.classes["rejected"] / max(self.drawn, 1), 4),
            "findings": {name: self.new[name] for name in FINDINGS if self.new[name]},
            "known_findings": {name: self.known[name] for name in FINDINGS if self.known[name]},
            "classes": {name: self.classes[name] for name in CLASSES if self.classes[name]},
            "legal_differences": dict(self.legal),
            "seconds": round(self.seconds, 1),
            "cpu_seconds": phases.pop("cpu", 0.0),
            "worker_seconds": phases,
        }


def facts(task: Task) -> dict[str, str]:
    """The place and the versions it runs with, as a finding stores them."""
    import torch

    place = task.place
    found = {
        "backend": place.subject.backend,
        "against": str(place.reference) if place.reference.device != place.subject.device else place.reference.backend,
        "device": place.subject.device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["triton"] = importlib.metadata.version("triton")
    if place.subject.threads > 1:
        found["threads"] = str(place.subject.threads)
    if place.subject.backend == "flag_gems":
        found["flag_gems"] = importlib.metadata.version("flag_gems")
    if place.subject.device.startswith("cuda"):
        found["gpu"] = _first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    else:
        found["compiler"] = _first_line("g++", "--version")
    return {key: value for key, value in found.items() if value}


def shown_at(task: Task) -> dict[str, str]:
    """What the features of programs depend on beside the programs."""
    return {name: facts(task)[name] for name in ("torch", "backend", "device")}


def resume(plan: Plan) -> Plan:
    """The plan to go on with the campaign whose corpus is in the plan's folder. Raises UsageError."""
    _, state = resumed(plan.explored, shown_at(plan.task))
    return replace(plan, task=drawing_from(plan.task, state), guidance=guidance_from(state), resume=True)


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""


# ---------------------------------------------------------------- triage


@dataclass(frozen=True)
class Suspect:
    """A program whose trial did not agree, waiting for triage."""

    text: str
    signature: Signature

    @functools.cached_property
    def ops(self) -> frozenset[str]:
        return ops_of(self.text)


def ops_of(text: str) -> frozenset[str]:
    """The names of the ops in a program's text."""
    return frozenset(node.op for node in parse(text).nodes)


@dataclass(frozen=True)
class Outcome:
    """What triage made of a suspect: a finding (new or known), or why there is none."""

    finding: Finding | None
    new: bool
    note: str
    others: tuple[Program, ...] = ()
    reduction: Reduction | None = None
    unfinished: bool = False  # the time was up before the program was minimal: no finding, the suspect is kept


def triage(
    suspect: Suspect,
    plan: Plan,
    answers: Answers,
    place: dict[str, str],
    campaign: str = "",
    expired: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Minimize, verify and diagnose one suspect; store it when it is new."""
    if suspect.signature.oracle == "settings_agree":  # that is the same program without its settings
        return Outcome(None, False, "looked into without its settings", (without_settings(parse(suspect.text)),))
    pool = answers.pool
    task = replace(plan.task, fixed=())
    # a hang costs its deadline each time
    times = 1 if suspect.signature.verdict == "hangs" else RUNS
    again = examine_all(pool, [(replace(task, fresh=True), suspect.text)] * times)
    seen = [v for report in again if (v := matching(report, suspect.signature)) is not None]
    if not seen:
        return Outcome(None, False, f"did not show again ({again[0].verdict})")
    how = sameness(len(seen), times)
    # the first is cheaper, and may slip to what rounding explains after all
    for looks in (answers, Answers(pool, task, answers.batch, final=True)):
        reduction = minimize(parse(suspect.text), seen[0], looks, how, expired)
        if reduction.why == "deadline":
            return Outcome(None, False, "no time was left to minimize it", reduction.others, reduction, unfinished=True)
        text = show(reduction.program)
        shown = examine_all(pool, [(replace(task, fresh=True), text)])[0]
        verdict = matching(shown, suspect.signature)
        if verdict is not None:
            break
    else:
        return Outcome(None, False, f"the minimal program is no longer wrong with caches off ({shown.verdict})")
    found = Finding(verdict.signature, "", suspect.text, text, place, 0, 0)
    with open_store(plan.db) as store:
        if found.id in {f.id for f in store.list()}:
            return Outcome(store.get(found.id), False, "known", reduction.others, reduction)
    verified = verify(text, task, verdict.signature, plan.workers, plan.devices, plan.folder)
    if verified.reproduced < verified.runs or verified.verdict is None:
        note = f"reproduced {verified.reproduced} of {verified.runs} times in fresh processes"
        return Outcome(None, False, note, reduction.others, reduction)
    finding = _finding(suspect, text, verified, place, campaign, reduction, seen[0].detail)
    with open_store(plan.db) as store:  # what is verified is safe before the rest, which takes minutes
        new = store.add(finding)
    if new:
        if plan.corpus is not None:
            _keep_regression(plan.corpus, finding)
        finding = diagnose(finding, task, pool, plan.folder, expired)
        with open_store(plan.db) as store:
            store.set_diagnosis(finding)
    return Outcome(finding, new, reduction.why, reduction.others, reduction)


def _finding(
    suspect: Suspect,
    text: str,
    verified: Verification,
    place: dict[str, str],
    campaign: str,
    reduction: Reduction,
    before: str,
) -> Finding:
    verdict = verified.verdict
    assert verdict is not None
    return Finding(
        verdict.signature,
        without_paths(verdict.detail),
        suspect.text,
        text,
        place,
        verified.reproduced,
        verified.runs,
        verdict.comparisons,
        campaign=campaign,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        note="" if reduction.minimal else f"not proven minimal ({reduction.why})",
        before=without_paths(before),
    )


def _keep_regression(corpus: Path, finding: Finding) -> None:
    """Every verified finding leaves a .prog: what it showed and where, then the minimal program."""
    corpus.mkdir(parents=True, exist_ok=True)
    where = f"torch {finding.place.get('torch', '?')}, {finding.place.get('device', '?')}"
    head = [f"{finding.signature} ({where})", f"expect: {finding.signature.verdict} there, agree where it is fixed"]
    program = replace(parse(finding.program), comment=tuple(head))
    (corpus / f"{finding.id}.prog").write_text(show(program))


class Triage:
    """Turns suspects into findings, the worst class first, on the campaign's pool.

    Several lanes (threads) work side by side where there are workers enough, no two of them on one signature.
    """

    def __init__(self, plan: Plan, pool: Pool, campaign: str, totals: Totals, say: Callable[[str], None]):
        self.plan, self.pool, self.campaign, self.totals, self.say = plan, pool, campaign, totals, say
        self.place = facts(plan.task)
        self.answers = Answers(pool, plan.task, plan.workers // SHARE_OF_WORKERS)
        self.waiting: list[Suspect] = []
        self.changed = threading.Condition()
        self.busy: list[Suspect] = []
        lanes = max(1, min(MOST_LANES, plan.workers // SHARE_OF_WORKERS))
        self.lanes = [threading.Thread(target=self.run, daemon=True) for _ in range(lanes)]
        self.closing = False
        self.deadline: float | None = None
        self.fruitless: Counter[str] = Counter()  # suspects of a signature in a row that brought nothing new
        self.findings: list[Finding] = []
        with open_store(plan.db) as store:
            self.known = {(f.signature, ops_of(f.program)) for f in store.list()}
        self.failed: list[Suspect] = []
        self.error: Exception | None = None

    def start(self) -> None:
        for lane in self.lanes:
            lane.start()

    def is_alive(self) -> bool:
        return any(lane.is_alive() for lane in self.lanes)

    def join(self, seconds: float | None = None) -> None:
        """Wait this long for a lane to end; without a time, for all of them."""
        for lane in [lane for lane in self.lanes if lane.is_alive()][: None if seconds is None else 1]:
            lane.join(seconds)

    def offer(self, suspect: Suspect) -> None:
        """Queue a suspect, unless its signature is exhausted; of too many, the least urgent goes."""
        with self.changed:
            if self.exhausted(suspect) or suspect in (*self.waiting, *self.busy):
                return
            self.waiting.append(suspect)
            self.waiting.sort(key=self.urgency)
            alike = [s for s in self.waiting if s.signature == suspect.signature]
            if len(alike) > MOST_WAITING:
                self.waiting.remove(alike[-1])
            self.changed.notify()

    def urgency(self, suspect: Suspect) -> tuple[int, bool, bool, int]:
        """Worst class first, then what is not explained yet, then the backward, which is what we are here for, then
        what is soon minimized."""
        signature = suspect.signature
        backward = signature.direction == "backward"
        return CLASSES.index(signature.verdict), self.explained(suspect), not backward, len(suspect.text)

    def explained(self, suspect: Suspect) -> bool:
        """Whether the suspect holds every op of a known finding of its signature."""
        return any(known == suspect.signature and ops <= suspect.ops for known, ops in self.known)

    def exhausted(self, suspect: Suspect) -> bool:
        """Whether the suspect would most likely end at a known program, or at none."""
        patience = PATIENCE if self.explained(suspect) else MOST_FRUITLESS
        return self.fruitless[str(suspect.signature)] >= patience

    def finish(self, seconds: float) -> None:
        """No more suspects will come; end within this time, leaving the rest for later."""
        with self.changed:
            self.closing = True
            self.deadline = time.monotonic() + seconds
            self.changed.notify_all()

    def expired(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def run(self) -> None:
        """One lane: suspects until there are no more, or no time."""
        while (suspect := self._next()) is not None:
            try:
                self._one(suspect)
            except (StoreError, NoMachine, BrokenExecutor) as error:  # carried to the main thread, which raises it
                with self.changed:
                    self.error = error
                    self.waiting.insert(0, suspect)  # it is kept with those that wait
                return
            except Exception as error:  # a fault of ours in one suspect is no reason to end a campaign of weeks
                self.fruitless[str(suspect.signature)] += 1
                self.failed.append(suspect)
                self.say(
                    f"triage itself failed on {suspect.signature}: {type(error).__name__}: {error} (please report it)"
                )
            finally:
                with self.changed:
                    self.busy.remove(suspect)
                    self.changed.notify_all()

    def _next(self) -> Suspect | None:
        with self.changed:
            while True:
                self.waiting = sorted((s for s in self.waiting if not self.exhausted(s)), key=self.urgency)
                if self.expired() or self.error is not None:
                    return None
                taken = {s.signature for s in self.busy}
                free = next((s for s in self.waiting if s.signature not in taken), None)
                if free is not None:
                    self.waiting.remove(free)
                    self.busy.append(free)
                    return free
                if self.closing and not self.waiting:
                    return None
                self.changed.wait(1.0)

    def _one(self, suspect: Suspect) -> None:
        key = str(suspect.signature)
        outcome = triage(suspect, self.plan, self.answers, self.place, self.campaign, self.expired)
        if outcome.unfinished:
            with self.changed:
                self.waiting.append(suspect)
            return
        self.fruitless[key] = 0 if outcome.new else self.fruitless[key] + 1
        if outcome.finding is not None:
            self.known.add((outcome.finding.signature, ops_of(outcome.finding.program)))
        if outcome.finding is None:
            self.say(f"not a finding: {key}: {outcome.note}")
        elif outcome.new:
            self.totals.new[outcome.finding.signature.verdict] += 1
            self.findings.append(outcome.finding)
            self.say(describe(outcome.finding))
        else:
            self.totals.known[outcome.finding.signature.verdict] += 1
            self.say(f"in the ledger already: {describe(outcome.finding)}")
        for other in outcome.others[:4]:
            self._offer_slip(other)

    def _offer_slip(self, program: Program) -> None:
        """A candidate that showed another finding while this one shrank."""
        report = examine_all(self.pool, [(replace(self.plan.task, fixed=()), show(program))])[0]
        if report.verdicts and report.verdict in FINDINGS:
            self.offer(Suspect(report.text, report.verdicts[0].signature))


def describe(finding: Finding) -> str:
    """A finding in a few lines for the terminal."""
    lines = [f"{finding.signature.verdict} {finding.id}: {finding.signature}", f"  {finding.detail[:300]}"]
    return "\n".join(lines + [f"  | {line}" for line in finding.program.splitlines()])


# ---------------------------------------------------------------- the campaign


def ring(pool: Pool, plan: Plan, say: Callable[[str], None]) -> None:
    """An oracle is trusted only after it rang for its canary and stayed silent for the twin. Raises NoMachine."""
    found = run_canaries(pool, plan.task.place.subject.device, quick=True)
    bad = [f"{c.name}: {c.detail}" for c in found if not c.passed]
    if bad:
        raise NoMachine("the oracles cannot be trusted here; `backfuzz doctor` says more. " + "; ".join(bad))
    say(f"{len(found)} canaries rang, their twins were silent")


def room(workers: int) -> int:
    """Programs under way on so many workers: a few more, so that none waits for the main thread."""
    return workers + max(1, workers // 4)


@dataclass
class Campaign:
    """A running campaign: its totals, and what the live view reads."""

    plan: Plan
    say: Callable[[str], None]
    totals: Totals = field(default_factory=Totals)
    stopping: bool = False
    triage: Triage | None = None
    schedule: Schedule = field(default_factory=Fresh)

    def run(self, show_progress: Callable[[Campaign], None] = lambda campaign: None) -> Totals:
        """Explore until the bound is met or `stopping` is set; then finish triage. Raises StoreError early."""
        plan = self.plan
        with open_store(plan.db) as store:  # a bad ledger is told before anything runs, not after
            store.list()
        plan.folder.mkdir(parents=True, exist_ok=True)
        name = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S") + f"-{plan.task.seed}"
        own = plan.folder / "campaigns" / name
        own.mkdir(parents=True, exist_ok=True)
        with Pool(plan.workers, plan.devices, scratch=plan.folder) as pool, (own / "trials.jsonl").open("w") as log:
            ring(pool, plan, self.say)
            self.triage = Triage(plan, pool, name, self.totals, self.say)
            self.triage.start()
            started = time.monotonic()
            self.schedule = plan.schedule(own)
            self._explore(pool, log, started, show_progress)
            self.schedule.close()
            if told := self.schedule.told():
                self.say(told)
            self.totals.seconds = time.monotonic() - started
            grace = max(GRACE_SECONDS, GRACE_SHARE * 60 * (plan.minutes or 0))
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
        self._record(name)
        return self.totals

    def _explore(self, pool: Pool, log: Any, started: float, show_progress: Callable[[Campaign], None]) -> None:
        plan, task = self.plan, replace(self.plan.task, final=False)
        pending: dict[Future[Report], int] = {}
        index = 0

        def more() -> bool:
            timed_out = plan.minutes is not None and time.monotonic() - started > 60 * plan.minutes
            return not (self.stopping or timed_out or (plan.programs is not None and index >= plan.programs))

        stopped: float | None = None
        while pending or more():
            if self.stopping:
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > STOP_SECONDS:
                    pool.abandon(pending)
                    break
            while more() and len(pending) < self._room():
                pending[self.schedule.submit(pool, task, index)] = index
                index += 1
            if not pending:
                break
            done, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                number = pending.pop(future)
                self.schedule.learn(number, self._take(pool, number, future, log))
            show_progress(self)
            if self.triage is not None and self.triage.error is not None:
                break
            if self.totals.drawn % 256 == 0:
                pool.sweep()

    def _room(self) -> int:
        """Programs that may be under way: more than workers, so that none waits for us; half while suspects pile up.

        Otherwise a compiler with many faults fills the queue sooner than triage empties it, and most of what was
        found is never minimized.
        """
        workers = self.plan.workers
        piled = self.triage is not None and len(self.triage.waiting) > workers
        return max(1, workers // 2) if piled else room(workers)

    def _take(self, pool: Pool, index: int, future: Future[Report], log: Any) -> Report:
        report = pool.result(future, self.plan.task)
        self.totals.count(report)
        if report.verdict == "agree":
            return report
        if report.rejected.startswith(OUR_FAULT):
            self.say(f"{report.rejected} on program {index} of seed {self.plan.task.seed} (please report it)")
        row = {
            "index": index,
            "candidate": report.candidate,
            "class": report.verdict,
            "rejected": report.rejected,
            "text": report.text,
        }
        row["verdicts"] = [asdict(v) for v in report.verdicts]
        row["stderr"] = report.stderr
        log.write(json.dumps(row) + "\n")
        log.flush()
        if report.verdicts and report.verdict in FINDINGS and self.triage is not None:
            self.triage.offer(Suspect(report.text, report.verdicts[0].signature))
        return report

    def _leave_pending(self, own: Path) -> None:
        """Suspects that there was no time for: kept as files, to go on with `backfuzz minimize`."""
        assert self.triage is not None
        left = [s for s in self.triage.waiting if not self.triage.exhausted(s)] + self.triage.failed
        for i, suspect in enumerate(left):
            path = own / f"suspect-{i}.prog"
            path.write_text(f"# {suspect.signature}\n{suspect.text}")
        if left:
            self.say(f"{len(left)} suspect(s) not minimized yet: backfuzz minimize {own}/suspect-*.prog")

    def _record(self, name: str) -> None:
        """The ledger learns of a campaign only when it found something new, so that a quiet run leaves no trace."""
        assert self.triage is not None
        if not self.triage.findings:
            return
        record = Record(
            name,
            without_paths(self.plan.command),
            self.plan.task.seed,
            self.triage.findings[0].created,
            self.totals.seconds,
            self.totals.summary(),
            self.triage.place,
        )
        try:
            with open_store(self.plan.db) as store:
                store.add_campaign(record)
        except StoreError as error:
            self.say(f"the campaign's own row was not stored: {error}")
