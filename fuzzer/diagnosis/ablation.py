"""The same program with one thing changed: an earlier backend, another setting, a graph that is not compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuzzer.execution.messages import Report, Task
from fuzzer.findings.cause import LEFT, RESET
from fuzzer.judgement.trial import UNCOMPILED, Place, Subject
from fuzzer.language.devices import device_row
from fuzzer.language.private import FP_FUSION, GRAPHS
from fuzzer.language.program import Attributes, Program, Value
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import ONE_CONFIG, default, exists
from fuzzer.language.text import show

# torch.compile's pipeline, each adding one stage to the one before: tracing, decomposition and partition, lowering.
# In pipeline order, and what the first that differs tells: what it adds to those before it.
STAGES = {
    "eager": "eager itself",
    "aot_eager": "tracing or functionalization",
    "aot_eager_decomp_partition": "a decomposition or the partitioner",
    "inductor:graph": "a pass over graphs",
    "inductor:ir": "lowering or the scheduler",
    "inductor": "code generation",
}
# Single changes worth knowing for every finding, beside undoing the program's own settings.
_ABLATIONS: tuple[tuple[str, Value], ...] = (
    ("inductor.max_fusion_size", 1),
    ("inductor.pattern_matcher", False),
    ("inductor.emulate_precision_casts", True),
    ("inductor.layout_optimization", False),
    ("inductor.fallback_by_default", True),  # ATen computes every node that is left after decomposition
)
CONTRACTION: tuple[str, Value] = ("inductor.cpp.enable_floating_point_contract_flag", "off")
# The same by the code that inductor writes: a difference that comes and goes with a Triton config is that config's.
_ABLATIONS_OF_CODE: dict[str, Attributes] = {"cpp": (CONTRACTION,), "triton": ((ONE_CONFIG, 0), (ONE_CONFIG, 1))}
# Where the bisector ends on a group of passes over the graph: what switches some of them off.
PASSES: tuple[tuple[str, Value], ...] = (
    ("inductor.joint_graph_constant_folding", False),
    ("inductor.optimize_scatter_upon_const_tensor", False),
    ("inductor.reorder_for_locality", False),
    ("inductor.shape_padding", False),
)
_MESSAGE_WIDTH = 120  # characters of a message
_MOST_SUBSETS = 16  # of a program's own settings: all of four


@dataclass(frozen=True)
class Ablation:
    """One variant to run: the table and name under which its class is noted, and the task and text that say it.

    skipped why it is not run, where it need not or cannot be.
    """

    table: str
    name: str
    task: Task
    text: str
    skipped: str = ""


def ablations(program: Program, task: Task) -> list[Ablation]:
    """Every variant of a program that a diagnosis asks for, but for those that need to know the suspect."""
    return [*_stages(program, task), *_settings(program, task), *_subsets(program, task)]


def _stages(program: Program, task: Task) -> Iterator[Ablation]:
    """The backends before the one on trial, and the reference backend against itself."""
    subject, only = task.place.subject, ROUTES[program.route.name].backends
    if subject.backend not in STAGES or task.place.reference.device != subject.device:
        return
    for backend in itertools.takewhile(lambda name: name != subject.backend, STAGES):
        cannot = only and backend not in (*only, "eager")
        skipped = f"not run: route {program.route.name} is for {only[0]} alone" if cannot else ""
        place = Place(task.place.reference, Subject(backend, subject.device))
        yield Ablation("stage", backend, replace(task, place=place), show(program), skipped)


def _settings(program: Program, task: Task) -> Iterator[Ablation]:
    own, subject = dict(program.settings), task.place.subject
    text = show(program)
    if subject.device != "cpu" and task.place.reference.device == subject.device:  # a person would rather run that
        there = Place(Subject(task.place.reference.backend, "cpu"), Subject(subject.backend, "cpu"))
        yield Ablation("ablation", "device=cpu", replace(task, place=there), text)
    for name in own:
        yield Ablation("ablation", name + RESET, task, _under(program, {k: own[k] for k in own if k != name}))
    if subject.backend in UNCOMPILED:
        return  # no compiler's setting acts
    yield from with_settings(program, task, (*_ABLATIONS, *_ABLATIONS_OF_CODE[device_row(subject.device).code]))
    if subject.compiler == "inductor":
        parts = (*GRAPHS, *([FP_FUSION] if device_row(subject.device).code == "triton" else []))
        for part in parts[2:] if ROUTES[program.route.name].joint else parts:  # one graph is inductor as a whole
            name = f"{part} off" if part == FP_FUSION else f"{part} uncompiled"
            yield Ablation("ablation", name, replace(task, lacking=(part,)), text)


def with_settings(program: Program, task: Task, settings: Attributes) -> Iterator[Ablation]:
    """The program with each of these settings, alone, beside its own."""
    own = dict(program.settings)
    for name, value in settings:
        if exists(name):
            told = f"{value!r} already" if own.get(name, default(name)) == value else ""
            yield Ablation("ablation", f"{name}={value}", task, _under(program, {**own, name: value}), told)


def _under(program: Program, settings: dict[str, Value]) -> str:
    return show(replace(program, settings=tuple(sorted(settings.items()))))


def _subsets(program: Program, task: Task) -> Iterator[Ablation]:
    """The program under parts of its settings, the smallest first."""
    sizes = range(len(program.settings))
    parts = itertools.chain.from_iterable(itertools.combinations(program.settings, size) for size in sizes)
    for part in itertools.islice(parts, _MOST_SUBSETS):
        yield Ablation("subset", settings_text(part), task, _under(program, dict(part)))


def settings_text(settings: Attributes) -> str:
    """Settings as one line; torch's defaults where there are none."""
    return ", ".join(f"{name}={value}" for name, value in settings) or "torch's defaults"


def without_ops(program: Program, task: Task, ops: list[str]) -> list[Ablation]:
    """The program with each of these ATen overloads, alone, left to ATen."""
    return [Ablation("ablation", op + LEFT, replace(task, lacking=(op,)), show(program)) for op in ops]


def outcome_text(report: Report, own: str = "") -> str:
    """A variant's class, with what happened where it did not run, or did not come to an end as the `own` class does."""
    if report.rejected:
        return f"not run: {report.rejected[:_MESSAGE_WIDTH]}"
    if report.built:
        return f"not run: built ({report.built})"
    if report.verdict in ("raises", "crashes", "hangs") and report.verdict != own:
        return f"{report.verdict}: {report.verdicts[0].detail[:_MESSAGE_WIDTH]}"
    return report.verdict
