"""What programs exercise; of several drawn ones, compile that whose trace is rarest. Entry points for the pool."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from fuzzer.execution import worker
from fuzzer.execution.messages import Report, Trial
from fuzzer.execution.watch import watched
from fuzzer.execution.worker import REDRAWS, REFUSED, Task, begin, draw, end, is_heard, observe, refusal, sampled, tidy
from fuzzer.features import Words, hashed, of_trace
from fuzzer.frontier import Seen, before, novelty
from fuzzer.generate import Rejected
from fuzzer.program import Cotangent, Program, contiguous
from fuzzer.routes import unnoted
from fuzzer.settings import INFERENCE
from fuzzer.text import parse, show
from fuzzer.trace import Recorder, Unreplayable

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
    program, recorder = with_seen_cotangents(trial.program), Recorder()
    if program == trial.program:
        assert trial.trace is not None
        return of_trace(trial.trace)
    observe(program, trial.place.reference, unnoted, recorder)
    return of_trace(recorder.trace)


def completed(trial: Trial, task: Task) -> tuple[Report, Words]:
    """The Report of a trial that was begun, and what its program exercises, compiled too."""
    text, journal = show(trial.program), worker.journal()
    journal.begin(text)
    with watched(trial.program.route.name, lambda: journal.phase_name) as watch:
        try:
            told = end(trial, task, journal)
        except REFUSED as error:
            return refusal(text, error), {}
    words = {**exercised(trial), **watch.words()}
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
class Candidate:
    """One drawing, run on the reference side: its trial and novelty, or the Report of its refusal."""

    number: int
    trial: Trial | None
    score: float | None
    refused: Report = Report("")


def explore_rarest(task: Task, what: tuple[int, bytes], count: int = CANDIDATES) -> Report:
    """Draw program number n of the task's seed in several ways; compile the rarest in whose gradients a fault can show.

    what   the number, and how many programs showed each feature (`frontier.Seen`, packed). The Report depends on these
           and the task alone; `draw(task, number, report.candidate)` is its program.
    """
    index, counts = what
    task = sampled(task, index)
    seen, started = Seen(counts), time.perf_counter()
    found = [drawn(task, index, number, seen) for number in range(count)]
    ran = sorted((c for c in found if c.trial), key=lambda c: (-(c.score or 0.0), c.number))
    if not ran:
        return replace(found[0].refused, scores=tuple(c.score for c in found))
    dull = next((n for n, c in enumerate(ran) if c.trial and _heard(c.trial)), len(ran))
    return compiled(ran[dull % len(ran)], found, dull, task, started)


def explore_heard(task: Task, what: tuple[int, bytes]) -> Report:
    """The program of `worker.explore`, with what it exercises: the first drawing in whose gradients a fault can show.

    what   as of `explore_rarest`; the novelties are told and choose nothing.
    """
    index, counts = what
    task = sampled(task, index)
    seen, started, found = Seen(counts), time.perf_counter(), list[Candidate]()
    while True:
        last = drawn(task, index, len(found), seen)
        found.append(last)
        if last.trial is None:
            return replace(last.refused, scores=tuple(c.score for c in found))
        if len(found) > REDRAWS or _heard(last.trial):
            return compiled(last, found, len(found) - 1, task, started)


def compiled(chosen: Candidate, found: list[Candidate], dull: int, task: Task, started: float) -> Report:
    """The Report of the candidate that was chosen, of those found since `started`; so many were dull."""
    spent = time.perf_counter() - started
    assert chosen.trial
    told, _ = completed(chosen.trial, task)
    told.seconds["generate"] = spent - told.seconds.get("reference", 0.0)
    tidy(task)
    return replace(told, candidate=chosen.number, scores=tuple(c.score for c in found), redrawn=dull)


def drawn(task: Task, index: int, number: int, seen: Seen) -> Candidate:
    """The n-th drawing of a program, and how rare its trace is."""
    journal = worker.journal()
    journal.begin(f"# program {index} of seed {task.seed}, not drawn yet")
    try:
        trial = begin(draw(task, index, number), task, journal)
    except (Rejected, *REFUSED) as error:
        return Candidate(number, None, None, refusal("", error))
    return Candidate(number, trial, novelty(before(hashed(exercised(trial))), seen))


def _heard(trial: Trial) -> bool:
    try:
        return is_heard(trial, worker.journal())
    except Unreplayable:
        return False


def explore_again(task: Task, what: tuple[int, int]) -> Report:
    """The program that an earlier campaign chose: its number, and its candidate's."""
    index, number = what
    try:
        task = sampled(task, index)
        told, _ = completed(begin(draw(task, index, number), task, worker.journal()), task)
    except (Rejected, *REFUSED) as error:
        return replace(refusal("", error), candidate=number)
    tidy(task)
    return replace(told, candidate=number)
