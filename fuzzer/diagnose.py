"""After a verdict: does it show in fresh processes, and what is at fault? Every piece has a time limit and says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fuzzer.ablate import LEFT, STAGES, Change, changes, named, told, without
from fuzzer.dissect import bisected, dissect, glance
from fuzzer.execution.messages import Place, Report, Subject
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine
from fuzzer.generated import SHARED, aten_ops, mark_code, mark_graph, marked_lines, node_op
from fuzzer.memcheck import memcheck
from fuzzer.private import GRAPHS
from fuzzer.program import Program
from fuzzer.text import parse
from fuzzer.verdict import Finding, Signature, Verdict, without_paths
from minimizer.same import follows

RUNS = 3  # fresh processes; all must agree before anything is stored
# Wall seconds of a piece. A compile takes 2 to 5 s, and a campaign goes on beside: 20 variants of one program, 20 runs
# of the bisector (4 backends, 11 subsystems, a few halvings), one run under a tool that slows it down tenfold.
VARIANT_SECONDS, LOOK_SECONDS, BISECT_SECONDS = 300.0, 120.0, 150.0
MOST_SUSPECTS = 6  # overloads that are left to ATen one by one, where the bisector names none
NOT_YET = "not run: no time was left; `backfuzz diagnose` runs it"


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


def diagnose(
    finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool] = lambda: False
) -> Finding:
    """The finding with stages, ablation, diagnosis and attachments. Pieces that `expired` leaves no time for say so.

    task   the finding's own place;  scratch   a folder for the bisector's process.
    """
    case = Case(finding, replace(task, fixed=(), fresh=True), pool, scratch, expired)
    case.vary(changes(case.program, case.task))
    case.look()
    case.bisect()
    case.vary(without(case.program, case.task, case.suspects()))
    case.conclude()
    case.notes["place"] = f"torch {torch.__version__}, {task.place.subject} against {task.place.reference}"
    notes = {name: without_paths(case.notes[name]) for name in FIELDS}
    files = {name: without_paths(text) for name, text in case.files.items()}
    return replace(finding, stages=case.tables["stage"], ablation=case.tables["ablation"], diagnosis=notes,
                   attachments=files)  # fmt: skip


PICTURE = ("tensors", "elements", "ratio")
# What a diagnosis holds, in the order in which a person asks.
FIELDS = ("culprit", "stage", "graph", *PICTURE, "original", "settings", "vanishes", "bisector",
          "suspect", "memcheck", "place")  # fmt: skip


class Case:
    """One finding under diagnosis: what was run so far, and what it told."""

    def __init__(self, finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool]):
        self.finding, self.task, self.pool, self.scratch, self.expired = finding, task, pool, scratch, expired
        self.program: Program = parse(finding.program)
        self.tables: dict[str, dict[str, str]] = {"stage": {}, "ablation": {}, "subset": {}}
        self.shows: dict[tuple[str, str], bool] = {}  # by a variant's table and name: does it show the signature
        self.notes: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.found: dict[str, str] = {}  # notes of workers
        self.subject = task.place.subject

    def ask(self, function: Callable[..., Report], asked: Sequence[tuple[Task, Any]], seconds: float) -> list[Report]:
        """The Reports of function(task, what), run on all workers; what has not ended in time is given up."""
        if self.expired():
            return [Report("", rejected=NOT_YET.removeprefix("not run: ")) for _ in asked]
        futures = [self.pool.submit(function, task, what) for task, what in asked]
        _, late = wait(futures, timeout=seconds)
        self.pool.abandon(late)
        out = Report("", rejected=f"no answer in {seconds:.0f} s")
        return [out if f in late else self.pool.result(f, task) for f, (task, _) in zip(futures, asked, strict=True)]

    def vary(self, variants: Sequence[Change]) -> None:
        """Run variants, each different text and task once, and tell each one's class in its table."""
        unique = list({(c.task, c.text): None for c in variants if not c.told})
        reports = dict(zip(unique, self.ask(examine, unique, VARIANT_SECONDS), strict=True))
        for c in variants:
            report = None if c.told else reports[c.task, c.text]
            own = self.finding.signature.verdict
            self.tables[c.table][c.name] = without_paths(told(report, own)) if report else c.told
            self.shows[c.table, c.name] = report is not None and matching(report, self.finding.signature) is not None
        if variants and variants[0].table == "stage":
            self.tables["stage"][self.subject.backend] = self.finding.signature.verdict

    def look(self) -> None:
        """The shape of the error, here and in the original program; graphs and code."""
        asked = [(self.task, self.finding.program), (self.task, self.finding.original)]
        if self.subject.backend in STAGES[1:-1]:  # inductor gets the graph that these backends run
            seen_by = Place(self.task.place.reference, Subject("inductor", self.subject.device))
            asked.append((replace(self.task, place=seen_by), self.finding.program))
        here, before, *inductor = self.ask(dissect, asked, LOOK_SECONDS)
        self.found = here.notes
        self.files = {**here.files, **{k: v for r in inductor for k, v in r.files.items() if k.endswith("_graph.py")}}
        died = here.rejected or (here.verdicts[0].detail if here.verdicts else "")
        if died:
            self.files = self.ask(glance, asked[:1], LOOK_SECONDS)[0].files
        missing = f"none: {died or self.finding.detail.partition(':')[0]}"
        for name in PICTURE:
            self.notes[name] = here.notes.get(name, missing)
        if self.finding.signature.oracle in ("metadata_agrees", "inputs_untouched"):
            self.notes["tensors"] = self.finding.detail.partition(" ")[0]
        parts = [before.notes[name] for name in PICTURE if name in before.notes]
        same = self.finding.original == self.finding.program
        unseen = before.rejected or self.finding.before or "no tensor of it lies outside its floor"
        self.notes["original"] = "it is the minimal program" if same else ("; ".join(parts) or f"none: {unseen}")

    def bisect(self) -> None:
        """PyTorch's bisector, in a process of its own."""
        route, verdict = self.program.route.name, self.finding.signature.verdict
        cannot = (
            f"{self.subject.backend} is no stage of torch.compile" if self.subject.backend not in STAGES[1:] else
            "the two sides are on different devices" if self.task.place.reference.device != self.subject.device else
            f"route {route} does not go through torch.compile" if route == "aoti" else
            "the program takes its process with it" if verdict in ("crashes", "hangs") else
            NOT_YET.removeprefix("not run: ") if self.expired() else ""
        )  # fmt: skip
        if cannot:
            self.notes["bisector"] = f"not run: {cannot}"
            return
        what = (self.finding.program, self.finding.signature, BISECT_SECONDS)
        limit = BISECT_SECONDS + LOOK_SECONDS  # the run that goes on when the time is up ends first
        with Pool(1, [self.subject.device], limit, self.scratch, fresh=True) as own:
            report = own.result(own.submit(bisected, self.task, what), self.task)
        self.found |= report.notes
        died = report.rejected or (report.verdicts[0].detail if report.verdicts else "")
        self.notes["bisector"] = report.notes.get("bisector", f"failed: {died}")

    def graph(self) -> tuple[str, str]:
        """The graph at fault, as far as is known: its file's name and text."""
        kind = self.finding.signature.direction
        names = [f"{self.direction()}_graph.py", f"{kind}_graph.py", "joint_graph.py", "forward_graph.py"]
        return next(((name, self.files[name]) for name in names if name in self.files), ("", ""))

    def direction(self) -> str:
        """forward or backward where leaving one of them uncompiled decides it; else ""."""
        states = {g.split()[0]: self.tables["ablation"].get(f"{g} uncompiled") == "agree" for g in GRAPHS}
        return next((g for g, gone in states.items() if gone), "") if sum(states.values()) == 1 else ""

    def suspects(self) -> list[str]:
        """The overloads to leave to ATen: the one that the bisector accuses, or all of the graph at fault."""
        if self.subject.backend not in STAGES[2:]:
            return []
        accused = self.accused()
        return [accused] if accused else aten_ops(self.graph()[1])[:MOST_SUSPECTS]

    def accused(self) -> str:
        """The overload that the bisector ended on: of the node that it names, or whose decomposition it names."""
        info, subsystem = self.found.get("info", ""), self.found.get("subsystem")
        if subsystem == "lowerings":
            return node_op(self.files.values(), info)
        found = re.search(r"op='aten\.(\w+)', overload='(\w+)'", info) if subsystem == "decomposition" else None
        return f"aten.{found[1]}.{found[2]}" if found else ""

    # ------------------------------------------------------------ what all of that says, a line each

    def conclude(self) -> None:
        gone = [name for name, seen in self.tables["ablation"].items() if seen == "agree"]
        culprits = [name.removesuffix(LEFT) for name in gone if name.endswith(LEFT)]
        self.notes |= {
            "stage": self.stage(),
            "graph": self.which_graph(),
            "settings": self.smallest(),
            "vanishes": ", ".join(gone) or f"with none of {len(self.tables['ablation'])} single changes",
            "suspect": self.suspect(culprits),
        }
        self.notes["culprit"] = self.culprit(culprits)
        self.notes["memcheck"] = NOT_YET if self.expired() else memcheck(self.finding)

    def first(self) -> str:
        """The first stage that differs; "" where there are no stages."""
        ran = {name: seen for name, seen in self.tables["stage"].items() if not seen.startswith("not run")}
        return next((name for name, seen in ran.items() if seen != "agree"), "")

    def stage(self) -> str:
        if not self.first():
            return f"none: {self.task.place.reference} against {self.subject} goes through no compiler"
        return f"{self.first()} is the first that differs"

    def which_graph(self) -> str:
        where = self.finding.signature.direction or "unknown"
        if self.first() != "inductor":
            return f"{where}: that is where it shows"
        if "joint_graph.py" in self.files:
            return f"joint: the route compiles one graph for both directions; it shows in the {where}"
        if decided := self.direction():
            return f"{decided}: with this graph uncompiled the difference is gone, with the other it is not"
        return f"{where}: that is where it shows; leaving one graph uncompiled does not decide it"

    def smallest(self) -> str:
        """The smallest part of the program's settings under which the signature shows."""
        own = self.program.settings
        enough = next((n for (table, n), shows in self.shows.items() if table == "subset" and shows), named(own))
        return f"appears under {enough}" + (f" ({len(own)} tried)" if own else "")

    def suspect(self, culprits: list[str]) -> str:
        """Mark the suspicious lines of graph and code, where inductor is at fault; tells the first of each."""
        if self.first() != "inductor":
            return "none: the difference is there before inductor writes code"
        name, graph = self.graph()
        if not graph:
            return "none: no graph reached inductor"
        told = re.findall(r"is \w+(\[[\d, ]*\])", self.finding.detail)  # of a tensor whose kind differs
        shapes = self.found.get("shapes", "").split() or [shape.replace(" ", "") for shape in told[:1]]
        code = name.replace("_graph", "_code")
        if code in self.files:
            self.files[code] = mark_code(self.files[code], graph, shapes)
        self.files[name] = mark_graph(graph, [*culprits, self.found.get("info", "")], shapes)
        lines = [f"{n} {line}" for n in (name, code) for line in marked_lines(self.files.get(n, ""))[:1]]
        return "; ".join(lines) or f"none stands out in {name}"

    def culprit(self, culprits: list[str]) -> str:
        """The name of what is at fault, as far as it was found."""
        subsystem, info, first = self.found.get("subsystem", ""), self.found.get("info", ""), self.first()
        shared = [line for line in self.files.get(self.graph()[0], "").splitlines() if SHARED in line]
        if shared:
            node = shared[0].partition(":")[0].strip()
            return f"the layout of {node} ({node_op(shared, node)}): {SHARED}"
        if first == "eager":
            return "eager itself lies outside what rounding explains"
        if subsystem == "decomposition":
            return f"the decomposition of {self.accused() or info}, which disagrees with ATen's own kernel"
        if subsystem.endswith("_passes"):
            return f"inductor's pass {info} ({subsystem})"
        if culprits:
            return f"inductor's code for {' or '.join(culprits)}: left to ATen, the difference is gone"
        if subsystem:
            return f"{subsystem} {info if info != subsystem else ''}".strip()
        return f"not found beyond the stage {first}" if first else "not found: no compiler is involved"
