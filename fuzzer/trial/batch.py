"""Several programs in one worker, whose C++ is built together.

Each program is drawn and recorded, then all run in rounds. In a round a program runs until it ends or calls a kernel
that is not built (`NotBuilt`). The missing kernels are built in units (`kernel_units.py`), and the interrupted programs
run again from the same values: dynamo, AOTAutograd and inductor find their code. The first round lacks the forwards'
kernels, the second the backwards', which are compiled when they run. The run that ends equals that of a program alone.
A program that cannot go this way runs alone at the end, such as one with a kernel that does not build: then inductor
itself raises the error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fuzzer.coverage.watch import Watch
from fuzzer.judgement.oracles import about_bare, compile_limit
from fuzzer.judgement.planted import fault_named
from fuzzer.judgement.trial import Observation, Subject, Trial
from fuzzer.language.devices import HOST, device_row
from fuzzer.language.private import forget_sizes, reset_compiler
from fuzzer.language.routes import route_of
from fuzzer.language.text import parse, show
from fuzzer.trial.compiled import Compiled
from fuzzer.trial.draw import Drawn, program_task
from fuzzer.trial.exercise import Exercise
from fuzzer.trial.kernel_units import Kernel, NotBuilt, Units, seconds_of
from fuzzer.trial.origin import ALL_DRAWN, Origin, draw_from, record
from fuzzer.trial.pipeline import REFUSED, compile_kept, compile_subject, conclude, refusal, rerun_reference
from fuzzer.workers.journal import Journal, journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.usage import cpu_seconds
from fuzzer.workers.worker import to_report

# The forward's kernels are missing, the backward's, none; one more, where something was compiled anew.
_ROUNDS = 4
_USUAL = 16  # a tenth cheaper than 8, and a death costs 15 others their turn (docs/speed.md)
NOBODYS_TURN = "# no program's turn"


def usual_batch(subject: Subject, staged: float = 0.0) -> int:
    """How many programs a worker has at once, unless somebody says so: twice as many where more than half of them are
    not built."""
    return (_USUAL if staged <= 0.5 else 2 * _USUAL) if _builds_cpp(subject) else 1


def _builds_cpp(subject: Subject) -> bool:
    return subject.backend == "inductor" and device_row(subject.device) is HOST


class Batch(NamedTuple):
    """Numbers of programs, and the seconds that each of them may take, and each building; None: any. origins: by
    number, of those programs that are not drawn."""

    numbers: tuple[int, ...]
    deadline: float | None = None
    origins: Mapping[int, Origin] = ALL_DRAWN


def explore_batch(task: Task, batch: Batch) -> list[Report]:
    """The Reports of `explore` for these numbers, in order, made together; of those with an origin, the Reports of
    `explore_from`."""
    tasks = [program_task(task, number) for number in batch.numbers]
    draws = [
        functools.partial(draw_from, own, n, batch.origins.get(n)) for own, n in zip(tasks, batch.numbers, strict=True)
    ]
    return build_together(list(map(Member, range(len(tasks)), tasks, draws)), batch.deadline)


def examine_batch(task: Task, texts: Sequence[str]) -> list[Report]:
    """The Reports of `examine` for these programs, in order, made together. Raises ParseError."""
    draws = [functools.partial(record, parse(text), task) for text in texts]
    return build_together([Member(i, task, draw) for i, draw in enumerate(draws)], None)


def left_over(numbers: Sequence[int], reports: Sequence[Report | None]) -> list[tuple[int, ...]]:
    """The numbers that have no Report, in the batches in which they run again: without who was at fault; where nobody
    was, in halves."""
    left = tuple(number for number, report in zip(numbers, reports, strict=True) if report is None)
    half = len(left) // 2 if len(left) == len(numbers) else len(left)
    return [part for part in (left[:half], left[half:]) if part]


def build_together(members: Sequence[Member], deadline: float | None) -> list[Report]:
    """The Reports of these programs, in order."""
    units = Units()
    for member in members:
        member.left = deadline
        member.take_turn(member.draw)
    with _own_caches():
        for _ in range(_ROUNDS):
            for member in members:
                if member.waits:
                    member.take_turn(functools.partial(member.run, units))
            with _deadline(deadline):
                units.build()
    for member in members:
        member.take_turn(member.end)
    return [member.report for member in members if member.report is not None]


class Member:
    """A program of a batch, and what is kept of it between its turns.

    place   in the batch;  left  of its seconds, None: any;  kernels  that it needs.
    seen    once its run has ended;  report  once there is one.
    """

    drawn: Drawn
    exercise: Exercise
    compiled: Compiled

    def __init__(self, place: int, task: Task, drawing: Callable[[Journal], Drawn | Report]):
        self.place, self.task, self.drawing = place, task, drawing
        self.log = journal()
        self.left: float | None = None
        self.cpu_seconds = 0.0
        self.kernels = set[Kernel]()
        self.recompiles = False  # as its route says
        self.report: Report | None = None
        self.seen: Observation | None = None

    def take_turn(self, work: Callable[[], Report | None]) -> None:
        """Do some of its work, in its name in the journal, in what is left of its time, for its account. A Report, that
        of backfuzz's own failure too, is the last turn's."""
        if self.report is not None:
            return
        started, cpu_started = time.monotonic(), cpu_seconds()
        self.log.turn = self.place
        with _deadline(self.left):
            self.report = to_report(work)
        self.log.turn = None
        self.log.begin(NOBODYS_TURN)
        self.cpu_seconds += cpu_seconds() - cpu_started
        if self.left is not None:
            self.left -= time.monotonic() - started
        if self.report is not None:
            self.report.seconds["build"] = built = sum(kernel.share for kernel in self.kernels)
            self.report.seconds["cpu"] = self.cpu_seconds + built

    def draw(self) -> Report | None:
        """Its program, on the reference side."""
        drawn = self.drawing(self.log)
        if isinstance(drawn, Report):
            return drawn
        self.drawn, program = drawn, drawn.trial.program
        self.recompiles = route_of(program)[0].recompiles(program)
        self.exercise = Exercise(program.route.name, self.task, self.log)
        self.compiled = Compiled(program, self.task, self.log)
        try:
            with self.exercise.turn():
                rerun_reference(drawn.trial, self.task, self.log)
        except REFUSED as error:
            return drawn.told(refusal(show(program), error))
        return None

    @property
    def waits(self) -> bool:
        """Whether the program still has to run, and can run beside others."""
        built = _builds_cpp(self.task.place.subject)
        alone = self.task.canary and not fault_named(self.task.canary).batched
        plain = not (alone or self.task.lacking or self.task.fresh or about_bare(self.task.also))
        broken = any(kernel.broken for kernel in self.kernels)
        ended = self.report is not None or self.seen is not None
        return built and plain and not (ended or broken or self.recompiles)

    def run(self, units: Units) -> None:
        """Run it, until it ends or lacks a kernel."""
        program = self.drawn.trial.program
        self.log.begin(show(program))
        forget_sizes()
        with self.exercise.turn(), units.collecting(program.settings, self.kernels), contextlib.suppress(NotBuilt):
            self.seen = self.compiled.observe()

    def end(self) -> Report:
        """Its Report: of the run that ended, or of one by itself."""
        trial = self.drawn.trial
        if self.seen is None or self._cost_is_unclear(self.seen):
            reset_compiler()
            self.exercise.watch = Watch()
            compiled = functools.partial(compile_subject, trial, self.task, self.log)
        else:
            compiled = functools.partial(self._explained, self.seen)
        return self.drawn.told(conclude(trial, compiled, self.exercise, self.log)[0])

    def _cost_is_unclear(self, seen: Observation) -> bool:
        """Whether it may have taken too long by itself, or not: what one kernel of a unit took is not known."""
        least, most = seconds_of(self.kernels)
        return seen.cpu_seconds + least <= compile_limit(self.drawn.trial.program) < seen.cpu_seconds + most

    def _explained(self, seen: Observation) -> Trial:
        """Its trial, with what was seen and what its kernels took."""
        trial, built = self.drawn.trial, sum(kernel.share for kernel in self.kernels)
        seen.seconds, seen.cpu_seconds = seen.seconds + built, seen.cpu_seconds + built
        trial.also, trial.subject = self.task.also, self.compiled.explain(seen, trial)
        trial.kept = compile_kept(trial, self.task, self.log)
        return trial


@contextlib.contextmanager
def _own_caches() -> Iterator[None]:
    """Inductor's caches are empty, and go: who runs alone afterwards may find no code whose kernels do not build."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="batch-", ignore_cleanup_errors=True) as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name) if before is None else os.environ.update({name: before})


@contextlib.contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """The process ends by SIGALRM if this takes longer, whatever it is at."""
    if seconds is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
