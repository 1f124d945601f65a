"""After a verdict: does it show in fresh processes, at which stage does it appear, which setting makes it vanish?"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzzer.execution.messages import Place, Report, Subject
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine
from fuzzer.program import Program, Value
from fuzzer.routes import ROUTES
from fuzzer.settings import exists
from fuzzer.text import parse, show
from fuzzer.verdict import Signature, Verdict
from minimizer.same import follows

# torch.compile's pipeline, each adding one stage to the one before: tracing, decomposition and partition, lowering.
STAGES = ("aot_eager", "aot_eager_decomp_partition", "inductor")
# Single changes worth knowing for every finding, beside undoing the program's own settings.
ABLATIONS: tuple[tuple[str, Value], ...] = (
    ("inductor.max_fusion_size", 1),
    ("inductor.pattern_matcher", False),
    ("inductor.emulate_precision_casts", True),
    ("inductor.layout_optimization", False),
)
RUNS = 3  # fresh processes; all must agree before anything is stored


@dataclass
class Diagnosis:
    """What was learned of a verified program."""

    reproduced: int = 0
    runs: int = 0
    verdict: Verdict | None = None
    stages: dict[str, str] = field(default_factory=dict)
    ablation: dict[str, str] = field(default_factory=dict)


def examine_all(pool: Pool, asked: Sequence[tuple[Task, str]]) -> list[Report]:
    """The Reports of several (task, program text), run on all workers, in order."""
    futures: list[Future[Report]] = [pool.submit(examine, task, text) for task, text in asked]
    return [pool.result(future, task) for future, (task, _) in zip(futures, asked, strict=True)]


def matching(report: Report, signature: Signature) -> Verdict | None:
    """The report's verdict that is the same finding, if any."""
    return next((v for v in report.verdicts if follows(signature, v.signature)), None)


def verify(text: str, task: Task, signature: Signature, workers: int, devices: list[str], scratch: Path) -> Diagnosis:
    """Run the program in RUNS fresh processes with the compiler's caches off."""
    fresh = replace(task, fresh=True)
    with Pool(min(workers, RUNS), devices, scratch=scratch, fresh=True) as pool:
        reports = examine_all(pool, [(fresh, text)] * RUNS)
    found = [v for report in reports if (v := matching(report, signature)) is not None]
    return Diagnosis(len(found), RUNS, found[0] if found else None)


def diagnose(text: str, task: Task, pool: Pool, known: Diagnosis) -> Diagnosis:
    """Stage and setting ablation of a verified program."""
    program = parse(text)
    plans: list[tuple[str, str, Task, str]] = []
    subject = task.place.subject
    if subject.backend in STAGES:
        only = ROUTES[program.route.name].backends
        for backend in STAGES[: STAGES.index(subject.backend)]:
            if only and backend not in only:
                known.stages[backend] = f"not run: route {program.route.name} is for {only[0]} alone"
                continue
            place = Place(task.place.reference, Subject(backend, subject.device))
            plans.append(("stage", backend, replace(task, place=place), text))
    if subject.device != "cpu" and task.place.reference.device == subject.device:  # a person would rather run that
        there = Place(Subject(task.place.reference.backend, "cpu"), Subject(subject.backend, "cpu"))
        plans.append(("ablation", "device=cpu", replace(task, place=there), text))
    for name, changed in _changes(program):
        plans.append(("ablation", name, task, show(changed)))
    reports = examine_all(pool, [(replace(t, fresh=True), changed) for _, _, t, changed in plans])
    for (kind, name, _, _), report in zip(plans, reports, strict=True):
        (known.stages if kind == "stage" else known.ablation)[name] = report.verdict
    if subject.backend in STAGES and known.verdict is not None:
        known.stages = {"eager": "agree", **known.stages, subject.backend: known.verdict.signature.verdict}
    return known


def _changes(program: Program) -> list[tuple[str, Program]]:
    """The program under single changes of its settings, labelled."""
    own = dict(program.settings)
    found = [
        (f"{name} at its default", replace(program, settings=tuple(s for s in program.settings if s[0] != name)))
        for name in own
    ]
    for name, value in ABLATIONS:
        if own.get(name) != value and exists(name):
            found.append((f"{name}={value}", replace(program, settings=tuple(sorted({**own, name: value}.items())))))
    return found
