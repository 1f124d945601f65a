"""After a verdict: what is at fault? Every piece has a time limit and says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fuzzer.diagnosis.ablation import PASSES, STAGES, Ablation, ablations, outcome_text, with_settings, without_ops
from fuzzer.diagnosis.dissect import compile_only, describe_difference, run_bisector
from fuzzer.diagnosis.evidence import DIFFERENCE, Evidence
from fuzzer.diagnosis.memcheck import memcheck
from fuzzer.diagnosis.releases import environments, releases
from fuzzer.diagnosis.side import check_gradients
from fuzzer.execution.explore import examine
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.pool import Pool
from fuzzer.execution.verify import matching
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, without_paths
from fuzzer.language.routes import ROUTES
from fuzzer.language.text import parse

# Wall seconds of a piece. A compile takes 2 to 5 s on a free core and a campaign goes on beside: 20 variants of one
# program, two closer looks, 20 runs of the bisector (5 backends, 11 subsystems, a few halvings).
VARIANT_SECONDS, LOOK_SECONDS, BISECT_SECONDS = 300.0, 120.0, 300.0
NO_TIME = "no time was left; `backfuzz diagnose` runs it"

# What a diagnosis holds, in the order in which a person asks.
FIELDS = ("side", "culprit", "stage", "graph", *DIFFERENCE, "original", "settings", "vanishes", "bisector",
          "suspect", "memcheck", "releases", "place")  # fmt: skip


def diagnose(
    finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool] = lambda: False
) -> Finding:
    """The finding with stages, ablation, diagnosis and attachments. Pieces that `expired` leaves no time for say so.

    task   where to run it;  scratch   a folder for the bisector's process.
    """
    case = Case(finding, replace(task, fixed=(), fresh=True), pool, scratch, expired)
    evidence, program = case.evidence, parse(finding.program)
    case.run_ablations(ablations(program, case.task))
    case.describe()
    case.check_gradients()
    case.bisect()
    if evidence.found.get("subsystem", "").endswith("_passes"):
        case.run_ablations(list(with_settings(program, case.task, PASSES)))
    elif case.subject.backend in list(STAGES)[2:]:
        case.run_ablations(without_ops(program, case.task, evidence.suspects()))
    evidence.summarise()
    evidence.notes["memcheck"] = f"not run: {NO_TIME}" if expired() else memcheck(finding)
    evidence.notes["releases"] = f"not run: {NO_TIME}" if expired() else releases(finding, environments())
    evidence.notes["place"] = f"torch {torch.__version__}, {task.place.subject} against {task.place.reference}"
    notes = {name: without_paths(evidence.notes[name]) for name in FIELDS}
    files = {name: without_paths(text) for name, text in evidence.files.items()}
    return replace(finding, stages=evidence.tables["stage"], ablation=evidence.tables["ablation"], diagnosis=notes,
                   attachments=files)  # fmt: skip


class Case:
    """One finding under diagnosis: runs what brings evidence."""

    def __init__(self, finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool]):
        self.finding, self.task, self.pool, self.scratch, self.expired = finding, task, pool, scratch, expired
        self.subject = task.place.subject
        self.evidence = Evidence(finding)

    def run_all(
        self, function: Callable[..., Report], asked: Sequence[tuple[Task, Any]], seconds: float
    ) -> list[Report]:
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
        reason = NO_TIME if self.expired() else f"no answer in {seconds:.0f} s"
        return [Report("", rejected=reason) if f in late else pool.result(f, self.task) for f in futures]

    def run_ablations(self, variants: Sequence[Ablation]) -> None:
        """Run variants, each different text and task once, and tell each one's class in its table."""
        own, tables = self.finding.signature, self.evidence.tables
        unique = list({(c.task, c.text): None for c in variants if not c.skipped})
        reports = dict(zip(unique, self.run_all(examine, unique, VARIANT_SECONDS), strict=True))
        for c in variants:
            report = None if c.skipped else reports[c.task, c.text]
            tables[c.table][c.name] = without_paths(outcome_text(report, own.verdict)) if report else c.skipped
            if c.table == "subset" and report is not None and matching(report, own) is not None:
                self.evidence.sufficient_settings.append(c.name)
        if tables["stage"]:
            tables["stage"][self.subject.backend] = own.verdict

    def describe(self) -> None:
        """The shape of the error, here and in the original program; graphs and code."""
        asked = [(self.task, self.finding.program), (self.task, self.finding.original)]
        if self.subject.backend in list(STAGES)[1:-1]:  # inductor gets the graph that these backends run
            seen_by = Place(self.task.place.reference, Subject("inductor", self.subject.device))
            asked.append((replace(self.task, place=seen_by), self.finding.program))
        here, before, *inductor = self.run_all(describe_difference, asked, LOOK_SECONDS)
        graphs = {k: v for r in inductor for k, v in r.files.items() if k.endswith("_graph.py")}
        died = _failure(here)
        files = self.run_all(compile_only, asked[:1], LOOK_SECONDS)[0].files if died else here.files
        self.evidence.files |= {**files, **graphs}
        self.evidence.found |= here.notes
        self.evidence.note_difference(
            here.notes, died, before.notes, _failure(before) or before.notes.get("outcome", "")
        )

    def check_gradients(self) -> None:
        """Which side is wrong."""
        if self.finding.signature.verdict in ("crashes", "hangs"):
            self.evidence.notes["side"] = "none: the program takes its process with it"
            return
        report = self.run_all(check_gradients, [(self.task, self.finding.program)], LOOK_SECONDS)[0]
        self.evidence.notes["side"] = report.notes.get("side", f"not run: {_failure(report)}")

    def bisect(self) -> None:
        """PyTorch's bisector, in a process of its own."""
        evidence = self.evidence
        if cannot := self.why_no_bisector():
            evidence.notes["bisector"] = f"not run: {cannot}"
            return
        what = (self.finding.program, self.finding.signature, BISECT_SECONDS)
        limit = BISECT_SECONDS + LOOK_SECONDS  # the run that goes on when the time is up ends first
        with Pool(1, [self.subject.device], limit, self.scratch, fresh=True) as own:
            report = self.results(own, [own.submit(run_bisector, self.task, what)], limit)[0]
        evidence.found |= report.notes
        evidence.notes["bisector"] = report.notes.get("bisector", f"failed: {_failure(report)}")

    def why_no_bisector(self) -> str:
        """Why the bisector cannot run; "" where it can."""
        if self.subject.backend not in list(STAGES)[1:]:
            return f"{self.subject.backend} is no stage of torch.compile"
        if self.task.place.reference.device != self.subject.device:
            return "the two sides are on different devices"
        route = parse(self.finding.program).route.name
        if not ROUTES[route].torch_compile:
            return f"route {route} does not go through torch.compile"
        if self.finding.signature.verdict in ("crashes", "hangs"):
            return "the program takes its process with it"
        return NO_TIME if self.expired() else ""


def _failure(report: Report) -> str:
    """Why a closer look brought nothing: it did not run, or its worker died; else ""."""
    return report.rejected or (report.verdicts[0].detail if report.verdicts else "")
