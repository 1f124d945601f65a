"""One finding under diagnosis: runs the experiments, at the cheapest stage that reproduces the finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from pathlib import Path

from fuzzer.diagnosis.ablation import STAGES, Ablation, outcome_text, stages
from fuzzer.diagnosis.dissect import compile_only, describe_and_decide, describe_difference, run_bisector
from fuzzer.diagnosis.evidence import Evidence
from fuzzer.diagnosis.side import told_side
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Finding, without_paths
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.text import parse, show
from fuzzer.ledger.diagnosed import NO_TIME, TOO_LONG
from fuzzer.trial.tasks import examine
from fuzzer.trial.verify import ask, matching
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

# Wall seconds for each part. On a free core a program takes 0.2 to 0.5 s at a stage and 2 to 5 s for a full compile,
# and a campaign runs beside: 40 variants at a stage; a closer look at one full compile; 20 runs of the bisector (5
# backends, 11 subsystems, a few halvings) at a stage.
VARIANT_SECONDS, LOOK_SECONDS, BISECT_SECONDS = 180.0, 120.0, 40.0
# Seconds that the experiments of a diagnosis may cost two quiet cores: a lower bound of their wall time. With importing
# torch, two pools that start (4 s each) and a first full compile it is over in 60 s (docs/measurements.md).
ALLOWANCE, QUIET_CORES = 36.0, 2
_Asked = tuple[Callable[[Task, str], Report], Task, Program]


class Case:
    """One finding under diagnosis.

    task   runs the program with a full compile, where it was found;  at   the same at the cheapest stage that
           reproduces the finding.
    """

    def __init__(self, finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool]):
        self.finding, self.task, self.pool, self.scratch, self.expired = finding, task, pool, scratch, expired
        self.subject, self.at = task.place.subject, task
        self.evidence = Evidence(finding)
        self.program = self.evidence.program
        self.experiments, self.cpu = 0, 0.0  # programs run, and the CPU seconds of all together
        self.quiet = 0.0  # the seconds that these take where nothing else runs

    def run_all(self, asked: Sequence[_Asked], seconds: float) -> list[Report]:
        """The Report of each function on its program, run on all workers; those that take longer are given up."""
        if over := self.over():
            return [Report("", rejected=over) for _ in asked]
        return self.results(self.pool, [ask(self.pool, *one) for one in asked], seconds)

    def results(self, pool: Pool, futures: list[Future[Report]], seconds: float) -> list[Report]:
        began = time.monotonic()
        late, done = set(futures), dict[Future[Report], Report]()
        while late and time.monotonic() < began + seconds and not self.over(self.cost(pool, done.values(), began)):
            ended, late = wait(late, timeout=min(seconds, 0.5), return_when=FIRST_COMPLETED)
            done |= {future: pool.result(future, self.task) for future in ended}
        pool.abandon(late)
        self.quiet += self.cost(pool, done.values(), began)
        reason = self.over() or f"no answer in {seconds:.0f} s"
        self.experiments += len(done)
        self.cpu += sum(report.seconds.get("cpu", 0.0) for report in done.values())
        return [done.get(future, Report("", rejected=reason)) for future in futures]

    def cost(self, pool: Pool, reports: Collection[Report], began: float) -> float:
        """The seconds that two quiet cores need at least for these runs; wall time where programs die, and report no
        CPU time."""
        cpu = [report.seconds.get("cpu", 0.0) for report in reports]
        deaths = {"crashes", "hangs"} & {self.finding.signature.verdict, *(report.verdict for report in reports)}
        least = time.monotonic() - began if deaths else 0.0
        return max(sum(cpu) / min(pool.workers, QUIET_CORES), *cpu, least, 0.0)

    def over(self, beside: float = 0.0) -> str:
        """Why nothing more may run: the campaign's time is up, or the diagnosis' own, with `beside` for what runs next;
        else ""."""
        if self.expired():
            return NO_TIME
        return TOO_LONG.format(seconds=ALLOWANCE) if self.quiet + beside >= ALLOWANCE else ""

    # ------------------------------------------------------------ variants

    def run_ablations(self, variants: Sequence[Ablation]) -> dict[str, bool]:
        """Run variants, equal ones once, and note each one's class in its table. Gives by name whether each reproduces
        the finding's very signature."""
        own, tables = self.finding.signature, self.evidence.tables
        if not self.outputs_differ():
            variants = [replace(c, skipped=c.skipped or _SPOILT) if c.brings else c for c in variants]
        asked = {c.run: (examine, c.task, c.program) for c in variants if not c.skipped}
        reports = dict(zip(asked, self.run_all(list(asked.values()), VARIANT_SECONDS), strict=True))
        same = {}
        for c in variants:
            report = None if c.skipped else reports[c.run]
            same[c.name] = report is not None and matching(report, own) is not None
            gone = c.brings and report is not None and _outputs_agree(report)
            told = without_paths(outcome_text(report, own.verdict, gone)) if report else c.skipped
            tables[c.table][c.name] = told
            if c.table == "subset" and same[c.name]:
                self.evidence.sufficient_settings.append(c.name)
        return same

    def outputs_differ(self) -> bool:
        """Whether a wrong tensor is an output and not a gradient."""
        names = self.evidence.found.get("tensors", "").split(", ")
        return any(name and not name.endswith(".grad") for name in names)

    def run_stages(self) -> None:
        """The stages; what is asked from now on is asked at the first of those from which on all show the finding."""
        variants = list(stages(self.program, self.task))
        same = self.run_ablations(variants)
        for c in reversed(variants):
            if self.evidence.tables["stage"][c.name].startswith("not run"):
                continue
            if not same[c.name]:
                break
            self.at = c.task
        if variants:
            self.evidence.tables["stage"][self.subject.backend] = self.finding.signature.verdict
            self.evidence.asked_at = self.at.place.subject.backend

    def prove(self, change: Ablation) -> None:
        """Repeat a change that is the cause at the stage with a full compile; only that result counts."""
        if self.at == self.task or self.over():
            return
        table = self.evidence.tables[change.table]
        before = table[change.name]
        self.run_ablations([change])
        if table[change.name].startswith("not run"):
            table[change.name] = before
        else:
            self.evidence.proved[change.name] = table[change.name]

    # ------------------------------------------------------------ closer looks

    def describe(self) -> None:
        """The shape of the error, here and in the original program; graphs and code; the side that is wrong."""
        evidence, finding = self.evidence, self.finding
        asked: list[_Asked] = [(describe_and_decide, self.task, self.program)]
        if finding.original != finding.program:  # larger, and only its picture is wanted
            asked.append((describe_difference, self.at, parse(finding.original)))
        if self.subject.backend in list(STAGES)[1:-1]:  # inductor gets the graph that these backends run
            seen_by = Place(self.task.place.reference, Subject("inductor:graph", self.subject.device))
            asked.append((describe_difference, replace(self.task, place=seen_by), self.program))
        here, *others = self.run_all(asked, LOOK_SECONDS)
        before = others[0] if finding.original != finding.program else here
        graphs = {k: v for r in others[-1:] for k, v in r.files.items() if k.endswith("_graph.py") and r is not before}
        died = _failure(here)
        files = self.run_all([(compile_only, self.task, self.program)], LOOK_SECONDS)[0].files if died else here.files
        evidence.files |= files | graphs | ({"stderr.txt": here.stderr} if here.stderr else {})
        evidence.found |= here.notes
        evidence.note_difference(here.notes, died, before.notes, _failure(before) or before.notes.get("outcome", ""))
        side = told_side(finding, here.notes.get("raised", ""), evidence.notes.get("memcheck", ""))
        evidence.notes["side"] = side or here.notes.get("side", f"undecided: not run: {died or 'it raised'}")

    def bisect(self) -> None:
        """PyTorch's bisector, in a process of its own, at the stage."""
        evidence = self.evidence
        if cannot := self.why_no_bisector():
            evidence.notes["bisector"] = f"not run: {cannot}"
            return
        seconds = min(BISECT_SECONDS, ALLOWANCE - self.quiet)
        what = (show(self.program), self.finding.signature, seconds)
        limit = seconds + LOOK_SECONDS  # the run that goes on when the time is up ends first
        with Pool(1, [self.subject.device], limit, self.scratch, fresh=True) as own:
            report = self.results(own, [own.submit(run_bisector, self.bisected(), what)], limit)[0]
        evidence.found |= report.notes
        evidence.notes["bisector"] = report.notes.get("bisector", f"failed: {_failure(report)}")

    def bisected(self) -> Task:
        """The bisector's task; it tries the backends before that one by itself."""
        return self.at if self.at.place.subject.stage else self.task

    def why_no_bisector(self) -> str:
        """Why the bisector cannot run; "" where it can."""
        if self.subject.backend not in list(STAGES)[1:]:
            return f"{self.subject.backend} is no stage of torch.compile"
        if self.task.place.reference.device != self.subject.device:
            return "the two sides are on different devices"
        route = self.program.route.name
        if not ROUTES[route].torch_compile:
            return f"route {route} does not go through torch.compile"
        if self.finding.signature.verdict in ("crashes", "hangs"):
            return "the program takes its process with it"
        if self.at.place.subject.backend in list(STAGES)[:2]:
            return f"it has nothing to halve at the stage {self.at.place.subject.backend}"
        return self.over()


_SPOILT = "not run: only gradients differ, and without it none is right"


def _outputs_agree(report: Report) -> bool:
    """Whether a program ran to its end with all outputs right."""
    ended = report.verdict not in ("crashes", "hangs", "raises")
    return ended and not any(v.signature.direction == "forward" for v in report.verdicts)


def _failure(report: Report) -> str:
    """Why a closer look gave no result: it did not run, or its worker died; else ""."""
    return report.rejected or (report.verdicts[0].detail if report.verdicts else "")
