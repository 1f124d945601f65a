"""Suspects on their way: sorted, explained, confirmed by one build, settled, grown; by threads beside exploration.

Each step costs more than the one before. `turns` says which suspect takes its next step.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path

from fuzzer.campaign.plan import Plan, environment_of
from fuzzer.campaign.suspects.clusters import MOST_FRUITLESS, Cluster, Clusters
from fuzzer.campaign.suspects.core import Core
from fuzzer.campaign.suspects.interestingness import CandidateCache
from fuzzer.campaign.suspects.patience import BESIDE, RETRY_SECONDS
from fuzzer.campaign.suspects.recognition import explains
from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.campaign.suspects.sort import core_of, is_sortable, sort_on
from fuzzer.campaign.suspects.suspect import (
    Step,
    Suspect,
    TriageOutcome,
    grow_stored,
    met_as_core,
    ops_of,
    recognised_as,
    task_at,
    task_of,
    triage_suspect,
    whole_core,
)
from fuzzer.campaign.told.totals import Totals
from fuzzer.campaign.turns import CHEAP, candidates, dear_lanes, had_its_share, lanes, turn
from fuzzer.judgement.oracles import about_bare
from fuzzer.judgement.verdict import FINDINGS, UNSUPPORTED, Finding, Signature, parse_signature
from fuzzer.language.errors import NoMachine
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.severity import label, severity_of
from fuzzer.ledger.store import open_store
from fuzzer.trial.pipeline import without_settings
from fuzzer.trial.verify import examine_all, matching
from fuzzer.workers.messages import Report
from fuzzer.workers.pool import Pool, spent_by_thread, spent_seconds, troubles
from fuzzer.workers.trouble import FULL, TROUBLE
from fuzzer.workers.worker import INTERNAL_ERROR

# Suspects that cannot be sorted are counted by signature, which is coarse: several faults share one. One that holds the
# ops of a known finding of its signature is most likely that finding again: those are built only until this many
# suspects of the signature in a row brought nothing new. Any other suspect gets its turn much longer.
MOST_FRUITLESS_COVERED = 2
MOST_FRUITLESS_WHOLE = 12
MOST_WAITING = 8  # of one signature
MOST_UNSORTED = 100  # the same, of those that are to be sorted: sorting them tells what they are
_MOST_DISTURBED = 3


class Triage:
    """Turns suspects into findings on the campaign's pool, by lanes (threads) that work side by side.

    clusters  the sorted suspects by key: the first of each is decided for all.
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
        self.clusters = Clusters()
        self.sorted: Counter[str] = Counter()  # suspects that were taken to be sorted, by class
        self.closing = False
        self.deadline: float | None = None
        self.fruitless: Counter[str] = Counter()  # suspects of a signature in a row that brought nothing new
        self.findings: list[Finding] = []
        with open_store(plan.db) as store:
            known = store.list()
        self.known: dict[Signature, set[frozenset[str]]] = defaultdict(set)  # the ops of known findings
        for finding in known:
            self.known[finding.signature].add(ops_of(parse(finding.program)))
        self.met = {f.id for f in known}  # of faults that were known or told
        self.failed: list[Suspect] = []
        self.error: Exception | None = None
        self.plateau: Callable[[], bool] = lambda: False
        self.spent_before = spent_seconds()
        self.began = time.monotonic()
        self.blocked: StoreError | None = None  # why the ledger cannot be used now
        self.held = False  # while the machine lacks what programs need
        self.disturbed: Counter[Suspect] = Counter()  # how often that came between

    def start(self, pool: Pool, plateau: Callable[[], bool] = lambda: False) -> None:
        """Begin on these workers. plateau: tells whether exploring finds nothing new."""
        self.plateau, self.spent_before, self.began = plateau, spent_seconds(), time.monotonic()
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
        sortable = suspect.core is not None or is_sortable(suspect.signature)
        suspect = replace(suspect, step=Step.SORT if sortable else Step.WHOLE)
        with self.changed:
            if self.given_up(suspect) or suspect in (*self.waiting, *self.busy):
                return
            self.shelf.put(suspect)
            (self.totals.slips if suspect.slip else self.totals.suspects)[suspect.signature.verdict] += 1
            self.totals.brought(suspect.source, suspects=not suspect.slip)
            self.waiting.append(suspect)
            self.waiting.sort(key=self.turn)
            self._keep_bounds()
            alike = [s for s in self.waiting if (s.signature, s.step) == (suspect.signature, suspect.step)]
            if len(alike) > (MOST_UNSORTED if sortable else MOST_WAITING):
                self.waiting.remove(alike[-1])
                self.shelf.drop(alike[-1])
            self.changed.notify()

    def _keep_bounds(self) -> None:
        """Of more suspects and keys than the plan keeps, drop the least urgent that wait, and forget the keys that are
        decided and were not met for longest. Called where nothing else changes them."""
        most, before = self.plan.bounds.keys, self.totals.dropped
        unsorted = [suspect for suspect in self.waiting if suspect.step in (Step.SORT, Step.WHOLE)]
        others = [suspect for suspect in self.waiting if suspect.step not in (Step.SORT, Step.WHOLE)]
        for waiting in (unsorted, others):
            for suspect in sorted(waiting, key=self.turn)[most:] if len(waiting) > most else ():
                self._drop_waiting(suspect)
        if self.totals.dropped and not before:
            self.say(f"more than {most} suspects wait: the least urgent are dropped from now on (--keep-keys)")
        for cluster in self.clusters.forget_decided(most):
            self.totals.forgotten += 1
            for member in cluster.members:
                self.shelf.drop(member)
            self.waiting = [s for s in self.waiting if s.step is not Step.DOUBT or s not in cluster.members]

    def _drop_waiting(self, suspect: Suspect) -> None:
        """Drop a suspect that waits, with its key where it stands for one. A finding that is to be grown is stored."""
        self.waiting.remove(suspect)
        gone = [suspect]
        if suspect.step in (Step.EXPLAIN, Step.CONFIRM, Step.SETTLE) and (cluster := self.clusters.forget(suspect)):
            assert suspect.core is not None
            gone = cluster.members
            self.totals.unconfirmed.pop(str(suspect.core.key), None)
        if suspect.step not in (Step.GROW, Step.DOUBT):
            self.totals.dropped += len(gone)
            for each in gone:
                self.shelf.drop(each)

    def leave(self) -> int:
        """How many suspects are left on the shelf. Those that would most likely bring nothing are dropped first, and
        those of clusters that are decided."""
        with self.changed:
            for suspect in filter(self.given_up, self.waiting):
                self.shelf.drop(suspect)
            members = (member for cluster in self.clusters if cluster.over for member in cluster.members)
            for member in members:
                if member not in self.waiting:
                    self.shelf.drop(member)
        self.count_open()
        return len(self.shelf.suspects())

    def count_open(self) -> None:
        """Count in the totals what is undecided now: drawn suspects without a key, and keys without a verdict."""
        with self.changed:
            unsorted = {s.text for s in (*self.waiting, *self.busy, *self.failed) if s.core is None and not s.slip}
            undecided = [c for c in self.clusters if not (c.fault or c.told or c.over or c.idle)]
        self.totals.open = {"suspects_without_a_key": len(unsorted), "keys_without_a_verdict": len(undecided)}

    def beside(self) -> Path | None:
        """The ledger in the campaign's folder, where it holds findings that the campaign's ledger lacks; else that
        ledger is removed, and None."""
        path = self.shelf.folder / BESIDE
        if not path.exists():
            return None
        with contextlib.suppress(StoreError), open_store(path) as kept, open_store(self.plan.db) as store:
            if kept.ids() <= store.ids():
                path.unlink()
                return None
        return path

    def turn(self, suspect: Suspect) -> tuple[int, ...]:
        """The suspect's place in the order of `turns`."""
        return turn(suspect, self.sorted, self.covered_by_known(suspect))

    def covered_by_known(self, suspect: Suspect) -> bool:
        """Whether the suspect holds every op of a known finding of its signature."""
        return any(ops <= suspect.ops for ops in self.known.get(suspect.signature, ()))

    def given_up(self, suspect: Suspect) -> bool:
        """Whether a suspect without a core would most likely become a known finding, or none."""
        patience = MOST_FRUITLESS_COVERED if self.covered_by_known(suspect) else MOST_FRUITLESS_WHOLE
        return suspect.step is Step.WHOLE and self.fruitless[str(suspect.signature)] >= patience

    def finish(self, seconds: float) -> None:
        """No more suspects will come; end within this time, leaving the rest for later."""
        with self.changed:
            self.closing = True
            self.deadline = time.monotonic() + seconds
            self.changed.notify_all()

    def expired(self) -> bool:
        return self.late_seconds() > 0

    def late_seconds(self) -> float:
        """Seconds since its time was up; negative before."""
        return -math.inf if self.deadline is None else time.monotonic() - self.deadline

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
                self.waiting = sorted((s for s in self.waiting if not self.given_up(s)), key=self.turn)
                if self.expired() or self.error is not None:
                    return None
                if not self.busy and all(s.step is Step.GROW for s in self.waiting):
                    self.waiting = self._doubtful() + self.waiting
                dear = self._may_be_dear()
                free = next((s for s in self.waiting if (dear or s.step in CHEAP) and self._is_alone(s)), None)
                if free is not None and not self.held:
                    self.waiting.remove(free)
                    self.busy.append(free)
                    self.sorted[free.signature.verdict] += free.step is Step.SORT
                    return free
                if self.closing and not self.waiting:
                    return None
                self.changed.wait(1.0)

    def _may_be_dear(self) -> bool:
        """Whether another lane may begin a step that is not cheap."""
        dear = sum(suspect.step not in CHEAP for suspect in self.busy)
        return dear < dear_lanes(self.plan.workers) and not self._has_had_its_share()

    def _is_alone(self, suspect: Suspect) -> bool:
        """Whether no lane builds another suspect of this signature as a whole."""
        busy = {s.signature for s in self.busy if s.step is Step.WHOLE}
        return suspect.step is not Step.WHOLE or suspect.signature not in busy

    def _doubtful(self) -> list[Suspect]:
        """Of each cluster that a fault explains, once, the suspect that is furthest from its first."""
        found = [c for c in self.clusters if c.fault and not c.doubted and c.furthest is not None]
        for cluster in found:
            cluster.doubted = True
        return [replace(c.furthest, step=Step.DOUBT) for c in found if c.furthest is not None]

    def _one(self, suspect: Suspect) -> None:
        """The next step of a suspect."""
        steps = {
            Step.SORT: self._sort,
            Step.WHOLE: self._build_whole,
            Step.EXPLAIN: self._explain,
            Step.CONFIRM: self._confirm,
            Step.SETTLE: self._settle,
            Step.DOUBT: self._doubt,
            Step.GROW: self._grow,
        }
        before = spent_by_thread()
        try:
            steps[suspect.step](suspect)
        finally:
            with self.changed:
                self.totals.steps.update({suspect.step.value: spent_by_thread() - before})

    def _on(self, suspect: Suspect, step: Step) -> None:
        """Let a suspect wait for another step."""
        with self.changed:
            self.waiting.append(replace(suspect, step=step))
            self.changed.notify()

    # ------------------------------------------------------------ sort, explain, confirm

    def _sort(self, suspect: Suspect) -> None:
        """Find the core of a suspect, unless it came with one, and with that its key."""
        if suspect.core is None:
            report = sort_on(self.pool, task_of(suspect.signature, self.plan), suspect.text, suspect.signature)
            if report.rejected.startswith(TROUBLE):
                self._put_back(suspect, disturbed=True)
                return
            if report.rejected.startswith(INTERNAL_ERROR):
                self.say(f"{report.rejected} while a suspect was sorted (please report it)")
            self._take_others(suspect, report)
            suspect = replace(suspect, core=core_of(report, suspect.signature))
            if suspect.core is None:
                self._on(suspect, Step.WHOLE)
                return
            self.shelf.put(suspect)
        self._gather(suspect)

    def _build_whole(self, suspect: Suspect) -> None:
        """Build a suspect that cannot be sorted: it is its own core, if it shows again."""
        before = troubles()
        if suspect.signature.verdict == UNSUPPORTED or about_bare((suspect.signature.oracle,)):
            # without its settings it may be a finding
            if (bare := without_settings(suspect.program)) != suspect.program:
                self._offer_slip(suspect, bare, self.plan.task.place.subject.backend)
            self._set_aside(suspect, UNSUPPORTED if suspect.signature.verdict == UNSUPPORTED else "without settings")
            return
        core = whole_core(suspect, self.plan, self.pool)
        if isinstance(core, TriageOutcome):
            if troubles() > before:
                self._put_back(suspect, disturbed=True)
                return
            self._set_aside(suspect, "did not show again", core.note)
            for other in core.others:
                self._offer_slip(suspect, other, self.plan.task.place.subject.backend)
            return
        suspect = replace(suspect, core=core)
        self.shelf.put(suspect)
        self._gather(suspect)

    def _set_aside(self, suspect: Suspect, why: str, note: str = "") -> None:
        """Drop a suspect that has no key, and count the reason. A note is said."""
        with self.changed:
            self.totals.set_aside[why] += 1
            self.fruitless[str(suspect.signature)] += 1
        self.shelf.drop(suspect)
        if note:
            self.say(f"not a finding: {suspect.signature}: {note}")

    def _gather(self, suspect: Suspect) -> None:
        """Put a suspect that has a core to those of its key."""
        with self.changed:
            cluster = self.clusters.of(suspect)
            self.totals.brought(suspect.source, keys=self.clusters.made - self.totals.keys)
            self.totals.keys = self.clusters.made
        if cluster.first is suspect:
            self._on(suspect, Step.EXPLAIN)
        else:
            self._join(suspect, cluster)
        with self.changed:
            self._keep_bounds()

    def _take_others(self, suspect: Suspect, report: Report) -> None:
        """Queue what else was seen while a suspect was sorted: candidates that showed another finding, or the one that
        ended the worker."""
        for signature, text in report.files.items():
            self.enqueue(slip(suspect, parse(text), parse_signature(signature), report.stage))
        if not report.notes and report.verdict == "crashes":  # a deadline was that of all candidates together
            self.enqueue(slip(suspect, parse(report.text), report.verdicts[0].signature))

    def _join(self, suspect: Suspect, cluster: Cluster) -> None:
        """Put a suspect to those of its key; it shares their fate until it is held against their fault."""
        with self.changed:
            self.totals.joined[suspect.signature.verdict] += 1
            self.totals.known[suspect.signature.verdict] += bool(cluster.fault)
            self._tally(suspect, new=False)
            if cluster.idle and not cluster.over:
                cluster.first, cluster.idle = suspect, False
                self._on(suspect, Step.CONFIRM)
            elif suspect not in cluster.members:
                cluster.others.append(suspect)
                self._drop_surplus(cluster)

    def _drop_surplus(self, cluster: Cluster) -> None:
        """Drop the others for which a cluster has no room."""
        for other in cluster.surplus():
            self.shelf.drop(other)

    def _explain(self, suspect: Suspect) -> None:
        """Hold the first suspect of a key against the faults that are known."""
        assert suspect.core is not None
        met = met_as_core(suspect.core, self.plan, self.pool)
        if met is not None:
            self._decide(suspect, recognised_as(met))
            return
        with self.changed:
            self.totals.unexplained += 1
            if suspect.signature.verdict == "wrong" and self.totals.first_unexplained is None:
                self.totals.first_unexplained = time.monotonic() - self.began
        self._on(suspect, Step.CONFIRM)

    def _confirm(self, suspect: Suspect) -> None:
        """Build the core of an unexplained key once, and tell what it shows. If code does not show it, build the whole
        suspect once."""
        core, task = suspect.core, task_of(suspect.signature, self.plan)
        assert core is not None
        verdict, before = core.verdict, troubles()
        if not core.builds:
            report = examine_all(self.pool, [(replace(task, fresh=True), core.program)])[0]
            found = matching(report, core.signature)
            if found is None:
                report = examine_all(self.pool, [(replace(task, fresh=True), suspect.program)])[0]
                if troubles() > before:
                    self._put_back(suspect, disturbed=True)
                elif (whole := matching(report, suspect.signature)) is not None:  # not through what the core holds
                    self._fruitless(suspect)
                    backend = task.place.subject.backend
                    built = replace(suspect, core=Core(suspect.program, whole, backend, whole.detail, 1, 1))
                    self.shelf.put(built)
                    self._gather(built)
                else:
                    self._not_built(suspect, report)
                return
            verdict = found
        cluster = self.clusters.of(suspect)
        with self.changed:
            cluster.told = replace(core, verdict=verdict).told
            self.totals.unconfirmed[str(core.key)] = cluster.told
            self.totals.told += 1
        self.say(f"unconfirmed: {cluster.told}")
        self._on(suspect, Step.SETTLE)

    def _not_built(self, suspect: Suspect, report: Report) -> None:
        """End a suspect that a stage shows and code does not. What code shows instead is a suspect of its own."""
        assert suspect.core is not None
        self.say(f"not a finding: {suspect.core.key}: seen there, not when built ({report.verdict})")
        if report.verdicts and report.verdict in FINDINGS:
            self.enqueue(slip(suspect, suspect.program, report.verdicts[0].signature))
        self._fruitless(suspect)
        self.shelf.drop(suspect)

    def _fruitless(self, suspect: Suspect) -> None:
        """Go on with another suspect of a key whose first came to nothing, unless too many did."""
        cluster = self.clusters.of(suspect)
        with self.changed:
            assert suspect.core is not None
            self.totals.unconfirmed.pop(str(suspect.core.key), None)
            cluster.fruitless += 1
            cluster.over = cluster.over or cluster.fruitless >= MOST_FRUITLESS
            cluster.idle = not cluster.others
            self._drop_surplus(cluster)
            if not (cluster.over or cluster.idle):
                cluster.first = cluster.others.pop(0)
                self._on(cluster.first, Step.CONFIRM)

    # ------------------------------------------------------------ settle

    def _settle(self, suspect: Suspect) -> None:
        """Minimize, verify, store and diagnose a suspect, from its core."""
        assert suspect.core is not None
        before = troubles()
        # faults that were found since it was explained may be its own
        outcome = triage_suspect(suspect, self.plan, self.cache, self.place, self.campaign, self.expired)
        if outcome.unfinished or (outcome.finding is None and troubles() > before):
            self._put_back(suspect, disturbed=not outcome.unfinished)
            return
        if outcome.finding is not None:
            self.known[outcome.finding.signature].add(ops_of(parse(outcome.finding.program)))
            self._decide(suspect, outcome)
        else:
            self._tally(suspect, new=False)
            self._fruitless(suspect)
            with self.changed:
                self.say(self._count(outcome, suspect))
            self.shelf.drop(suspect)
        for other in outcome.others[:4]:
            self._offer_slip(suspect, other, suspect.core.stage)
        if outcome.new and outcome.finding is not None and not self.expired():
            self._on(replace(suspect, finding=outcome.finding), Step.GROW)

    def _tally(self, suspect: Suspect, new: bool) -> None:
        """Count in a row the suspects of a signature that were built as a whole and brought nothing new."""
        if suspect.core is not None and suspect.core.builds:
            signature = str(suspect.signature)
            self.fruitless[signature] = 0 if new else self.fruitless[signature] + 1

    def _decide(self, suspect: Suspect, outcome: TriageOutcome) -> None:
        """End a cluster with the outcome of its first, which has a finding."""
        cluster = self.clusters.of(suspect)
        assert outcome.finding is not None
        assert suspect.core is not None
        with self.changed:
            self.say(self._count(outcome, suspect))
            self._tally(suspect, outcome.new)
            cluster.over = True
            cluster.fault = outcome.fault or self._fault_of(outcome.finding)
            self.totals.explained += not outcome.new
            self.totals.unconfirmed.pop(str(suspect.core.key), None)
            for other in cluster.others:
                self.totals.known[other.signature.verdict] += 1
            self._drop_surplus(cluster)
        self.shelf.drop(suspect)

    def _fault_of(self, finding: Finding) -> str:
        """The fault of a finding that the ledger holds."""
        with open_store(self.plan.db) as store:
            return store.fault_of(finding.id).id

    def _doubt(self, suspect: Suspect) -> None:
        """Hold a suspect against the fault of its cluster, which it joined by its key. If that fault does not explain
        it, it is a suspect again, and another of the cluster may be held against the fault."""
        with self.changed:
            if suspect not in self.clusters:  # its key was forgotten just now
                return
            cluster = self.clusters.of(suspect)
        assert suspect.core is not None
        core, plan = suspect.core, self.plan
        at_stage = task_at(core, plan)
        if explains(cluster.fault, core.program, core.signature, plan.db, plan.known, at_stage, self.pool) is not False:
            return
        with self.changed:
            cluster.others = [other for other in cluster.others if other != suspect]  # it may have given way meanwhile
            cluster.doubted = False
            self.totals.joined[suspect.signature.verdict] -= 1
            self.totals.known[suspect.signature.verdict] -= 1
        self.shelf.put(suspect)
        self._gather(replace(suspect, apart=True))

    def _grow(self, suspect: Suspect) -> None:
        """Grow the minimal program of a stored finding into a natural one."""
        assert suspect.finding is not None
        grown = grow_stored(suspect.finding, self.plan, self.pool, self.expired)
        self.findings = [grown if finding.id == grown.id else finding for finding in self.findings]
        if grown.grown is not grown:
            self.say(describe(grown))

    def _put_back(self, suspect: Suspect, disturbed: bool) -> None:
        """Let a suspect wait that had too little time, or that was `disturbed`: the machine lacked something meanwhile.
        After too many disturbances it stays on the shelf."""
        if disturbed:
            self.disturbed[suspect] += 1
        with self.changed:
            (self.waiting if self.disturbed[suspect] <= _MOST_DISTURBED else self.failed).append(suspect)

    def _count(self, outcome: TriageOutcome, suspect: Suspect) -> str:
        """Count the outcome of a suspect that has a core; a line that reports it."""
        assert suspect.core is not None
        finding, totals, key = outcome.finding, self.totals, str(suspect.core.key)
        totals.minimized += outcome.reduction is not None
        if finding is None:
            return f"not a finding: {key}: {outcome.note}"
        if outcome.new:
            self.findings.append(finding)
            fault = outcome.fault or self._fault_met(finding)
            (totals.variants if fault else totals.new)[finding.signature.verdict] += 1
            if not fault:
                totals.severities[str(severity_of(finding))] += 1
                totals.last_new = finding.id
                totals.brought(suspect.source, faults=1)
            if not fault and self.plan.on_finding:
                self._announce(finding)
            kind = f"a new variant of {fault}" if fault else f"a new fault, {severity_of(finding)}"
            return f"{kind}: {describe(finding)}"
        totals.known[finding.signature.verdict] += 1
        if outcome.reduction is None and outcome.fault:
            totals.recognised.setdefault(outcome.fault, Counter()).update(keys=1, experiments=outcome.experiments)
            return f"recognised as {outcome.fault} in {outcome.experiments} experiment(s), not minimized: {key}"
        return f"known{f' as {outcome.fault}' if outcome.fault else ''}: {describe(finding)}"

    def _announce(self, finding: Finding) -> None:
        """Run the plan's command for a new fault, in a thread of its own. A failure is reported."""
        with open_store(self.plan.db) as store:
            known = store.fault_of(finding.id)
        fault, place = known.id, finding.place
        told = {"FAULT": fault, "FINDING": finding.id, "CLASS": finding.signature.verdict, "DB": str(self.plan.db),
                "TITLE": known.title, "SEVERITY": label(known.severity), "TORCH": place.get("torch", ""),
                "DEVICE": place.get("device", "")}  # fmt: skip
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

    def _offer_slip(self, suspect: Suspect, program: Program, backend: str) -> None:
        """Queue a candidate that showed another finding while this suspect shrank, if it does so again on this
        backend."""
        task = replace(self.plan.task, place=self.plan.task.place.on(backend), fixed=())
        report = examine_all(self.pool, [(task, program)])[0]
        if report.verdicts and report.verdict in FINDINGS:
            self.enqueue(slip(suspect, parse(report.text), report.verdicts[0].signature, report.stage))


def slip(suspect: Suspect, program: Program, signature: Signature, stage: str = "") -> Suspect:
    """A suspect that came up while another was decided."""
    return Suspect(program, signature, stage, source=suspect.source, slip=True)


def describe(finding: Finding) -> str:
    """A finding in a few lines for the terminal."""
    lines = [f"{finding.signature.verdict} {finding.id}: {finding.signature}", f"  {finding.detail[:300]}"]
    lines += [f"  | {line}" for line in finding.program.splitlines()]
    if (grown := finding.grown) is not finding:
        lines += ["  as a person would write it:", f"  {grown.detail[:300]}"]
        lines += [f"  | {line}" for line in grown.program.splitlines()]
    return "\n".join(lines)
