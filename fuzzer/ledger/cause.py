"""The cause of a variant, as marks: variants that share a mark belong to one fault.

A mark names the stage at which the difference begins, the operator, setting or pass that is the cause there, and the
kind of difference. Marks come from evidence alone: the diagnosis' experiments first, then the minimal program, from
which nothing can be removed. People's notes are not read.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fuzzer.judgement.verdict import COMPILED, CORRUPT_HEAP, EAGER, EAGER_DIES, VALUES, Comparison, Finding
from fuzzer.language.program import PLAIN_OPS, Program, Region, gaining_leaves, statements, written_leaves
from fuzzer.language.text import parse
from fuzzer.ledger.diagnosed import decided_before, diagnosed_by
from fuzzer.ledger.kernel import is_composite, kernel
from fuzzer.ledger.switches import FUNCTIONALIZATION, SWITCHES, convicting, gone

# The names of single changes in a finding's table (`Finding.ablation`).
LEFT, RESET = " left to ATen", " at its default"
IN_ORDER = "every leaf contiguous"
WITHOUT = "without its "  # prefix of a change that takes the regions of a kind away
COPIED = "every written leaf copied first"
HOOK, DROPPED = "hook", "its hook is dropped"
MIXED = "leaves with and without a gradient written"  # see `mixes_writes`
DEMANDED = ("inductor.fallback_random", "triton.config")  # settings without which no such program can run
LEAF, NONFINITE, WRONG_NUMBERS = "leaf", "nonfinite", "numbers"  # three kinds of differences
KERNELS = "eager"  # the stage of faults that need no compiler
_TRACED = ("aot_eager", "aot_eager_decomp_partition")


@dataclass(frozen=True)
class Cause:
    """The cause of one variant.

    stage    where the difference begins: a stage of the compiler, KERNELS, or a backend that replaces kernels.
    decided  the cause at that stage, by experiment: "operator NAME", "setting NAME", "pass NAME" and so on; "" where
             the experiments name nothing more exact than the stage.
    kind     raises, numbers, nonfinite, float32 (float64 computed in it), wider dtype and so on.
    marks    variants that share one have the same cause.
    probes   marks of a program that may hold more than it needs: it has the cause of a variant with such a mark.
    """

    stage: str
    decided: str
    kind: str
    marks: frozenset[str]
    probes: frozenset[str] = frozenset()

    def shares(self, other: Cause) -> bool:
        """Whether two variants have one cause."""
        return bool(self.marks & (other.marks | other.probes) or other.marks & self.probes)


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> Program:
    """The program of a text, kept: a ledger's findings are held against each other many times."""
    return parse(text)


def cause_of(finding: Finding) -> Cause:
    """The cause of a finding, from its stored evidence."""
    program, stage, kind = parsed(finding.program), first_stage(finding), kind_of(finding)
    decided = decided_by(finding, program, stage, kind)
    marks, probes = set[str](), set[str]()
    if stage != KERNELS and mixes_writes(program):
        return Cause(stage, decided, kind, frozenset({MIXED}))
    if not decided:
        kind = DROPPED if hook_is_dropped(finding, program) else kind
        marks, probes = _by_program(finding, program, stage, kind)
    elif decided.startswith(("setting", "route")):  # exact enough that all wrong numbers under it are one kind
        marks = {f"{decided}: {'raises' if kind == 'raises' else 'differs'}"}
    else:
        if kind == "raises" and decided.startswith("pass"):  # a pass rewrites a whole graph: any error may follow
            kind = f"raises {finding.signature.pattern.split(' ')[0]}"
        # `x * 0` folded to 0 drops a NaN; that says nothing of a pass's other numbers
        if decided.startswith("pass") and finding.comparisons and all(map(_loses_nonfinite, finding.comparisons)):
            kind = "finite"
        what = f"{decided} of {' '.join(_kernels(program))}" if _holds_patterns(decided) else decided
        marks = {f"{stage}: {what}: {kind}", f"{stage}: {decided}: {_body(program)}"}
        if (kind == LEAF and written_leaves(program)) or (kind == NONFINITE and decided in _OTHER_MEMORY):
            marks.add(f"{stage}: {decided}: {WRONG_NUMBERS}")  # other numbers are there: chance whether finite ones
        if decided in _NEW:
            before = _before_switches(finding, program, stage, kind)
            marks, probes = marks | before[0], before[1]
    if diagnosed_by(finding) > 1:
        marks, probes = _by_version(decided, marks, probes)
    return Cause(stage, decided, kind, frozenset(marks | _by_words(finding, stage)), frozenset(probes))


def _by_version(decided: str, marks: set[str], probes: set[str]) -> tuple[set[str], set[str]]:
    """The same marks and probes, for a diagnosis that ran the switches: it has proved an operator to be the cause. An
    older diagnosis may have blamed that operator for another fault; such a mark stays a probe and ties nothing to this
    one."""
    proved = {f"proved {mark}" for mark in marks | (probes if not decided else set())}
    if decided.startswith("operator"):
        return proved, probes | marks
    return marks, probes | (proved if not decided else set())


# Causes that only switches can find. For a pass, precision and layout the bisector's words were the same.
_NEW = {s.decided for s in SWITCHES if s.kind not in ("fp fusion", "pass", "precision", "layout")}
# Those under which other elements of memory are read or written.
_OTHER_MEMORY = {s.decided for s in SWITCHES if s.kind in ("strides", "memory", FUNCTIONALIZATION)}


def _before_switches(finding: Finding, program: Program, stage: str, kind: str) -> tuple[set[str], set[str]]:
    """(marks, probes) that match variants diagnosed without switches (`diagnosed.DIAGNOSER` 1). For those, an operator
    that was left to ATen counted as the cause; here it does not, but those variants may have this cause."""
    names = [name.removesuffix(LEFT) for name in vanishing(finding) if name.endswith(LEFT)]
    decided = {*(f"operator {kernel(name)}" for name in names), *filter(None, [decided_before(finding)])}
    if decided:
        return set(), {f"{stage}: {what}: {kind}" for what in decided}
    return _by_program(finding, program, stage, kind)


def _holds_patterns(decided: str) -> bool:
    """Whether a pass holds patterns that have nothing in common, of which no experiment names one: the ops tell them
    apart."""
    return decided.startswith("pass pass_pattern_")


def _kernels(program: Program) -> list[str]:
    return list(dict.fromkeys(kernel(node.op) for node in program.nodes))


def _body(program: Program) -> str:
    """Leaves and ops as text: the route is left out, since the same body by another route is the same program."""
    leaves = [f"{leaf.dtype}{list(leaf.shape)}{list(leaf.stride)}" for leaf in program.leaves]
    return f"{' '.join(leaves)} {' '.join(node.op for node in program.nodes)}"


def group(causes: Iterable[tuple[str, Cause]]) -> list[list[str]]:
    """The names in groups: each shares its cause with another of its group, through any chain."""
    groups: list[list[tuple[str, Cause]]] = []
    for name, cause in causes:
        alike = [g for g in groups if any(cause.shares(other) for _, other in g)]
        others = [g for g in groups if g not in alike]
        groups = [*others, [*(entry for g in alike for entry in g), (name, cause)]]
    return [[name for name, _ in g] for g in groups]


# ---------------------------------------------------------------- stage and kind


def first_stage(finding: Finding) -> str:
    """Where the difference begins: the first backend from which on all differ. inductor's own stages count as inductor,
    since not all findings were run at them."""
    if finding.signature.verdict == "eager-suspect" or finding.side in (EAGER, EAGER_DIES):
        return KERNELS
    found = finding.place.get("backend", "inductor")
    for stage, seen in reversed(finding.stages.items()):
        if seen == "agree":
            break
        if not seen.startswith("not run"):
            found = stage
    return found.partition(":")[0]


def raised(finding: Finding) -> re.Match[str] | None:
    """(exception, the first words of its message) where the compiled side raised."""
    return re.match(r"the \w* ?raised (\w+): ?([^.;:,\[(]*)", finding.detail)


NUMBERS = tuple(pattern for pattern in VALUES if pattern != NONFINITE)
# Regions that run their statements as they are; any other region hooks, maps or differentiates its statements.
_CONTEXTS = ("autocast", "no_autocast", "ambient_autocast", "checkpoint", "no_grad")


def kind_of(finding: Finding) -> str:
    """The kind of difference, in broad classes."""
    pattern = finding.signature.pattern
    if raised(finding):
        return "raises"
    if pattern.endswith(CORRUPT_HEAP):
        return CORRUPT_HEAP
    if not finding.stages and pattern in ("None-ness", "all-zero"):
        return "no gradient"
    if pattern not in NUMBERS:
        return _dtypes(finding.detail) if pattern == "dtype" else pattern
    return "float32" if finding.comparisons and all(map(_in_float32, finding.comparisons)) else WRONG_NUMBERS


def _dtypes(detail: str) -> str:
    """How the dtype of a result changed."""
    widths = [int(bits) for bits in re.findall(r"is b?(?:float|complex)(\d+)", detail)]
    return "dtype" if len(widths) != 2 else "wider dtype" if widths[0] > widths[1] else "narrower dtype"


_FLOAT32_UNIT = 2.0**-23
_FLOAT64_FLOOR = 1e-12  # relative: floors of float64 lie 4 digits below, those of float32 6 above


def _loses_nonfinite(c: Comparison) -> bool:
    """Whether an element is finite that should not be."""
    return not math.isfinite(c.float64) and math.isfinite(c.compiled)


def _in_float32(c: Comparison) -> bool:
    """Whether an element of float64, as its floor shows, is off by no more than float32's unit."""
    size = abs(c.float64)
    return 0 < c.floor < _FLOAT64_FLOOR * size and abs(c.compiled - c.eager) <= _FLOAT32_UNIT * size


# ---------------------------------------------------------------- by experiment


def decided_by(finding: Finding, program: Program, stage: str, kind: str) -> str:
    """The cause of the difference at the stage where it begins, by the most exact experiment; "" where none names
    one."""
    reason, _, what = finding.unsupported.partition(" ")
    own = [name for name, _ in program.settings if name not in DEMANDED]
    if reason and reason != "operator":
        return finding.unsupported
    if stage == KERNELS:
        return ""
    if reason:
        return f"operator {kernel(what.rpartition('.')[2])}"
    if own:  # a minimal program needs each of its settings
        return f"setting {' '.join(own)}"
    casting = ("autocast", "ambient_autocast")
    if "dtype" in kind and any(isinstance(s, Region) and s.kind in casting for s in program.body):
        return "region autocast"
    if not finding.stages and kind == "no gradient" and any(is_composite(node.op) for node in program.nodes):
        return "replaced kernels"
    switches = convicting(finding.ablation) if diagnosed_by(finding) > 1 else []
    return switches[0].decided if switches else _by_bisection(finding, stage)


def _by_bisection(finding: Finding, stage: str) -> str:
    vanishes = vanishing(finding)
    subsystem, info = _bisected(finding) if stage != _TRACED[0] else ("", "")
    if any(name == "fp fusion off" or name.endswith("contract_flag=off") for name in vanishes):
        return "fp fusion"
    if subsystem.endswith("_passes"):
        return f"pass {next((name for name in vanishes if name in _passes()), info)}"
    if subsystem not in ("", "lowerings", "decomposition"):
        return f"pass {subsystem}"
    ops = [info, *(name.removesuffix(LEFT) for name in vanishes if name.endswith(LEFT))]
    return next((f"operator {kernel(op)}" for op in ops if op), "")


def vanishing(finding: Finding) -> list[str]:
    """The single changes that make a finding's difference vanish."""
    return [name for name, seen in finding.ablation.items() if gone(seen)]


def _passes() -> list[str]:
    """Changes that switch off one pass and nothing else."""
    return [switch.name for switch in SWITCHES if switch.kind in ("pass", "layout")]


def _bisected(finding: Finding) -> tuple[str, str]:
    """(subsystem, part of it) at which the bisector ended; a lowering's node and a decomposition's overload by op."""
    told = re.match(r"\w+: (\w+), number \d+, ([^;]*)", finding.diagnosis.get("bisector", ""))
    subsystem, info = told.groups() if told else ("", "")
    if subsystem == "decomposition":
        overload = re.search(r"aten\.\w+", info)
        return subsystem, overload[0] if overload else info
    return subsystem, re.sub(r"(_default)?(_\d+)?$", "", info) if subsystem == "lowerings" else info


# ---------------------------------------------------------------- by program and words


def _by_program(finding: Finding, program: Program, stage: str, kind: str) -> tuple[set[str], set[str]]:
    """(marks, probes) where experiments name only the stage: the kernels of the minimal program, and the regions that
    hook or differentiate them, since the program would agree without them."""
    names = list(dict.fromkeys([*_kernels(program), *transforms(program)]))
    if kind == DROPPED:  # whatever the op
        names = [HOOK]
    stages, kinds = [stage], [kind]
    if stage == KERNELS:
        stages = [f"{stage}@{device}" for device in _devices(finding)]
    elif re.search(r"expected size \d+==\d+, stride \d+==\d+", finding.detail):
        # Strides other than a fake kernel promised: only inductor's code checks them, so the stage means nothing, and
        # where inductor raises, other code would return wrong numbers.
        stages, kinds = [*_TRACED, "inductor"], ["raises", "numbers"]
    telling = [name for name in names if name not in PLAIN_OPS]
    if stage in _TRACED and not telling:  # any op can trigger it: the region must be the same
        kinds = [finding.signature.pattern]
    each, whole = (
        {f"{s}: operator {name}: {k}" for s in stages for name in some for k in kinds}
        for some in (telling or names, [" ".join(names)])
    )
    return (whole, each) if len(names) > 1 else (each, set())


def _devices(finding: Finding) -> list[str]:
    """The devices whose kernels may be at fault."""
    subject = finding.place.get("device", "cpu")
    reference = finding.place.get("against", "").partition("@")[2] or subject
    sides = {EAGER: {reference}, COMPILED: {subject}}
    # a comparison of replays is made on the CPU
    return sorted(sides.get(finding.side, {subject, reference, "cpu"}))


_WRAPPERS = ("TorchRuntimeError", "Unsupported", "LoweringException", "AcceleratorError")  # around other exceptions


def transforms(program: Program) -> list[str]:
    """The kinds of the program's regions that hook, map or differentiate their statements."""
    return [s.kind for s in statements(program.body) if isinstance(s, Region) and s.kind not in _CONTEXTS]


def hook_is_dropped(finding: Finding, program: Program) -> bool:
    """Whether each gradient that differs is what it would be without the factor by which a hook scales it. Factors are
    powers of two (`regions`), so that the product is exact."""
    hooks = [s for s in statements(program.body) if isinstance(s, Region) and s.kind == HOOK]
    scales = [scale for hook in hooks if isinstance(scale := dict(hook.attrs).get("scale"), float)]
    told = finding.comparisons
    return bool(told) and any(all(c.compiled * scale == c.eager for c in told) for scale in scales)


def mixes_writes(program: Program) -> bool:
    """Whether the program writes a gradient into a leaf without one, and something else into another leaf. A compiled
    call may then give each leaf what belongs to the other: any difference can follow, under any ops."""
    gaining = gaining_leaves(program)
    return bool(gaining) and not gaining.issuperset(written_leaves(program))


def _by_words(finding: Finding, stage: str) -> set[str]:
    """Marks from a tracer's message: it names the broken rule, whatever the operator. An assertion's message does
    not."""
    said = raised(finding) if stage in _TRACED else None
    if said is None or not said[2] or said[1] in ("AssertionError", *_WRAPPERS):
        return set()
    return {"says: " + re.sub(r"\d+", "#", said[2])}
