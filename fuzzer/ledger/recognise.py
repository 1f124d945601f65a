"""Recognise a suspect as a known fault before it is minimized, by its signature, its ops and the results of
experiments.

Nothing runs here. An experiment has its name in a diagnosis (`Finding.ablation`), or is a stage; its result is the
class that the suspect shows under it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fuzzer.judgement.verdict import UNSUPPORTED, Finding, Signature
from fuzzer.language.program import Node, Program, Route
from fuzzer.ledger.cause import (
    COPIED,
    DROPPED,
    KERNELS,
    LEAF,
    LEFT,
    MIXED,
    NUMBERS,
    RESET,
    WITHOUT,
    Cause,
    cause_of,
    mixes_writes,
    parsed,
    transforms,
)
from fuzzer.ledger.kernel import kernel
from fuzzer.ledger.switches import AGREE, SWITCHES

NOT_RUN = "not run"  # how the answer of an experiment that could not be run begins
STAGE = "stage "  # prefix of an experiment that is a stage
ROUTE = "route "  # prefix of what a program chooses of its route
_MANY = (*NUMBERS, LEAF)  # patterns that faults of many causes share
MOST_QUESTIONS = 2  # for one fault
MOST_FAULTS = 3  # with which a suspect is compared


@dataclass(frozen=True)
class Question:
    """An experiment, and whether the suspect must agree (show no difference) under it."""

    name: str
    agrees: bool


# Asked where eager's own kernels are at fault. Every such fault answers it alike: the kernels tell which one it is.
WITHOUT_COMPILER = Question(STAGE + KERNELS, False)


@dataclass(frozen=True)
class Known:
    """The variants of a fault that one set of experiments identifies, for comparison with suspects.

    signatures  of the variants.  needs   `needs_of` each variant's program.
    questions   experiments that separate the variants from others, the most telling first; each must end as expected.
    telling     whether one of them tests the fault's cause, and not only its stage.
    """

    fault: str
    signatures: frozenset[Signature]
    needs: frozenset[frozenset[str]]
    questions: tuple[Question, ...]
    telling: bool

    def shown_by(self, signature: Signature) -> bool:
        """Whether a suspect with this signature can be the fault. Where no experiment tests the cause, the oracle must
        be the same; where nothing is tested but that the last stage is the first to differ, or a region, the pattern
        too. Leaves that are mixed up may show anything."""
        first = self.questions[0].name
        if first == COPIED:
            return True
        if first.startswith(WITHOUT):
            return any((own.oracle, own.pattern) == (signature.oracle, signature.pattern) for own in self.signatures)
        if self.telling:
            return any(_like(own, signature) for own in self.signatures)
        same = [own for own in self.signatures if own.oracle == signature.oracle]
        if len(self.questions) == 1 or ":" in self.questions[-1].name:
            return any(own.pattern == signature.pattern for own in same)
        return any(_like(own, signature) for own in same)

    def held_by(self, held: Collection[str]) -> bool:
        """Whether a program that holds all this (`needs_of`) has all that some variant needs; where an experiment tests
        the cause, all but that in whose place something else of its kind may stand."""
        return any(own <= set(held) or (self.telling and self._akin(own, set(held))) for own in self.needs)

    def _akin(self, own: frozenset[str], held: set[str]) -> bool:
        """Whether a program holds those of a variant's kernels for which no other can stand. Elementwise functions
        stand for each other, and routes do. Beside a region that is at fault views do, too, and elementwise functions
        of several operands; beside leaves that are mixed up all kernels do."""
        own = frozenset(name for name in own if not name.startswith(ROUTE))
        if MIXED in own and self.questions[0].name == COPIED:
            return MIXED in held
        if not self.questions[0].name.startswith(WITHOUT):
            return bool(own - elementwise()) and own - elementwise() <= held
        views = kernels_of_families(*VIEWS)
        rest = own - views - kernels_of_families(*POINTWISE)
        return bool(rest) and rest <= held and (own.isdisjoint(views) or not held.isdisjoint(views))


def known_fault(fault: str, variants: Iterable[Finding]) -> list[Known]:
    """A fault as `Known`s: one for each set of experiments that identifies some of its variants."""
    told: dict[tuple[Question, ...], list[Finding]] = {}
    for variant in variants:
        cause = cause_of(variant)
        telling = _decisive(variant, cause) or _about_program(variant, parsed(variant.program), cause)
        asked = tuple((telling + _stages(variant, cause))[:MOST_QUESTIONS])
        told.setdefault(asked, []).append(variant)
    return [
        Known(
            fault,
            frozenset(v.signature for v in some),
            frozenset(frozenset(needs_of(parsed(v.program))) for v in some),
            questions,
            not questions[0].name.startswith(STAGE),
        )
        for questions, some in told.items()
        if questions
    ]


@functools.cache
def elementwise() -> frozenset[str]:
    """The kernels of elementwise functions."""
    from fuzzer.language.ops import OPS

    return frozenset(kernel(spec.name) for spec in OPS.values() if spec.elementwise)


VIEWS, POINTWISE = ("view", "split"), ("pointwise", "activation", "binary", "ternary")  # families of ops


@functools.cache
def kernels_of_families(*families: str) -> frozenset[str]:
    """The kernels of the ops of these families."""
    from fuzzer.language.ops import OPS

    return frozenset(kernel(spec.name) for spec in OPS.values() if spec.family in families)


def kernels_of(program: Program) -> set[str]:
    """The kernels of a program's ops, what hooks or transforms them, and `MIXED`; a `mode` chooses among several
    (interpolate's, grid_sample's)."""
    mixed = {MIXED} if mixes_writes(program) else set()
    return {*(_called(node) for node in program.nodes), *transforms(program), *mixed}


def needs_of(program: Program) -> set[str]:
    """What a program holds that a fault may need: its kernels, and its route with the route's options where they are
    not the default. A minimal program keeps these only if the difference needs them."""
    return {*kernels_of(program), *_chosen(program.route)}


def _chosen(route: Route) -> set[str]:
    """A route's name, and its options, unless they are the default."""
    name = set() if route.name == Route().name else {ROUTE + route.name}
    return {*name, *(f"{ROUTE}{option}={value}" for option, value in route.options)}


def _called(node: Node) -> str:
    """The kernel that a node calls."""
    mode = dict(node.attrs).get("mode")
    return kernel(node.op) if mode is None else f"{kernel(node.op)} {mode}"


def _decisive(finding: Finding, cause: Cause) -> list[Question]:
    """A single change that removes the difference and tests the finding's cause, and one that leaves out a part of the
    same feature and does not."""
    decided = cause.decided
    kind, _, what = decided.partition(" ")
    about: dict[str, Callable[[str], bool]] = {
        "operator": lambda name: name.endswith(LEFT) and kernel(name.removesuffix(LEFT)) == what,
        "setting": lambda name: name.endswith(RESET) and name.removesuffix(RESET) in what.split(),
        "pass": lambda name: name == what or name.startswith(f"inductor.{what.removeprefix('inductor_')}="),
        "fp": lambda name: name.startswith("fp fusion") or "contract_flag" in name,
    }
    switches = [switch for switch in SWITCHES if switch.decided == decided]
    names = {switch.name for switch in switches}
    agree = [name for name, seen in finding.ablation.items() if seen == AGREE]
    found = [Question(n, True) for n in agree if n in names or (kind in about and about[kind](n))][:1]
    return found + [Question(switch.holds, False) for switch in switches if switch.holds and found]


def _about_program(finding: Finding, program: Program, cause: Cause) -> list[Question]:
    """A change of the program that removes what the difference needs beside its ops: writes into leaves, a hook that is
    dropped, the region in which the program crashes. A minimal program needs each of these, so that it agrees under the
    change without a run."""
    if MIXED in cause.marks:
        return [Question(COPIED, True)]
    if cause.decided or (cause.kind != DROPPED and finding.signature.verdict != "crashes"):
        return []
    return [Question(WITHOUT + kind, True) for kind in transforms(program)[:1]]


def _stages(finding: Finding, cause: Cause) -> list[Question]:
    """The suspect differs at the stage where the difference begins, and agrees at the one before. Where eager's own
    kernels are at fault, it differs without a compiler."""
    stage, names = cause.stage, [name for name in finding.stages if ":" not in name]
    if stage == KERNELS and finding.signature.verdict == "eager-suspect":
        return [WITHOUT_COMPILER]
    if stage == KERNELS or stage not in names:
        return []
    before = names[names.index(stage) - 1] if names.index(stage) else ""
    asked = [Question(STAGE + before, True)] * (before != "")
    if stage != names[-1]:
        return [*asked, Question(STAGE + stage, False)]
    # the suspect itself ran at the last stage, which has stages of its own
    parts = [n for n, seen in finding.stages.items() if n.startswith(f"{stage}:") and not seen.startswith(NOT_RUN)]
    return [*asked, *(Question(STAGE + name, finding.stages[name] == AGREE) for name in parts[:1])]


def _like(own: Signature, shown: Signature) -> bool:
    """Whether two signatures may belong to one fault: all wrong numbers may, whatever their pattern and direction."""
    if own.oracle != shown.oracle or (UNSUPPORTED in (own.verdict, shown.verdict) and own.verdict != shown.verdict):
        return own.pattern in NUMBERS and shown.pattern in NUMBERS and own.verdict == shown.verdict
    return own.pattern == shown.pattern or (own.pattern in NUMBERS and shown.pattern in NUMBERS)


def candidates(signature: Signature, held: Collection[str], known: Iterable[Known]) -> list[Known]:
    """The faults that a suspect may be, the likeliest first, at most `MOST_FAULTS`.

    Either its program holds all that some variant needs, or its signature equals a variant's and is neither just wrong
    numbers nor an input that was overwritten.

    held   `needs_of` the suspect's program.
    """
    likely = [
        k
        for k in known
        if k.shown_by(signature)
        and (k.held_by(held) or (k.telling and signature in k.signatures and signature.pattern not in _MANY))
    ]
    likely.sort(key=lambda k: (not k.held_by(held), signature not in k.signatures, not k.telling, k.fault))
    return likely[:MOST_FAULTS]


def recognise(
    signature: Signature, held: Collection[str], known: Iterable[Known], answer: Callable[[str], str]
) -> str | None:
    """The fault that explains a suspect; None where none does.

    held     `needs_of` the suspect's program.
    answer   runs the experiment of this name on the suspect and returns the class; "" where the experiment cannot be
             run, which explains nothing. It is called at most once for each name.
    """
    told: dict[str, str] = {}

    def agrees(name: str) -> bool | None:
        if name not in told:
            told[name] = answer(name)
        return None if not told[name] or told[name].startswith(NOT_RUN) else told[name] == AGREE

    found = (k for k in candidates(signature, held, known) if all(agrees(q.name) is q.agrees for q in k.questions))
    return next((k.fault for k in found), None)
