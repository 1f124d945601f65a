"""Several candidates for one program, of which that is compiled whose trace is rarest. In the worker."""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass, replace

from fuzzer.coverage.features import feature_ids
from fuzzer.generation.knobs import USUAL, Knobs
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.guidance.mutate import mutate
from fuzzer.guidance.novelty import FeatureCounts, novelty, trace_features
from fuzzer.judgement.trial import Trial
from fuzzer.language.ops import OPS
from fuzzer.language.program import Program, Region
from fuzzer.language.text import parse, show
from fuzzer.rounding.replay import Unreplayable
from fuzzer.trial.draw import draw_program, program_task, write_down
from fuzzer.trial.exercise import trial_words
from fuzzer.trial.pipeline import REFUSED, is_detectable, record_reference, refusal, report_program, report_trial
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.usage import cpu_seconds

CANDIDATES = 4  # measured: docs/guidance.md


@dataclass(frozen=True)
class CandidateSpec:
    """What a candidate is made of: a drawing with these knobs or, where there is a parent, what this mutator makes of
    the parent's text and a donor's. weight: of its novelty.  cost: `CostModel.coefficients`."""

    knobs: Knobs = USUAL
    mutator: str = ""
    parent: str = ""
    donor: str = ""
    weight: float = 1.0
    cost: tuple[float, float] = (1.0, 0.0)


@dataclass(frozen=True)
class CandidateStats:
    """A candidate before any was compiled: CPU seconds, and the ops in it; of one that was refused in drawing, the op
    at fault."""

    seconds: float
    ops: tuple[str, ...]
    refused: bool = False


@dataclass(frozen=True)
class Candidate:
    """A candidate that was recorded on the reference side: its trial and novelty, or the Report of its refusal."""

    number: int
    trial: Trial | None
    score: float | None
    stats: CandidateStats
    refused: Report = Report("")


@dataclass(frozen=True)
class Choice(Report):
    """The Report of a program that was chosen among candidates.

    scores   the novelty of each candidate; None where torch refused it.  stats: what each took.
    """

    scores: tuple[float | None, ...] = ()
    stats: tuple[CandidateStats, ...] = ()


def explore_most_novel(task: Task, what: tuple[int, bytes, tuple[CandidateSpec, ...]]) -> Choice:
    """Make several candidates for program number n; compile the rarest in whose gradients a fault can show.

    what   the number, how many programs showed each feature (`FeatureCounts`), and the specs. The Report
           depends on these and the task alone.

    Candidates run on the CPU, where they were drawn: their traces differ little from those of a GPU, which loads a
    kernel for each operation that it has not met.
    """
    index, counts, specs = what
    task = program_task(task, index)
    seen, started = FeatureCounts(counts), time.perf_counter()
    found = [record_candidate(task, index, number, seen, spec, near=True) for number, spec in enumerate(specs)]
    ran = sorted((c for c in found if c.trial), key=lambda c: (-(c.score or 0.0) * specs[c.number].weight, c.number))
    if not ran:
        return _with_candidates(found, found[0].refused)
    dull = next((n for n, c in enumerate(ran) if c.trial and _is_detectable(c.trial)), len(ran))
    first = dull % len(ran)
    for candidate in ran[first:] + ran[:first]:
        chosen = _on_reference_device(candidate, task)
        if chosen.trial:
            return _compile_candidate(chosen, found, dull, task, started)
    return _with_candidates(found, replace(chosen.refused, candidate=chosen.number))


def _with_candidates(found: list[Candidate], report: Report) -> Choice:
    """The Report with what became of all candidates."""
    return Choice(**vars(report), scores=tuple(c.score for c in found), stats=tuple(c.stats for c in found))


def _compile_candidate(chosen: Candidate, found: list[Candidate], dull: int, task: Task, started: float) -> Choice:
    """The Report of the candidate that was chosen, of those found since `started`; so many were dull."""
    spent = time.perf_counter() - started
    assert chosen.trial
    told = report_trial(chosen.trial, task, journal())
    told.seconds["generate"] = spent - told.seconds.get("reference", 0.0)
    return _with_candidates(found, replace(told, candidate=chosen.number, redrawn=dull))


def _on_reference_device(candidate: Candidate, task: Task) -> Candidate:
    """A candidate that ran, recorded on the reference side's own device, or its refusal there."""
    assert candidate.trial
    if candidate.trial.place == task.place:
        return candidate
    program = candidate.trial.program
    try:
        return replace(candidate, trial=record_reference(program, task, journal()))
    except REFUSED as error:
        return replace(candidate, trial=None, refused=refusal(show(program), error))


def _on_cpu(task: Task) -> Task:
    """The task with its reference side on the CPU."""
    reference = replace(task.place.reference, device="cpu")
    return replace(task, place=replace(task.place, reference=reference))


def record_candidate(
    task: Task, index: int, number: int, seen: FeatureCounts, spec: CandidateSpec, near: bool = False
) -> Candidate:
    """The n-th candidate of a program, and how rare its trace is.  near: it runs on the CPU."""
    log, started = journal(), cpu_seconds()
    log.begin(f"# program {index} of seed {task.seed}, not drawn yet")
    ops: tuple[str, ...] = ()
    try:
        program = _candidate_program(task, index, number, spec)
        ops = tuple(dict.fromkeys(node.op for node in program.nodes))
        trial = record_reference(program, _on_cpu(task) if near else task, log)
        shown = trace_features(feature_ids(trial_words(trial)))
        score = novelty(shown, seen) / (spec.cost[0] + spec.cost[1] * len(shown))
    except REFUSED as error:
        named = str(error).partition(":")[0]
        ops = ops or (named,) * (named in OPS)
        return Candidate(number, None, None, CandidateStats(cpu_seconds() - started, ops, True), refusal("", error))
    return Candidate(number, trial, score, CandidateStats(cpu_seconds() - started, ops))


def _candidate_program(task: Task, index: int, number: int, spec: CandidateSpec) -> Program:
    """The n-th candidate of a program. Raises Rejected."""
    if spec.parent:
        return _mutant(task, f"{index}/{number}", spec)
    return draw_program(task, index, number, spec.knobs, write_down)


def _mutant(task: Task, name: str, spec: CandidateSpec) -> Program:
    """What the spec's mutator makes of parent and donor, within the task's domain. Raises Rejected."""
    rng, device = random.Random(f"{task.seed}/{name}/mutant"), task.place.subject.device.split(":")[0]
    parent, donor = parse(spec.parent), parse(spec.donor)
    found = mutate(parent, rng, donor, device, spec.mutator, functools.partial(_in_domain, task))
    return replace(found, settings=tuple(sorted({**dict(found.settings), **dict(task.fixed)}.items())))


_EXTRA_NODES = 2  # nodes that a mutant may have beyond what is drawn


def _in_domain(task: Task, program: Program) -> bool:
    """Whether the program holds nothing that those of the task do not: routes, ops, dtypes, what devices differ in."""
    if len(program.nodes) > task.limits.max_nodes + _EXTRA_NODES or program.route.name not in task.routes:
        return False
    floating = {leaf.dtype for leaf in program.leaves if leaf.type.differentiable}
    ops = vocabulary(task.limits, task.ops)
    known = all(node.op in ops for node in program.nodes) and floating <= set(task.limits.dtypes)
    regions = any(isinstance(statement, Region) for statement in program.body)
    own = any(OPS[node.op].random or not OPS[node.op].portable for node in program.nodes)
    one_device = task.place.subject.device.split(":")[0] == task.place.reference.device.split(":")[0]
    return known and (one_device or not (regions or own))


def _is_detectable(trial: Trial) -> bool:
    try:
        return is_detectable(trial, journal())
    except Unreplayable:
        return False


@dataclass(frozen=True)
class LoggedChoice:
    """A program that a campaign compiled: by its number, its candidate's and the knobs it was drawn with; a mutant, and
    one whose worker died, by its text. stage: at which it was judged; "" where it was built."""

    index: int
    candidate: int = 0
    knobs: Knobs = USUAL
    text: str = ""
    stage: str = ""


def explore_logged(task: Task, chosen: LoggedChoice) -> Report:
    """The program that an earlier campaign chose."""
    try:
        task, again = program_task(task, chosen.index), chosen.candidate
        task = replace(task, place=task.place.at(chosen.stage) if chosen.stage else task.place)
        program = parse(chosen.text) if chosen.text else draw_program(task, chosen.index, again, chosen.knobs)
    except REFUSED as error:
        return replace(refusal(chosen.text, error), candidate=chosen.candidate)
    return replace(report_program(program, task, journal()), candidate=chosen.candidate)
