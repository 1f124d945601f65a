"""Where the program of a number comes from, in the worker: it is drawn, a mutant or a kin of another
program, or given as text."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from fuzzer.generation.draft import Rejected
from fuzzer.generation.kin import KIN, Kin, make_kin
from fuzzer.generation.mutate import Material, mutate
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.language.ops import OPS
from fuzzer.language.program import Program, Region
from fuzzer.language.text import parse
from fuzzer.trial.draw import MAX_REDRAWS, Drawn, draw_detectable, program_task, report_drawn, write_down
from fuzzer.trial.pipeline import REFUSED, is_detectable, record_reference, refusal, report_refused
from fuzzer.workers.journal import Journal, journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.usage import cpu_seconds


class Mutation(NamedTuple):
    """How a mutant is made: a mutator's name, and the texts of the parent and of the donor that `splice` takes."""

    mutator: str
    parent: str
    donor: str


# Of a number whose program is not drawn: how the mutant or the kin is made, or the text.
Origin = Mutation | Kin | str
ALL_DRAWN: Mapping[int, Origin] = {}


def explore_from(task: Task, given: tuple[int, Origin]) -> Report:
    """The Report of a number's program of this origin, judged where the program that is drawn for it would be."""
    number, origin = given
    task, log = program_task(task, number), journal()
    return report_drawn(draw_from(task, number, origin, log), task, log)


def draw_from(task: Task, number: int, origin: Origin | None, log: Journal) -> Drawn | Report:
    """A number's program of this origin, recorded; None: drawn. A Report where it is refused."""
    if origin is None:
        return draw_detectable(task, number, log)
    if isinstance(origin, Mutation):
        return draw_mutant(task, number, origin, log)
    if isinstance(origin, Kin):
        return draw_kin(task, origin, log)
    return record(parse(origin), task, log)


def record(program: Program, task: Task, log: Journal) -> Drawn | Report:
    """A program that is not drawn, recorded; a Report where it is refused."""
    try:
        return Drawn(record_reference(program, task, log))
    except REFUSED as error:
        return report_refused(program, task, log, error)


def draw_kin(task: Task, kin: Kin, log: Journal) -> Drawn | Report:
    """A program of a parent's kin, recorded; a Report where none can be."""
    log.begin(f"# {kin.op} in a program, not made yet")
    try:
        program = make_kin(kin, task.place.subject.device.split(":")[0], write_down)
    except Rejected as error:
        return replace(refusal("", error), mutator=KIN)
    return replace(record(program, task, log), mutator=KIN)


def draw_mutant(task: Task, index: int, mutation: Mutation, log: Journal) -> Drawn | Report:
    """A mutant as program number `index`, made again until a wrong gradient would show: the last is taken whatever it
    shows. Where none is made or runs, the program that the number has without mutation. Depends on the arguments
    alone."""
    mutants, started = mutants_of(task, index, mutation), time.perf_counter()
    for attempt in range(MAX_REDRAWS + 1):
        log.begin(f"# program {index} of seed {task.seed}, not drawn yet")
        try:
            program = next(mutants)
            took = time.perf_counter() - started
            trial, judging = record_reference(program, task, log), cpu_seconds()
            if attempt == MAX_REDRAWS or is_detectable(trial, log):
                seconds = {"generate": took, "judge": cpu_seconds() - judging}
                return Drawn(trial, attempt, seconds, mutation.mutator)
        except Rejected:  # the mutator made nothing in many tries of its own
            break
        except REFUSED:
            pass
        started = time.perf_counter()
    return draw_detectable(task, index, log)


def mutants_of(task: Task, index: int, mutation: Mutation) -> Iterator[Program]:
    """Mutants within the task's domain, under its fixed settings, without end: the first is program number `index`, the
    next one replaces it, and so on. Raises Rejected, whose message says why none is made."""
    rng, parent = random.Random(f"{task.seed}/{index}/mutant"), parse(mutation.parent)
    material, allowed = Material(parse(mutation.donor), write_down), functools.partial(in_domain, task, parent=parent)
    device = task.place.subject.device.split(":")[0]
    while True:
        found = mutate(parent, rng, material, device, mutation.mutator, allowed)
        yield replace(found, settings=tuple(sorted({**dict(found.settings), **dict(task.fixed)}.items())))


_EXTRA_NODES = 2  # nodes that a mutant may have beyond the most that are drawn, or that its parent has


def in_domain(task: Task, program: Program, parent: Program) -> bool:
    """Whether the task could have generated what the parent does not have: route, ops and dtypes are the task's. If the
    two sides run on different types of device, the program also holds nothing in which these devices differ."""
    if len(program.nodes) > max(task.limits.max_nodes, len(parent.nodes)) + _EXTRA_NODES:
        return False
    ops = {node.op for node in program.nodes} - {node.op for node in parent.nodes}
    floating, had = ({leaf.dtype for leaf in p.leaves if leaf.type.differentiable} for p in (program, parent))
    known = ops <= vocabulary(task.limits, task.ops).keys() and floating - had <= set(task.limits.dtypes)
    known &= program.route.name in (*task.routes, parent.route.name)
    regions = any(isinstance(statement, Region) for statement in program.body)
    own = any(OPS[node.op].random or not OPS[node.op].portable for node in program.nodes)
    one_device = task.place.subject.device.split(":")[0] == task.place.reference.device.split(":")[0]
    return known and (one_device or not (regions or own))
