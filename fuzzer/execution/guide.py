"""What programs exercise; of several drawn ones, compile that whose trace is rarest. Entry points for the pool."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from dataclasses import dataclass, replace

from fuzzer.execution import worker
from fuzzer.execution.lines import recorded
from fuzzer.execution.messages import Report, Trial, Tried
from fuzzer.execution.usage import cpu_seconds
from fuzzer.execution.watch import watched
from fuzzer.execution.worker import (
    REDRAWS,
    REFUSED,
    Task,
    begin,
    draw,
    end,
    is_heard,
    observe,
    refusal,
    sampled,
    settled,
    sketch,
    tidy,
)
from fuzzer.features import LINES, Words, hashed, of_trace
from fuzzer.frontier import Seen, before, novelty
from fuzzer.generate import Rejected
from fuzzer.knobs import USUAL, Knobs
from fuzzer.mutate import mutate
from fuzzer.ops import OPS
from fuzzer.program import Cotangent, Program, Region, contiguous
from fuzzer.routes import unnoted
from fuzzer.settings import INFERENCE
from fuzzer.text import parse, show
from fuzzer.trace import Recorder, Trace, Unreplayable
from fuzzer.vocabulary import vocabulary

CANDIDATES = 4  # measured: docs/guidance.md


# ---------------------------------------------------------------- what a program exercises


def with_seen_cotangents(program: Program) -> Program:
    """The program with its cotangents as the compiler sees them: where AOTAutograd copies them, contiguous."""
    if program.route.name in INFERENCE:
        return program

    def plain(c: Cotangent | None) -> Cotangent | None:
        return c and replace(c, stride=contiguous(c.shape), offset=0)

    return replace(program, outputs=tuple(replace(o, cotangent=plain(o.cotangent)) for o in program.outputs))


def exercised(trial: Trial) -> Words:
    """What a trial's program exercises, by family of `features`."""
    return of_trace(as_compiled(trial))


def as_compiled(trial: Trial) -> Trace:
    """The trace of a trial's program with its cotangents as the compiler sees them."""
    program, recorder = with_seen_cotangents(trial.program), Recorder()
    if program == trial.program:
        assert trial.trace is not None
        return trial.trace
    observe(program, trial.place.reference, unnoted, recorder)
    return recorder.trace


def completed(trial: Trial, task: Task) -> tuple[Report, Words]:
    """The Report of a trial that was begun, and what its program exercises, compiled too."""
    text, journal = show(trial.program), worker.journal()
    journal.begin(text)
    listen = recorded(task.campaign) if task.lines else contextlib.nullcontext(None)
    with watched(trial.program.route.name, lambda: journal.phase_name) as watch, listen as reached:
        try:
            told = end(trial, task, journal)
        except REFUSED as error:
            return refusal(text, error), {}
    words = {**exercised(trial), **watch.words(), **({LINES[0]: reached.words()} if reached else {})}
    return replace(told, features=hashed(words)), words


def features_of(task: Task, text: str) -> Report:
    """What this program exercises, in words: a file of the Report for each family. Raises ParseError."""
    try:
        told, words = completed(begin(parse(text), task, worker.journal()), task)
    except REFUSED as error:
        return refusal(text, error)
    return replace(told, files={family: "\n".join(sorted(found)) for family, found in words.items()})


# ---------------------------------------------------------------- candidates


@dataclass(frozen=True)
class Offer:
    """What a candidate is made of: a drawing with these knobs or, where there is a parent, what this mutator makes of
    the parent's text and a donor's. weight: of its novelty.  price: what a program takes, as `Price.line` tells."""

    knobs: Knobs = USUAL
    mutator: str = ""
    parent: str = ""
    donor: str = ""
    weight: float = 1.0
    price: tuple[float, float] = (1.0, 0.0)


@dataclass(frozen=True)
class Candidate:
    """A candidate that was recorded on the reference side: its trial and novelty, or the Report of its refusal."""

    number: int
    trial: Trial | None
    score: float | None
    tried: Tried
    refused: Report = Report("")


def explore_rarest(task: Task, what: tuple[int, bytes, tuple[Offer, ...]]) -> Report:
    """Make several candidates for program number n; compile the rarest in whose gradients a fault can show.

    what   the number, how many programs showed each feature (`frontier.Seen`, packed), and the offers. The Report
           depends on these and the task alone.

    Candidates run on the CPU, where they were drawn: their traces differ little from those of a GPU, which loads a
    kernel for each operation that it has not met.
    """
    index, counts, offers = what
    task = sampled(task, index)
    seen, started = Seen(counts), time.perf_counter()
    found = [tried(task, index, number, seen, offer, near=True) for number, offer in enumerate(offers)]
    ran = sorted((c for c in found if c.trial), key=lambda c: (-(c.score or 0.0) * offers[c.number].weight, c.number))
    if not ran:
        return told_of(found, found[0].refused)
    dull = next((n for n, c in enumerate(ran) if c.trial and _heard(c.trial)), len(ran))
    first = dull % len(ran)
    for candidate in ran[first:] + ran[:first]:
        chosen = placed(candidate, task)
        if chosen.trial:
            return compiled(chosen, found, dull, task, started)
    return told_of(found, replace(chosen.refused, candidate=chosen.number))


def explore_heard(task: Task, what: tuple[int, bytes]) -> Report:
    """The program of `worker.explore`, with what it exercises: the first drawing in whose gradients a fault can show.

    what   the number, and how many programs showed each feature: the novelties are told and choose nothing.
    """
    index, counts = what
    task = sampled(task, index)
    seen, started, found = Seen(counts), time.perf_counter(), list[Candidate]()
    while True:
        last = tried(task, index, len(found), seen, Offer())
        found.append(last)
        if last.trial is None:
            return told_of(found, replace(last.refused, candidate=last.number))
        if len(found) > REDRAWS or _heard(last.trial):
            return compiled(last, found, len(found) - 1, task, started)


def told_of(found: list[Candidate], report: Report) -> Report:
    """The Report with what became of all candidates."""
    return replace(report, scores=tuple(c.score for c in found), tried=tuple(c.tried for c in found))


def compiled(chosen: Candidate, found: list[Candidate], dull: int, task: Task, started: float) -> Report:
    """The Report of the candidate that was chosen, of those found since `started`; so many were dull."""
    spent = time.perf_counter() - started
    assert chosen.trial
    told = finished(chosen.trial, task)
    told.seconds["generate"] = spent - told.seconds.get("reference", 0.0)
    tidy(task)
    return told_of(found, replace(told, candidate=chosen.number, redrawn=dull))


def finished(trial: Trial, task: Task) -> Report:
    """The Report of a trial that was only recorded."""
    journal, text = worker.journal(), show(trial.program)
    journal.begin(text)
    try:
        return completed(settled(trial, task, journal), task)[0]
    except REFUSED as error:
        return refusal(text, error)


def placed(candidate: Candidate, task: Task) -> Candidate:
    """A candidate that ran, recorded on the reference side's own device, or its refusal there."""
    assert candidate.trial
    if candidate.trial.place == task.place:
        return candidate
    program = candidate.trial.program
    try:
        return replace(candidate, trial=sketch(program, task, worker.journal()))
    except REFUSED as error:
        return replace(candidate, trial=None, refused=refusal(show(program), error))


def on_cpu(task: Task) -> Task:
    """The task with its reference side on the CPU."""
    reference = replace(task.place.reference, device="cpu")
    return replace(task, place=replace(task.place, reference=reference))


def tried(task: Task, index: int, number: int, seen: Seen, offer: Offer, near: bool = False) -> Candidate:
    """The n-th candidate of a program, and how rare its trace is.  near: it runs on the CPU."""
    journal, started = worker.journal(), cpu_seconds()
    journal.begin(f"# program {index} of seed {task.seed}, not drawn yet")
    ops: tuple[str, ...] = ()
    try:
        program = made(task, index, number, offer)
        ops = tuple(dict.fromkeys(node.op for node in program.nodes))
        trial = sketch(program, on_cpu(task) if near else task, journal)
        shown = before(hashed(exercised(trial)))
        score = novelty(shown, seen) / (offer.price[0] + offer.price[1] * len(shown))
    except (Rejected, *REFUSED) as error:
        named = str(error).partition(":")[0]
        ops = ops or (named,) * (named in OPS)
        return Candidate(number, None, None, Tried(cpu_seconds() - started, ops, True), refusal("", error))
    return Candidate(number, trial, score, Tried(cpu_seconds() - started, ops))


def made(task: Task, index: int, number: int, offer: Offer) -> Program:
    """The n-th candidate of a program. Raises Rejected."""
    return mutant(task, f"{index}/{number}", offer) if offer.parent else draw(task, index, number, offer.knobs)


def mutant(task: Task, name: str, offer: Offer) -> Program:
    """What the offered mutator makes of parent and donor, such as the task's programs are. Raises Rejected."""
    rng, device = random.Random(f"{task.seed}/{name}/mutant"), task.place.subject.device.split(":")[0]
    parent, donor = parse(offer.parent), parse(offer.donor)
    found = mutate(parent, rng, donor, device, offer.mutator, functools.partial(drawable, task))
    return replace(found, settings=tuple(sorted({**dict(found.settings), **dict(task.fixed)}.items())))


GROWN = 2  # nodes that a mutant may have beyond what is drawn


def drawable(task: Task, program: Program) -> bool:
    """Whether the program holds nothing that those of the task do not: routes, ops, dtypes, what devices differ in."""
    if len(program.nodes) > task.limits.max_nodes + GROWN or program.route.name not in task.routes:
        return False
    floating = {leaf.dtype for leaf in program.leaves if leaf.type.differentiable}
    ops = vocabulary(task.limits, task.ops)
    known = all(node.op in ops for node in program.nodes) and floating <= set(task.limits.dtypes)
    regions = any(isinstance(statement, Region) for statement in program.body)
    own = any(OPS[node.op].random or not OPS[node.op].portable for node in program.nodes)
    one_device = task.place.subject.device.split(":")[0] == task.place.reference.device.split(":")[0]
    return known and (one_device or not (regions or own))


def _heard(trial: Trial) -> bool:
    try:
        return is_heard(trial, worker.journal())
    except Unreplayable:
        return False


@dataclass(frozen=True)
class Chosen:
    """A program that a campaign compiled: by its number, its candidate's and the knobs it was drawn with; a mutant, and
    one whose worker died, by its text."""

    index: int
    candidate: int = 0
    knobs: Knobs = USUAL
    text: str = ""


def explore_again(task: Task, chosen: Chosen) -> Report:
    """The program that an earlier campaign chose."""
    try:
        task, again = sampled(task, chosen.index), chosen.candidate
        program = parse(chosen.text) if chosen.text else draw(task, chosen.index, again, chosen.knobs)
        told, _ = completed(begin(program, task, worker.journal()), task)
    except (Rejected, *REFUSED) as error:
        return replace(refusal(chosen.text, error), candidate=chosen.candidate)
    tidy(task)
    return replace(told, candidate=chosen.candidate)
