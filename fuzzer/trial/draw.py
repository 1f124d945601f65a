"""Program number n of a seed: generated, and recorded until a wrong gradient would be detected."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fuzzer.coverage.cells import cells
from fuzzer.coverage.wishes import Wishes, asked_cells
from fuzzer.generation.draft import Announce, Rejected
from fuzzer.generation.generate import HISTORIES, drawable, generate, routes_forward
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.generation.wish import Wish
from fuzzer.judgement.oracles import asked_by_share
from fuzzer.judgement.trial import Trial
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.program import Program
from fuzzer.language.text import show
from fuzzer.trial.pipeline import (
    REFUSED,
    OnJudged,
    is_detectable,
    keep_report,
    record_reference,
    refusal,
    report_refused,
    report_trial,
)
from fuzzer.workers.journal import DIED_DRAWING, Journal, journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.usage import cpu_seconds

# Where programs are judged that are not built: the last stage before code, which shows most of what code shows.
STAGE = "ir"


def program_task(task: Task, index: int) -> Task:
    """The task of program number `index`: by that number alone some are asked oracles that have a share, of some lines
    are recorded (`lines` is then 1, else 0), and some are judged at STAGE."""

    def drawn(what: str, share: float) -> bool:
        return random.Random(f"{task.seed}/{index}/{what}").random() < share

    place = task.place.at(STAGE) if drawn("stage", task.staged) else task.place
    also, lines = (*task.also, *asked_by_share(drawn)), float(drawn("lines", task.lines))
    return replace(task, place=place, also=also, lines=lines)


_WISHED = 3  # draws of a program that is asked for cells, until one has all
_UNASKED = 8  # by cells one program in so many is asked for none and drawn as it comes
_UNASKED_HISTORIES = 0.65  # the share of those that begin with a history


def _has_gradient(task: Task, index: int) -> bool:
    """Whether program number `index` has a gradient, by that number alone and the share of those that have none."""
    chosen = random.Random(f"{task.seed}/{index}/forward").random() < task.forward
    return not (chosen and routes_forward(task.routes))


def draw_program(task: Task, index: int, attempt: int = 0, announce: Announce | None = None) -> Program:
    """Program number `index` of the task's seed, in its n-th drawing; announce: as in `generate`. Raises Rejected.

    By cells it is that of some draws which holds most of what its number is asked for, if it is asked for any.
    Programs without a gradient are asked for nothing.
    """
    known = vocabulary(task.limits, task.ops)
    name = f"{task.seed}/{index}/{attempt}"
    gradient = _has_gradient(task, index)
    if not task.cells or not gradient:
        return _drawn(task, known, name, announce=announce, gradient=gradient)
    before, unasked = divmod(index, _UNASKED)
    if unasked == _UNASKED - 1:
        return _drawn(task, known, name, histories=_UNASKED_HISTORIES, announce=announce)
    wishes = _wishes_of(task).of(index - before)
    asked = {cell for wish in wishes for cell in asked_cells(wish, known[wish.op])}
    best, fewest = None, math.inf
    for again in range(_WISHED):
        try:
            program = _drawn(task, known, f"{name}/{again}", wishes, announce=announce)
        except Rejected:
            if best is None and again == _WISHED - 1:
                raise
            continue
        lacking = len(asked - {(family, word) for family, words in cells(program).items() for word in words})
        if lacking < fewest:
            best, fewest = program, lacking
        if not lacking:
            break
    assert best is not None
    return best


def _drawn(
    task: Task,
    ops: dict[str, OpSpec],
    name: str,
    wishes: Sequence[Wish] = (),
    histories: float = HISTORIES,
    announce: Announce | None = None,
    gradient: bool = True,
) -> Program:
    """The drawing of this name. Raises Rejected."""
    device, other = _kinds(task)
    rng = random.Random(name)
    portable = device != other
    return generate(
        rng, ops, task.limits, task.routes, device, task.fixed, portable, histories, wishes, announce, gradient
    )


def _kinds(task: Task) -> tuple[str, str]:
    """The types of device of both sides, that on trial first."""
    return task.place.subject.device.split(":")[0], task.place.reference.device.split(":")[0]


def _wishes_of(task: Task) -> Wishes:
    """What the task's programs are asked for, by number."""
    device, other = _kinds(task)
    return _wishes(task.seed, task.limits, task.ops, task.routes, device != other)


@functools.lru_cache(maxsize=8)
def _wishes(seed: int, limits: Limits, ops: tuple[str, ...], routes: tuple[str, ...], portable: bool) -> Wishes:
    return Wishes(drawable(vocabulary(limits, ops), routes, portable), limits, seed)


# How often a program is drawn again because no gradient is detectable; then it is compiled all the same.
MAX_REDRAWS = 3


@dataclass(frozen=True)
class Drawn:
    """A program that was drawn and recorded on the reference side.

    attempt  of several drawings of its number, which;  seconds  by phase;  mutator: both as a Report has them.
    """

    trial: Trial
    attempt: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    mutator: str = ""

    def told(self, report: Report) -> Report:
        """The Report of its trial, with what drawing it took."""
        for name, took in self.seconds.items():
            report.seconds[name] = report.seconds.get(name, 0.0) + took
        return replace(report, redrawn=self.attempt, candidate=self.attempt, mutator=self.mutator)


def draw_detectable(task: Task, index: int, log: Journal, announce: Announce | None = None) -> Drawn | Report:
    """Program number `index` of the task's seed, drawn until a wrong gradient would show, if it has any; a Report where
    it is refused. Depends on the task and the index alone. announce: as in `generate`."""
    for attempt in range(MAX_REDRAWS + 1):
        program, started = None, time.perf_counter()
        log.begin(f"# program {index} of seed {task.seed}, not drawn yet")
        try:
            program = draw_program(task, index, attempt, announce=announce)
            took = time.perf_counter() - started
            trial, judging = record_reference(program, task, log), cpu_seconds()
            if attempt < MAX_REDRAWS and not is_detectable(trial, log):
                continue
            return Drawn(trial, attempt, {"generate": took, "judge": cpu_seconds() - judging})
        except REFUSED as error:
            refused = refusal("", error) if program is None else report_refused(program, task, log, error)
            return replace(refused, redrawn=attempt, candidate=attempt)
    raise AssertionError("the last drawing is compiled, whatever it shows")


def write_down(program: Program) -> None:
    """Note in the worker's log what is about to run in eager while a program is drawn."""
    log = journal()
    log.begin(show(program))
    log.phase(DIED_DRAWING)


def report_drawn(drawn: Drawn | Report, task: Task, log: Journal, on_judged: OnJudged = keep_report) -> Report:
    """The Report of a drawn program, run again, compiled and judged."""
    return drawn if isinstance(drawn, Report) else drawn.told(report_trial(drawn.trial, task, log, on_judged))
