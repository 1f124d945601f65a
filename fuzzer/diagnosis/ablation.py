"""Variants of a program with one change: an earlier backend, another setting, a graph that is not compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fuzzer.judgement.trial import UNCOMPILED, Place, Subject
from fuzzer.language.devices import device_row
from fuzzer.language.ops import OPS
from fuzzer.language.private import GRAPHS
from fuzzer.language.program import (
    Attributes,
    Node,
    Program,
    Value,
    contiguous,
    map_nodes,
    substitute_operands,
    unwrap,
    written_leaves,
)
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import ONE_CONFIG, default, exists
from fuzzer.language.text import show
from fuzzer.ledger.cause import COPIED, IN_ORDER, LEFT, RESET, WITHOUT
from fuzzer.ledger.switches import DENSE_COPIES, FUNCTIONALIZATION, GONE, GROUPS, SWITCHES, Switch
from fuzzer.workers.messages import Report, Task

# torch.compile's pipeline, each backend adding one stage to the one before: tracing, decomposition and partition,
# lowering. In pipeline order; the first backend that differs has the fault in the stage that it adds.
STAGES = {
    "eager": "eager itself",
    "aot_eager": "tracing or functionalization",
    "aot_eager_decomp_partition": "a decomposition or the partitioner",
    "inductor:graph": "a pass over graphs",
    "inductor:ir": "lowering or the scheduler",
    "inductor": "code generation",
}
# Single changes that switch off more than one thing: their results are reported, but prove no cause.
_OTHERS: tuple[Switch, ...] = (
    Switch("all", "all of ATen's own kernels for what is left after decomposition", "inductor:ir",
           "inductor.fallback_by_default", True),
    Switch("code", "vectors", "inductor", "inductor.cpp.simdlen", 1, code="cpp"),
    # a difference that comes and goes with a Triton config comes from that config
    Switch("code", "Triton's other configs", "inductor", ONE_CONFIG, 0, code="triton"),
    Switch("code", "Triton's other configs", "inductor", ONE_CONFIG, 1, code="triton"),
)  # fmt: skip
LATER = "when the difference is there already"
_MESSAGE_WIDTH = 120  # characters of a message
_MOST_SUBSETS = 16  # of a program's own settings: all subsets of four


@dataclass(frozen=True)
class Ablation:
    """One variant to run: the table and name under which its class is noted, the task, and the program.

    skipped why it does not run, where it need not or cannot.
    brings  whether the change itself spoils gradients: only outputs can be compared.
    """

    table: str
    name: str
    task: Task
    program: Program
    skipped: str = ""
    brings: bool = False

    @property
    def run(self) -> tuple[Task, str]:
        """Equal for two variants that are the same run."""
        return self.task, show(self.program)


def ablations(program: Program, task: Task) -> list[Ablation]:
    """All named variants of a program, except those that depend on the suspected operator."""
    return [*stages(program, task), *changes(program, task, "")]


def changes(program: Program, task: Task, first: str) -> list[Ablation]:
    """The single changes, and the parts of the program's settings, that can tell something of a difference which is
    there from the stage `first` on ("": which is not known)."""
    subject = task.place.subject
    found = [*_places(program, task), *_layouts(program, task)]
    if subject.backend in UNCOMPILED:
        return found if first else [*found, *_own(program, task)]  # no compiler runs: settings have no effect
    found += [*_own(program, task), *_subsets(program, task), *switched(program, task, first)]
    if subject.compiler == "inductor":
        both = () if ROUTES[program.route.name].joint else GRAPHS  # one graph is inductor as a whole
        found += [Ablation("ablation", f"{part} uncompiled", replace(task, lacking=(part,)), program) for part in both]
    return found


def stages(program: Program, task: Task) -> Iterator[Ablation]:
    """The backends before the one under test, and the reference backend against itself."""
    subject, only = task.place.subject, ROUTES[program.route.name].backends
    if subject.backend not in STAGES or task.place.reference.device != subject.device:
        return
    for backend in itertools.takewhile(lambda name: name != subject.backend, STAGES):
        cannot = only and backend not in (*only, "eager")
        skipped = f"not run: route {program.route.name} is for {only[0]} alone" if cannot else ""
        place = Place(task.place.reference, Subject(backend, subject.device))
        yield Ablation("stage", backend, replace(task, place=place), program, skipped)


def _places(program: Program, task: Task) -> Iterator[Ablation]:
    subject = task.place.subject
    if subject.device != "cpu" and task.place.reference.device == subject.device:  # people prefer to run on a CPU
        there = Place(Subject(task.place.reference.backend, "cpu"), Subject(subject.backend, "cpu"))
        yield Ablation("ablation", "device=cpu", replace(task, place=there), program)


def _layouts(program: Program, task: Task) -> Iterator[Ablation]:
    """The program with its leaves in order, each in memory of its own, unless that is so already."""
    plain = [replace(x, base=None, offset=0, stride=contiguous(x.shape)) for x in program.leaves]
    if any(x.stride != y.stride or x.base for x, y in zip(program.leaves, plain, strict=True)):
        yield Ablation("ablation", IN_ORDER, task, replace(program, leaves=tuple(plain)))


def _own(program: Program, task: Task) -> Iterator[Ablation]:
    """The program's own settings at their defaults, one at a time."""
    own = dict(program.settings)
    for name in own:
        yield Ablation("ablation", name + RESET, task, _under(program, {k: own[k] for k in own if k != name}))


def switched(program: Program, task: Task, first: str) -> Iterator[Ablation]:
    """The program with each thing that can be switched off left out, alone, beside its own settings."""
    own, code = dict(program.settings), device_row(task.place.subject.device).code
    for switch in (*SWITCHES, *GROUPS, *_OTHERS):
        if switch.code not in ("", code) or (switch.setting and not exists(switch.setting)):
            continue
        late = bool(first) and order(switch.stage) > order(first)
        told = f"not run: it acts at {switch.stage}, {LATER}" if late else ""
        if switch.part:
            told = told or ("not run: nothing is written in place" if _needless(switch, program) else "")
            yield Ablation("ablation", switch.name, replace(task, lacking=(switch.part,)), program, told, switch.apart)
        else:
            same = own.get(switch.setting, default(switch.setting)) == switch.value
            told = f"{switch.value!r} already" if same else told
            changed = _under(program, {**own, switch.setting: switch.value})
            yield Ablation("ablation", switch.name, task, changed, told)


def by_kind(variants: Sequence[Ablation]) -> dict[str, list[Ablation]]:
    """The switches among the variants that would run, by kind."""
    run = {v.name: v for v in variants if v.table == "ablation" and not v.skipped}
    kinds: dict[str, list[Ablation]] = {}
    for switch in (*SWITCHES, *GROUPS):
        if switch.name in run:
            kinds.setdefault(switch.kind, []).append(run[switch.name])
    return kinds


def all_off(name: str, program: Program, task: Task, some: Sequence[Ablation]) -> Ablation:
    """One variant with several features switched off."""
    switches = [switch for switch in (*SWITCHES, *GROUPS) if switch.name in {v.name for v in some}]
    changed = _under(program, {**dict(program.settings), **{s.setting: s.value for s in switches if s.setting}})
    parts = tuple(s.part for s in switches if s.part)
    return Ablation("ablation", f"all {name} off", replace(task, lacking=parts), changed)


def order(stage: str) -> int:
    """A stage's place in the pipeline; other names come last."""
    return list(STAGES).index(stage) if stage in STAGES else len(STAGES)


def _needless(switch: Switch, program: Program) -> bool:
    of_writes = switch.part in (DENSE_COPIES, FUNCTIONALIZATION)
    return of_writes and not any(OPS[node.op].effects for node in program.nodes)


def _under(program: Program, settings: dict[str, Value]) -> Program:
    return replace(program, settings=tuple(sorted(settings.items())))


def _subsets(program: Program, task: Task) -> Iterator[Ablation]:
    """The program under subsets of its settings, the smallest first."""
    sizes = range(len(program.settings))
    parts = itertools.chain.from_iterable(itertools.combinations(program.settings, size) for size in sizes)
    for part in itertools.islice(parts, _MOST_SUBSETS):
        yield Ablation("subset", settings_text(part), task, _under(program, dict(part)))


def settings_text(settings: Attributes) -> str:
    """Settings as one line; torch's defaults where there are none."""
    return ", ".join(f"{name}={value}" for name, value in settings) or "torch's defaults"


def without_ops(program: Program, task: Task, ops: list[str]) -> list[Ablation]:
    """The program with each of these ATen overloads, alone, left to ATen."""
    return [Ablation("ablation", op + LEFT, replace(task, lacking=(op,)), program) for op in ops]


def without_region(program: Program, task: Task, kind: str) -> Ablation:
    """The program without its regions of this kind."""
    return Ablation("ablation", WITHOUT + kind, task, replace(program, body=unwrap(program.body, kind)))


def with_copies(program: Program, task: Task) -> Ablation:
    """The program with nothing written into a leaf: each leaf that it writes to is copied first."""
    names = {name: f"{name}_copy" for name in written_leaves(program)}
    copies = (Node((copy,), "clone", (name,)) for name, copy in names.items())
    body = map_nodes(program.body, lambda node: substitute_operands(node, names))
    outputs = tuple(replace(output, value=names.get(output.value, output.value)) for output in program.outputs)
    return Ablation("ablation", COPIED, task, replace(program, body=(*copies, *body), outputs=outputs))


def outcome_text(report: Report, own: str = "", gone: bool = False) -> str:
    """A variant's class, with the reason where it did not run, or ended otherwise than the `own` class does.

    gone   whether the original difference is gone, although the variant shows another.
    """
    if report.rejected:
        return f"not run: {report.rejected[:_MESSAGE_WIDTH]}"
    if report.built:
        return f"not run: built ({report.built})"
    if report.verdict in ("raises", "crashes", "hangs") and report.verdict != own:
        return f"{report.verdict}: {report.verdicts[0].detail[:_MESSAGE_WIDTH]}"
    return f"{GONE}{report.verdict}" if gone and report.verdicts else report.verdict
