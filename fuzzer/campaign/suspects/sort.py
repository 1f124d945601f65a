"""A suspect sorted by one worker: the first stage that shows it, then the statements that it needs. Code is built only
where no stage before it shows the suspect."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fuzzer.campaign.suspects.core import Core
from fuzzer.campaign.suspects.interestingness import finding_errors
from fuzzer.diagnosis.ablation import STAGES
from fuzzer.judgement.oracles import about_bare
from fuzzer.judgement.trial import Place
from fuzzer.judgement.verdict import FINDINGS, Signature, Verdict
from fuzzer.language import interpret
from fuzzer.language.program import Program, Recipe, needed_by_outputs
from fuzzer.language.text import parse, show
from fuzzer.stages import cannot_run
from fuzzer.trial.pipeline import REFUSED, report_again, report_program, run_reference
from fuzzer.trial.verify import matching
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.usage import cpu_seconds
from minimizer.passes import STATEMENTS, Reducer
from minimizer.reduce import reduce
from minimizer.rewrite import Types, propose
from minimizer.same import Shown, checker, margin

# These take the worker with them, are not seen each time, or are not minimized: such suspects are not sorted.
UNSORTED = ("crashes", "hangs", "nondeterministic", "costly", "unsupported")
# A core takes a mean of 3.1 CPU seconds and 7 answers in the median (38 suspects): ten times that bounds the rest.
_SECONDS, _BUDGET = 30.0, 120
_MOST_OTHERS = 4
# Notes of the Report of a sorted suspect.
STAGE, BEFORE = "stage", "before"


def places(place: Place) -> Iterator[Place]:
    """The places where a suspect may show, in the order of the compiler; its own is the last."""
    subject = place.subject
    if subject.backend in STAGES:
        for backend in itertools.takewhile(lambda name: name != subject.backend, STAGES):
            yield place.on(backend)
    yield place


def is_sortable(signature: Signature) -> bool:
    """Whether one run in a worker shows it each time, without other settings."""
    return not (signature.verdict in UNSORTED or about_bare((signature.oracle,)))


def sort(task: Task, asked: tuple[str, Signature, float]) -> Report:
    """The Report of a suspect's core at the first stage that shows the suspect. The rounding model's final look, which
    costs more than a compile, waits until code is built.

    asked  its text, its signature, and the seconds after which no smaller core is looked for.

    The note STAGE names that stage, BEFORE has the numbers of the whole suspect; `files` hold, by signature, candidates
    that showed another finding. Without STAGE the suspect did not show again. Raises ParseError.
    """
    text, signature, seconds = asked
    program, before, until = parse(text), cpu_seconds(), time.monotonic() + seconds

    def expired() -> bool:
        return cpu_seconds() - before > _SECONDS or time.monotonic() > until

    unstaged = bool(cannot_run(program))
    look = _looks(program, replace(task, final=False))
    for place in places(task.place):
        if place.subject.stage and unstaged:
            continue
        at = replace(task, place=place, final=False)
        report = look(at)
        verdict = None if report.built else matching(report, signature)
        if verdict is not None:
            return _sorted(report, program, verdict, at, expired)
    return Report(text)


def sort_on(pool: Pool, task: Task, text: str, signature: Signature) -> Report:
    """The Report of `sort` for a suspect, by one worker of a pool. Raises Stopped."""
    # the candidate in hand when its time is over takes some more
    return pool.result(pool.submit(sort, task, (text, signature, pool.deadline / 2)), task)


def core_of(report: Report, signature: Signature) -> Core | None:
    """The core that a Report of `sort` holds; None where it holds none."""
    verdict = matching(report, signature)
    if STAGE not in report.notes or verdict is None:
        return None
    return Core(parse(report.text), verdict, report.notes[STAGE], report.notes[BEFORE])


def _looks(program: Program, task: Task) -> Callable[[Task], Report]:
    """Reports of a program at one place after the other: the reference side, the same at all of them, runs once."""
    try:
        trial = run_reference(program, task, journal())
    except REFUSED:  # what is refused may be told, too
        return lambda at: report_program(program, at, journal())
    return lambda at: report_again(trial, at, journal())


def _sorted(report: Report, program: Program, verdict: Verdict, task: Task, expired: Callable[[], bool]) -> Report:
    """The Report of a program's core under the task. report: of the whole program, which shows this verdict."""
    reports: dict[str, Report] = {}

    def run(batch: Sequence[Program]) -> Iterator[Shown]:
        for candidate in batch:
            told = report_program(candidate, task, journal())
            reports[show(candidate)] = told = replace(told, verdicts=()) if told.built else told
            yield finding_errors(told)

    def record(candidate: Program) -> dict[str, Recipe]:
        try:
            return interpret.value_recipes(candidate, task.place.reference.device)
        except Exception:  # what is not recorded is not proposed
            return {}

    is_same = checker(verdict.signature, run, least=margin(verdict.error))
    reducers = (keep_differing(verdict), *STATEMENTS)
    found = reduce(program, is_same, record=record, budget=_BUDGET, expired=expired, reducers=reducers)
    others: dict[str, str] = {}
    for other in map(show, found.others):
        shown = next(v.signature for v in reports[other].verdicts if v.signature.verdict in FINDINGS)
        if len(others) < _MOST_OTHERS:
            others.setdefault(str(shown), other)
    notes = {STAGE: task.place.subject.backend, BEFORE: verdict.detail}
    return replace(reports.get(show(found.program), report), notes=notes, files=others)


def keep_differing(verdict: Verdict) -> Reducer:
    """A reducer that keeps the outputs on which a differing tensor of the verdict depends, and drops all others."""
    names = {c.name.removesuffix(".grad") for c in verdict.comparisons}

    def keep_differing_outputs(program: Program, types: Types) -> Iterator[Program]:
        outputs = [o for o in program.outputs if names & _needed(replace(program, outputs=(o,)))]
        if 0 < len(outputs) < len(program.outputs):
            yield from propose(program, outputs=tuple(outputs))

    return keep_differing_outputs


def _needed(program: Program) -> set[str]:
    """The values that a program's outputs depend on, themselves among them."""
    kept, live = needed_by_outputs(program)
    return {*live, *(name for outs in kept for name in outs), *(output.value for output in program.outputs)}
