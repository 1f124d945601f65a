"""After a verdict: does it show in fresh processes, and what is at fault? Every piece has a time limit and says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fuzzer.ablate import PASSES, STAGES, Change, changes, told, under, without
from fuzzer.dissect import bisected, dissect, glance
from fuzzer.evidence import PICTURE, Evidence
from fuzzer.execution.messages import Place, Report, Subject
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine
from fuzzer.memcheck import memcheck
from fuzzer.releases import environments, releases
from fuzzer.sides import hear
from fuzzer.text import parse
from fuzzer.verdict import Finding, Signature, Verdict, without_paths
from minimizer.same import follows

RUNS = 3  # fresh processes; all must agree before anything is stored
# Wall seconds of a piece. A compile takes 2 to 5 s on a free core and a campaign goes on beside: 20 variants of one
# program, two closer looks, 20 runs of the bisector (5 backends, 11 subsystems, a few halvings).
VARIANT_SECONDS, LOOK_SECONDS, BISECT_SECONDS = 300.0, 120.0, 300.0
NO_TIME = "no time was left; `backfuzz diagnose` runs it"


@dataclass(frozen=True)
class Verification:
    """How often a program showed its signature in fresh processes, and what the oracle then said."""

    reproduced: int = 0
    runs: int = 0
    verdict: Verdict | None = None


def examine_all(pool: Pool, asked: Sequence[tuple[Task, str]]) -> list[Report]:
    """The Reports of several (task, program text), run on all workers, in order."""
    futures: list[Future[Report]] = [pool.submit(examine, task, text) for task, text in asked]
    return [pool.result(future, task) for future, (task, _) in zip(futures, asked, strict=True)]


def matching(report: Report, signature: Signature) -> Verdict | None:
    """The report's verdict that is the same finding, if any."""
    return next((v for v in report.verdicts if follows(signature, v.signature)), None)


def verify(
    text: str, task: Task, signature: Signature, workers: int, devices: list[str], scratch: Path
) -> Verification:
    """Run the program in RUNS fresh processes with the compiler's caches off."""
    fresh = replace(task, fresh=True)
    with Pool(min(workers, RUNS), devices, scratch=scratch, fresh=True) as pool:
        reports = examine_all(pool, [(fresh, text)] * RUNS)
    found = [v for report in reports if (v := matching(report, signature)) is not None]
    return Verification(len(found), RUNS, found[0] if found else None)


# ---------------------------------------------------------------- diagnosis

# What a diagnosis holds, in the order in which a person asks.
FIELDS = ("side", "culprit", "stage", "graph", *PICTURE, "original", "settings", "vanishes", "bisector",
          "suspect", "memcheck", "releases", "place")  # fmt: skip


def diagnose(
    finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool] = lambda: False
) -> Finding:
    """The finding with stages, ablation, diagnosis and attachments. Pieces that `expired` leaves no time for say so.

    task   where to run it;  scratch   a folder for the bisector's process.
    """
    case = Case(finding, replace(task, fixed=(), fresh=True), pool, scratch, expired)
    known, program = case.known, parse(finding.program)
    case.vary(changes(program, case.task))
    case.look()
    case.try_sides()
    case.bisect()
    if known.found.get("subsystem", "").endswith("_passes"):
        case.vary(list(under(program, case.task, PASSES)))
    elif case.subject.backend in STAGES[2:]:
        case.vary(without(program, case.task, known.suspects()))
    known.conclude()
    known.notes["memcheck"] = f"not run: {NO_TIME}" if expired() else memcheck(finding)
    known.notes["releases"] = f"not run: {NO_TIME}" if expired() else releases(finding, environments())
    known.notes["place"] = f"torch {torch.__version__}, {task.place.subject} against {task.place.reference}"
    notes = {name: without_paths(known.notes[name]) for name in FIELDS}
    files = {name: without_paths(text) for name, text in known.files.items()}
    return replace(finding, stages=known.tables["stage"], ablation=known.tables["ablation"], diagnosis=notes,
                   attachments=files)  # fmt: skip


class Case:
    """One finding under diagnosis: runs what brings evidence."""

    def __init__(self, finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool]):
        self.finding, self.task, self.pool, self.scratch, self.expired = finding, task, pool, scratch, expired
        self.subject = task.place.subject
        self.known = Evidence(finding)

    def ask(self, function: Callable[..., Report], asked: Sequence[tuple[Task, Any]], seconds: float) -> list[Report]:
        """The Reports of function(task, what), run on all workers; what has not ended in time is given up."""
        if self.expired():
            return [Report("", rejected=NO_TIME) for _ in asked]
        return self.results(self.pool, [self.pool.submit(function, *one) for one in asked], seconds)

    def results(self, pool: Pool, futures: list[Future[Report]], seconds: float) -> list[Report]:
        until = time.monotonic() + seconds
        late = set(futures)
        while late and time.monotonic() < until and not self.expired():
            _, late = wait(futures, timeout=min(seconds, 0.5))
        pool.abandon(late)
        told = NO_TIME if self.expired() else f"no answer in {seconds:.0f} s"
        return [Report("", rejected=told) if f in late else pool.result(f, self.task) for f in futures]

    def vary(self, variants: Sequence[Change]) -> None:
        """Run variants, each different text and task once, and tell each one's class in its table."""
        own, tables = self.finding.signature, self.known.tables
        unique = list({(c.task, c.text): None for c in variants if not c.told})
        reports = dict(zip(unique, self.ask(examine, unique, VARIANT_SECONDS), strict=True))
        for c in variants:
            report = None if c.told else reports[c.task, c.text]
            tables[c.table][c.name] = without_paths(told(report, own.verdict)) if report else c.told
            if c.table == "subset" and report is not None and matching(report, own) is not None:
                self.known.enough.append(c.name)
        if tables["stage"]:
            tables["stage"][self.subject.backend] = own.verdict

    def look(self) -> None:
        """The shape of the error, here and in the original program; graphs and code."""
        asked = [(self.task, self.finding.program), (self.task, self.finding.original)]
        if self.subject.backend in STAGES[1:-1]:  # inductor gets the graph that these backends run
            seen_by = Place(self.task.place.reference, Subject("inductor", self.subject.device))
            asked.append((replace(self.task, place=seen_by), self.finding.program))
        here, before, *inductor = self.ask(dissect, asked, LOOK_SECONDS)
        graphs = {k: v for r in inductor for k, v in r.files.items() if k.endswith("_graph.py")}
        died = failure(here)
        files = self.ask(glance, asked[:1], LOOK_SECONDS)[0].files if died else here.files
        self.known.files |= {**files, **graphs}
        self.known.found |= here.notes
        self.known.picture(here.notes, died, before.notes, failure(before) or before.notes.get("outcome", ""))

    def try_sides(self) -> None:
        """Which side is wrong."""
        if self.finding.signature.verdict in ("crashes", "hangs"):
            self.known.notes["side"] = "none: the program takes its process with it"
            return
        report = self.ask(hear, [(self.task, self.finding.program)], LOOK_SECONDS)[0]
        self.known.notes["side"] = report.notes.get("side", f"not run: {failure(report)}")

    def bisect(self) -> None:
        """PyTorch's bisector, in a process of its own."""
        known = self.known
        if cannot := self.no_bisector():
            known.notes["bisector"] = f"not run: {cannot}"
            return
        what = (self.finding.program, self.finding.signature, BISECT_SECONDS)
        limit = BISECT_SECONDS + LOOK_SECONDS  # the run that goes on when the time is up ends first
        with Pool(1, [self.subject.device], limit, self.scratch, fresh=True) as own:
            report = self.results(own, [own.submit(bisected, self.task, what)], limit)[0]
        known.found |= report.notes
        known.notes["bisector"] = report.notes.get("bisector", f"failed: {failure(report)}")

    def no_bisector(self) -> str:
        """Why the bisector cannot run; "" where it can."""
        if self.subject.backend not in STAGES[1:]:
            return f"{self.subject.backend} is no stage of torch.compile"
        if self.task.place.reference.device != self.subject.device:
            return "the two sides are on different devices"
        if parse(self.finding.program).route.name == "aoti":
            return "route aoti does not go through torch.compile"
        if self.finding.signature.verdict in ("crashes", "hangs"):
            return "the program takes its process with it"
        return NO_TIME if self.expired() else ""


def failure(report: Report) -> str:
    """Why a closer look brought nothing: it did not run, or its worker died; else ""."""
    return report.rejected or (report.verdicts[0].detail if report.verdicts else "")
