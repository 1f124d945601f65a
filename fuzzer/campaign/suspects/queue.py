"""Suspects in order of urgency: threads beside exploration turn them into findings."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path

from fuzzer.campaign.plan import Plan, environment_of
from fuzzer.campaign.suspects.interestingness import CandidateCache
from fuzzer.campaign.suspects.patience import BESIDE, RETRY_SECONDS
from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.campaign.suspects.suspect import Suspect, TriageOutcome, ops_of, triage_suspect
from fuzzer.campaign.told.totals import Totals
from fuzzer.campaign.turns import candidates, had_its_share, lanes
from fuzzer.judgement.verdict import CLASSES, FINDINGS, UNSUPPORTED, Finding
from fuzzer.language.errors import NoMachine
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.store import open_store
from fuzzer.trial.pipeline import without_settings
from fuzzer.trial.verify import examine_all
from fuzzer.workers.pool import Pool, spent_seconds, troubles
from fuzzer.workers.trouble import FULL

# Signatures are coarse: several faults share one. A suspect that holds the ops of a known finding of its signature is
# most likely that finding again: those are minimized only until this many suspects of the signature in a row brought
# nothing new. Any other suspect gets its turn much longer.
MOST_FRUITLESS_COVERED = 2
MOST_FRUITLESS = 12
MOST_WAITING = 8  # of one signature
_MOST_DISTURBED = 3


class Triage:
    """Turns suspects into findings, the worst class first, on the campaign's pool.

    Several lanes (threads) work side by side where there are workers enough, no two of them on one signature.
    """

    pool: Pool
    cache: CandidateCache

    def __init__(self, plan: Plan, campaign: str, totals: Totals, say: Callable[[str], None]):
        self.shelf = Shelf(plan.own(campaign))
        self.plan, self.campaign, self.totals, self.say = plan, campaign, totals, say
        self.place = environment_of(plan.task)
        self.waiting: list[Suspect] = []
        self.changed = threading.Condition()
        self.busy: list[Suspect] = []
        self.lanes = [threading.Thread(target=self.run, daemon=True) for _ in range(lanes(plan.workers))]
        self.closing = False
        self.deadline: float | None = None
        self.fruitless: Counter[str] = Counter()  # suspects of a signature in a row that brought nothing new
        self.findings: list[Finding] = []
        with open_store(plan.db) as store:
            known = store.list()
        self.known = {(f.signature, ops_of(parse(f.program))) for f in known}
        self.met = {f.id for f in known}  # of faults that were known or told
        self.failed: list[Suspect] = []
        self.error: Exception | None = None
        self.plateau: Callable[[], bool] = lambda: False
        self.spent_before = spent_seconds()
        self.blocked: StoreError | None = None  # why the ledger cannot be used now
        self.held = False  # while the machine lacks what programs need
        self.disturbed: Counter[Suspect] = Counter()  # how often that came between

    def start(self, pool: Pool, plateau: Callable[[], bool] = lambda: False) -> None:
        """Begin on these workers. plateau: tells whether exploring finds nothing new."""
        self.plateau, self.spent_before = plateau, spent_seconds()
        self.pool, self.cache = pool, CandidateCache(pool, self.plan.task, candidates(self.plan.workers))
        for lane in self.lanes:
            lane.start()

    def is_alive(self) -> bool:
        return any(lane.is_alive() for lane in self.lanes)

    def join(self, seconds: float | None = None) -> None:
        """Wait at most this long for one lane to end; with None, for all lanes."""
        for lane in [lane for lane in self.lanes if lane.is_alive()][: None if seconds is None else 1]:
            lane.join(seconds)

    def enqueue(self, suspect: Suspect) -> None:
        """Queue a suspect, unless its signature is exhausted. Of too many with one signature, the least urgent is
        dropped."""
        with self.changed:
            if self.given_up(suspect) or suspect in (*self.waiting, *self.busy):
                return
            self.shelf.put(suspect)
            self.waiting.append(suspect)
            self.waiting.sort(key=self.priority)
            alike = [s for s in self.waiting if s.signature == suspect.signature]
            if len(alike) > MOST_WAITING:
                self.waiting.remove(alike[-1])
                self.shelf.drop(alike[-1])
            self.changed.notify()

    def leave(self) -> int:
        """How many suspects are left on the shelf. Those that would most likely bring nothing are dropped first."""
        with self.changed:
            for suspect in filter(self.given_up, self.waiting):
                self.shelf.drop(suspect)
        return len(self.shelf.suspects())

    def beside(self) -> Path | None:
        """The ledger in the campaign's folder, where it holds findings that the campaign's ledger lacks; else that
        ledger is removed, and None."""
        path = self.shelf.folder / BESIDE
        if not path.exists():
            return None
        with contextlib.suppress(StoreError), open_store(path) as kept, open_store(self.plan.db) as store:
            if {finding.id for finding in kept.list()} <= {finding.id for finding in store.list()}:
                path.unlink()
                return None
        return path

    def priority(self, suspect: Suspect) -> tuple[int, bool, bool, int]:
        """The worst class first; then suspects that no known finding covers; then those of the backward, which are the
        purpose; then short programs, which are soon minimal."""
        signature = suspect.signature
        backward = signature.direction == "backward"
        return CLASSES.index(signature.verdict), self.covered_by_known(suspect), not backward, len(suspect.text)

    def covered_by_known(self, suspect: Suspect) -> bool:
        """Whether the suspect holds every op of a known finding of its signature."""
        return any(known == suspect.signature and ops <= suspect.ops for known, ops in self.known)

    def given_up(self, suspect: Suspect) -> bool:
        """Whether the suspect would most likely become a known finding, or none."""
        patience = MOST_FRUITLESS_COVERED if self.covered_by_known(suspect) else MOST_FRUITLESS
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
        """One lane: take suspects until there are no more, or no time."""
        while (suspect := self._next()) is not None:
            try:
                self._one(suspect)
                self.blocked = None
            except StoreError as error:
                self._wait_for_ledger(suspect, error)
            except OSError as error:
                self._fail(suspect, error) if error.errno not in FULL else self._wait_for(suspect)
            except (NoMachine, BrokenExecutor) as error:  # carried to the main thread, which raises it
                with self.changed:
                    self.error = None if self.expired() and isinstance(error, BrokenExecutor) else error
                    self.waiting.insert(0, suspect)  # it is kept with those that wait
                return
            except Exception as error:  # a fault of ours in one suspect is no reason to end a campaign of weeks
                self._fail(suspect, error)
            finally:
                with self.changed:
                    self.busy.remove(suspect)
                    self.changed.notify_all()

    def _fail(self, suspect: Suspect, error: Exception) -> None:
        """Leave a suspect on the shelf because backfuzz itself failed on it."""
        self.fruitless[str(suspect.signature)] += 1
        self.failed.append(suspect)
        self.say(f"triage itself failed on {suspect.signature}: {type(error).__name__}: {error} (please report it)")

    def cpu_seconds(self) -> float:
        """CPU seconds that triage took so far: all that were spent since it began, without those of exploring."""
        return max(0.0, spent_seconds() - self.spent_before - self.totals.phases["cpu"])

    def _has_had_its_share(self) -> bool:
        """Whether the next suspect has to wait for exploring (`turns.had_its_share`)."""
        return not self.closing and had_its_share(self.cpu_seconds(), self.totals.phases["cpu"], self.plateau)

    def queue(self) -> dict[str, int]:
        """How many suspects wait, by class."""
        with self.changed:
            return dict(Counter(suspect.signature.verdict for suspect in self.waiting))

    def _wait_for_ledger(self, suspect: Suspect, error: StoreError) -> None:
        """Let the suspect wait while others use the ledger or the disk is full. Exploring goes on."""
        with self.changed:
            if self.blocked is None:
                self.say(f"{error}; what is found is kept in {self.shelf.folder} meanwhile, and exploring goes on")
            self.blocked = error
        self._wait_for(suspect)

    def _wait_for(self, suspect: Suspect) -> None:
        """Let the suspect wait, and this lane."""
        with self.changed:
            self.waiting.append(suspect)
            if not self.closing:
                self.changed.wait(RETRY_SECONDS)

    def _next(self) -> Suspect | None:
        with self.changed:
            while True:
                for hopeless in filter(self.given_up, self.waiting):
                    self.shelf.drop(hopeless)
                self.waiting = sorted((s for s in self.waiting if not self.given_up(s)), key=self.priority)
                if self.expired() or self.error is not None:
                    return None
                taken = {s.signature for s in self.busy}
                free = next((s for s in self.waiting if s.signature not in taken), None)
                if free is not None and not self.held and not self._has_had_its_share():
                    self.waiting.remove(free)
                    self.busy.append(free)
                    return free
                if self.closing and not self.waiting:
                    return None
                self.changed.wait(1.0)

    def _one(self, suspect: Suspect) -> None:
        key = str(suspect.signature)
        if suspect.signature.verdict == UNSUPPORTED:  # not minimized; without its settings it may be a finding
            self.fruitless[key] += 1
            if (bare := without_settings(suspect.program)) != suspect.program:
                self._offer_slip(bare)
            self.shelf.drop(suspect)
            return
        before = troubles()
        outcome = triage_suspect(suspect, self.plan, self.cache, self.place, self.campaign, self.expired)
        if outcome.unfinished or (outcome.finding is None and troubles() > before):
            self._put_back(suspect, disturbed=not outcome.unfinished)
            return
        self.fruitless[key] = 0 if outcome.new else self.fruitless[key] + 1
        if outcome.finding is not None:
            self.known.add((outcome.finding.signature, ops_of(parse(outcome.finding.program))))
        with self.changed:
            self.say(self._count(outcome, key))
        for other in outcome.others[:4]:
            self._offer_slip(other)
        self.shelf.drop(suspect)

    def _put_back(self, suspect: Suspect, disturbed: bool) -> None:
        """Let a suspect wait that had too little time, or that was `disturbed`: the machine lacked something meanwhile.
        After too many disturbances it stays on the shelf."""
        self.disturbed[suspect] += disturbed
        with self.changed:
            (self.waiting if self.disturbed[suspect] <= _MOST_DISTURBED else self.failed).append(suspect)

    def _count(self, outcome: TriageOutcome, key: str) -> str:
        """Count the outcome of a suspect with this signature; a line that reports it."""
        finding, totals = outcome.finding, self.totals
        totals.minimized += outcome.reduction is not None
        if finding is None:
            return f"not a finding: {key}: {outcome.note}"
        if outcome.new:
            self.findings.append(finding)
            fault = outcome.fault or self._fault_met(finding)
            (totals.variants if fault else totals.new)[finding.signature.verdict] += 1
            if not fault and self.plan.on_finding:
                self._announce(finding)
            return f"{f'a new variant of {fault}' if fault else 'a new fault'}: {describe(finding)}"
        totals.known[finding.signature.verdict] += 1
        if outcome.reduction is None and outcome.fault:
            totals.recognised.setdefault(outcome.fault, []).append(outcome.experiments)
            return f"recognised as {outcome.fault} in {outcome.experiments} experiment(s), not minimized: {key}"
        return f"known{f' as {outcome.fault}' if outcome.fault else ''}: {describe(finding)}"

    def _announce(self, finding: Finding) -> None:
        """Run the plan's command for a new fault, in a thread of its own. A failure is reported."""
        with open_store(self.plan.db) as store:
            fault = store.fault_of(finding.id).id
        told = {"FAULT": fault, "FINDING": finding.id, "CLASS": finding.signature.verdict, "DB": str(self.plan.db)}
        given = os.environ | {f"BACKFUZZ_{name}": value for name, value in told.items()}

        def run() -> None:
            try:
                command, text = self.plan.on_finding, describe(finding)
                done = subprocess.run(command, shell=True, input=text, text=True, env=given, timeout=600, stdout=2)
                failed = f"exit status {done.returncode}" if done.returncode else ""
            except (OSError, subprocess.SubprocessError) as error:
                failed = str(error)
            if failed:
                self.say(f"--on-finding for {fault}: {failed}")

        threading.Thread(target=run, daemon=True).start()

    def _fault_met(self, finding: Finding) -> str:
        """The fault that a new finding joined, where that was known or reported before; "" where the fault is new."""
        with open_store(self.plan.db) as store:
            fault = store.fault_of(finding.id).id
            variants = {row["id"] for row in store.rows(Wanted(fault=fault), "id")}
        met = bool(variants & self.met)
        self.met.add(finding.id)
        return fault if met else ""

    def _offer_slip(self, program: Program) -> None:
        """Queue a candidate that showed another finding while a suspect shrank, if it does so again."""
        report = examine_all(self.pool, [(replace(self.plan.task, fixed=()), program)])[0]
        if report.verdicts and report.verdict in FINDINGS:
            self.enqueue(Suspect(parse(report.text), report.verdicts[0].signature))


def describe(finding: Finding) -> str:
    """A finding in a few lines for the terminal."""
    lines = [f"{finding.signature.verdict} {finding.id}: {finding.signature}", f"  {finding.detail[:300]}"]
    lines += [f"  | {line}" for line in finding.program.splitlines()]
    if (grown := finding.grown) is not finding:
        lines += ["  as a person would write it:", f"  {grown.detail[:300]}"]
        lines += [f"  | {line}" for line in grown.program.splitlines()]
    return "\n".join(lines)
