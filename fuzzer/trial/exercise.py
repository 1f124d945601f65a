"""What a program exercises: its trace, and inductor watched while the program is compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from fuzzer.coverage.cells import cells
from fuzzer.coverage.features import LINES, Words, trace_words
from fuzzer.coverage.lines import Reached, record_lines
from fuzzer.coverage.watch import Watch, watch_inductor
from fuzzer.judgement.trial import Trial
from fuzzer.language.program import Cotangent, Program, contiguous
from fuzzer.language.routes import ROUTES, no_phase
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.trace import Trace
from fuzzer.trial.observe import observe
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task


class Exercise:
    """What one program exercises, watched in as many turns as its compile takes."""

    def __init__(self, route: str, task: Task, journal: Journal):
        self.route, self.task, self.journal = route, task, journal
        self.watch = Watch()
        self.lines: frozenset[str] = frozenset()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Watch what the compiler does meanwhile, if the task asks for features."""
        if not self.task.features:
            yield
            return
        reached = Reached()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(watch_inductor(self.route, lambda: self.journal.phase_name, self.watch))
                if self.task.lines:
                    reached = stack.enter_context(record_lines(self.task.campaign))
                yield
        finally:
            self.lines |= reached.words()

    def words(self, trial: Trial) -> Words:
        """The words of a trial whose compile was watched; none where the task asks for no features."""
        if not self.task.features:
            return {}
        named = cells(trial.program) if self.task.cells else {}
        lines = {LINES[0]: self.lines} if self.task.lines else {}
        return {**trial_words(trial), **self.watch.words(), **lines, **named}


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
