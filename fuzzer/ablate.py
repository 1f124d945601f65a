"""The same program with one thing changed: an earlier backend, another setting, a graph that is not compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuzzer.execution.messages import UNCOMPILED, Place, Report, Subject
from fuzzer.execution.worker import Task
from fuzzer.private import FP_FUSION, GRAPHS
from fuzzer.program import Attributes, Program, Value
from fuzzer.routes import ROUTES
from fuzzer.settings import INFERENCE, default, exists
from fuzzer.text import show

# torch.compile's pipeline, each adding one stage to the one before: tracing, decomposition and partition, lowering.
STAGES = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
# Single changes worth knowing for every finding, beside undoing the program's own settings.
ABLATIONS: tuple[tuple[str, Value], ...] = (
    ("inductor.max_fusion_size", 1),
    ("inductor.pattern_matcher", False),
    ("inductor.emulate_precision_casts", True),
    ("inductor.layout_optimization", False),
    ("inductor.fallback_by_default", True),  # ATen computes every node that is left after decomposition
)
CONTRACTION: tuple[str, Value] = ("inductor.cpp.enable_floating_point_contract_flag", "off")
# Where the bisector ends on a group of passes over the graph: what switches some of them off.
PASSES: tuple[tuple[str, Value], ...] = (
    ("inductor.joint_graph_constant_folding", False),
    ("inductor.optimize_scatter_upon_const_tensor", False),
    ("inductor.reorder_for_locality", False),
    ("inductor.shape_padding", False),
)
LEFT = " left to ATen"
SHOWN = 120  # characters of a message
MOST_SUBSETS = 16  # of a program's own settings: all of four


@dataclass(frozen=True)
class Change:
    """One variant to run: the table and name under which its class is told, and the task and text that say it.

    told   why it is not run, where it need not or cannot be.
    """

    table: str
    name: str
    task: Task
    text: str
    told: str = ""


def changes(program: Program, task: Task) -> list[Change]:
    """Every variant of a program that a diagnosis asks for, but for those that need to know the suspect."""
    return [*_stages(program, task), *_settings(program, task), *_subsets(program, task)]


def _stages(program: Program, task: Task) -> Iterator[Change]:
    """The backends before the one on trial, and the reference backend against itself."""
    subject, only = task.place.subject, ROUTES[program.route.name].backends
    if subject.backend not in STAGES or task.place.reference.device != subject.device:
        return
    for backend in STAGES[: STAGES.index(subject.backend)]:
        cannot = only and backend not in (*only, "eager")
        told = f"not run: route {program.route.name} is for {only[0]} alone" if cannot else ""
        place = Place(task.place.reference, Subject(backend, subject.device))
        yield Change("stage", backend, replace(task, place=place), show(program), told)


def _settings(program: Program, task: Task) -> Iterator[Change]:
    own, subject = dict(program.settings), task.place.subject
    text = show(program)
    if subject.device != "cpu" and task.place.reference.device == subject.device:  # a person would rather run that
        there = Place(Subject(task.place.reference.backend, "cpu"), Subject(subject.backend, "cpu"))
        yield Change("ablation", "device=cpu", replace(task, place=there), text)
    for name in own:
        yield Change("ablation", f"{name} at its default", task, _under(program, {k: own[k] for k in own if k != name}))
    if subject.backend in UNCOMPILED:
        return  # no compiler's setting acts
    yield from under(program, task, (*ABLATIONS, *([CONTRACTION] if subject.device == "cpu" else [])))
    if subject.backend == "inductor":
        parts = (*GRAPHS, *([FP_FUSION] if subject.device != "cpu" else []))
        for part in parts[2:] if program.route.name in INFERENCE else parts:  # one graph is inductor as a whole
            name = f"{part} off" if part == FP_FUSION else f"{part} uncompiled"
            yield Change("ablation", name, replace(task, lacking=(part,)), text)


def under(program: Program, task: Task, settings: Attributes) -> Iterator[Change]:
    """The program with each of these settings, alone, beside its own."""
    own = dict(program.settings)
    for name, value in settings:
        if exists(name):
            told = f"{value!r} already" if own.get(name, default(name)) == value else ""
            yield Change("ablation", f"{name}={value}", task, _under(program, {**own, name: value}), told)


def _under(program: Program, settings: dict[str, Value]) -> str:
    return show(replace(program, settings=tuple(sorted(settings.items()))))


def _subsets(program: Program, task: Task) -> Iterator[Change]:
    """The program under parts of its settings, the smallest first."""
    sizes = range(len(program.settings))
    parts = itertools.chain.from_iterable(itertools.combinations(program.settings, size) for size in sizes)
    for part in itertools.islice(parts, MOST_SUBSETS):
        yield Change("subset", named(part), task, _under(program, dict(part)))


def named(settings: Attributes) -> str:
    """Settings as one line; torch's defaults where there are none."""
    return ", ".join(f"{name}={value}" for name, value in settings) or "torch's defaults"


def without(program: Program, task: Task, ops: list[str]) -> list[Change]:
    """The program with each of these ATen overloads, alone, left to ATen."""
    return [Change("ablation", op + LEFT, replace(task, lacking=(op,)), show(program)) for op in ops]


def told(report: Report, own: str = "") -> str:
    """A variant's class, with what happened where it did not run, or did not come to an end as the `own` class does."""
    if report.rejected:
        return f"not run: {report.rejected[:SHOWN]}"
    if report.verdict in ("raises", "crashes", "hangs") and report.verdict != own:
        return f"{report.verdict}: {report.verdicts[0].detail[:SHOWN]}"
    return report.verdict
