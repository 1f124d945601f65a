"""What a program exercises: its trace, and inductor watched while the program is compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzzer.coverage.features import LINES, Words, trace_words
from fuzzer.coverage.lines import record_lines
from fuzzer.coverage.watch import watch_inductor
from fuzzer.execution.journal import Journal
from fuzzer.execution.messages import Task
from fuzzer.execution.observe import observe
from fuzzer.judgement.trial import Trial
from fuzzer.language.program import Cotangent, Program, contiguous
from fuzzer.language.routes import ROUTES, no_phase
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.trace import Trace


@contextlib.contextmanager
def watch_features(route: str, task: Task, journal: Journal) -> Iterator[Callable[[Trial], Words]]:
    """Watch a compile, if the task asks for features; gives a function from trial to words, to call afterwards."""
    if not task.features:
        yield lambda trial: {}
        return
    listen = record_lines(task.campaign) if task.lines else contextlib.nullcontext(None)
    with watch_inductor(route, lambda: journal.phase_name) as watch, listen as reached:
        yield lambda trial: {**trial_words(trial), **watch.words(), **({LINES[0]: reached.words()} if reached else {})}


def trial_words(trial: Trial) -> Words:
    """The words of a trial's trace, by family of TRACE_FAMILIES: known before anything is compiled."""
    return trace_words(as_compiled(trial))


def as_compiled(trial: Trial) -> Trace:
    """The trace of a trial's program with its cotangents as the compiler sees them."""
    program, recorder = with_seen_cotangents(trial.program), Recorder()
    if program == trial.program:
        assert trial.trace is not None
        return trial.trace
    observe(program, trial.place.reference, no_phase, recorder)
    return recorder.trace


def with_seen_cotangents(program: Program) -> Program:
    """The program with its cotangents as the compiler sees them: where AOTAutograd copies them, contiguous."""
    if ROUTES[program.route.name].shows_layouts:
        return program

    def plain(c: Cotangent | None) -> Cotangent | None:
        return c and replace(c, stride=contiguous(c.shape), offset=0)

    return replace(program, outputs=tuple(replace(o, cotangent=plain(o.cotangent)) for o in program.outputs))
