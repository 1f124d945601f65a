"""Proposals for people: faults that look like one, and findings that look like a fault of their own.

Read from stored facts alone: causes, programs, signatures, notes, issues, scopes. A proposal decides nothing; a person
types its command or does not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from fuzzer.judgement.verdict import Finding
from fuzzer.language.program import PLAIN_OPS, Program
from fuzzer.language.text import parse
from fuzzer.ledger.cause import KERNELS, decided_by, first_stage, kind_of, raised, transforms
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.faults import OPEN, Fault
from fuzzer.ledger.kernel import kernel
from fuzzer.ledger.listing import urgency
from fuzzer.ledger.recognise import STAGE, Question, kernels_of, known_fault
from fuzzer.ledger.rulings import MERGE, SPLIT
from fuzzer.ledger.scope import Scope
from fuzzer.ledger.states import combined
from fuzzer.ledger.switches import AGREE


@dataclass(frozen=True)
class Proposal:
    """A merge or a split that the ledger's facts suggest, and why.

    faults    of a MERGE those to make one, the first keeps its id; of a SPLIT the one to split.
    variants  of a SPLIT those that would be split off.
    """

    kind: str
    faults: tuple[str, ...]
    variants: tuple[str, ...]
    why: str

    @property
    def command(self) -> str:
        """The command that carries it out."""
        return f"backfuzz triage --{self.kind} {' '.join((*self.faults, *self.variants))}"


@dataclass(frozen=True)
class _Facts:
    """A variant with all that proposals compare."""

    finding: Finding
    scope: Scope | None

    @cached_property
    def program(self) -> Program:
        return parse(self.finding.program)

    @cached_property
    def stage(self) -> str:
        return first_stage(self.finding)

    @cached_property
    def decided(self) -> str:
        """The cause by experiment (`cause.decided_by`); "" where no compiler ran, since torch is asked there."""
        finding = self.finding
        return decided_by(finding, self.program, self.stage, kind_of(finding)) if finding.stages else ""

    @cached_property
    def kind(self) -> str:
        """The kind of difference; of an exception its type."""
        said = raised(self.finding)
        return said[1] if said else kind_of(self.finding)

    @property
    def shows(self) -> str:
        """The kind of difference and its direction."""
        return f"{self.kind}, {self.finding.signature.direction}"

    @property
    def pattern(self) -> str:
        """The pattern after a comma, of an exception the two innermost functions; "" where the kind tells it."""
        told = " < ".join(self.finding.signature.pattern.split(" < ")[:3]).removeprefix(self.kind)
        return f", {told.removeprefix(' < ')}" if told else ""

    @cached_property
    def regions(self) -> str:
        """The regions that hook, map or differentiate the program's statements."""
        return " ".join(sorted(set(transforms(self.program))))

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of the program but for those that any program may have."""
        return tuple(dict.fromkeys(name for node in self.program.nodes if (name := kernel(node.op)) not in PLAIN_OPS))

    @cached_property
    def families(self) -> set[str]:
        """The words of which the names of the kernels are made, but for those of many families of ops."""
        return {word for name in self.kernels for word in name.split("_")} - _PLAIN_WORDS

    @property
    def device(self) -> str:
        """Where eager's own kernels are at fault, the type of their device; each type has its own."""
        return self.finding.place.get("device", "").partition(":")[0] if self.stage == KERNELS else ""

    def answers(self, question: Question) -> bool:
        """Whether the finding's diagnosis ran this experiment, and it ended as the question expects."""
        stage = question.name.removeprefix(STAGE)
        seen = self.finding.stages.get(stage, "") if stage != question.name else self.finding.ablation.get(stage, "")
        return bool(seen) and not seen.startswith("not run") and (seen == AGREE) is question.agrees

    @property
    def formula(self) -> str:
        """The wrong numbers as a multiple of the right ones; "" where no scope has a formula."""
        formula = self.scope.formula if self.scope is not None else None
        return formula.text if formula is not None else ""


def proposals(
    faults: Iterable[Fault],
    variants: Mapping[str, Sequence[Finding]],
    scopes: Mapping[str, Scope],
    apart: Collection[frozenset[str]] = (),
) -> list[Proposal]:
    """What the facts suggest, the most urgent fault first; nothing about faults that are none.

    variants  of each fault, by its id, the one that represents it first.  scopes  by the id of a variant.
    apart     the pairs of faults that people ruled to be two: no merge is proposed for them.
    """
    told = sorted((fault for fault in faults if fault.state.name != "not-a-fault"), key=urgency)
    facts = {f.id: [_Facts(v, scopes.get(v.id)) for v in variants[f.id]] for f in told}
    return [*_merges(told, facts, apart), *_splits(told, facts)]


# ---------------------------------------------------------------- merges

_SAME = re.compile(r"\b(?:as|[Tt]he same as) (F[0-9a-f]{7}(?:(?:, | and )F[0-9a-f]{7})*)")  # in a note


def _merges(
    told: Sequence[Fault], facts: Mapping[str, Sequence[_Facts]], apart: Collection[frozenset[str]]
) -> Iterator[Proposal]:
    """One proposal for each set of faults, those by notes first; a set that is part of one before it is left out."""
    there, seen = {fault.id: fault for fault in told}, list[set[str]]()
    for why, names in [*_by_note(told), *_by_experiment(told, facts), *_by_facts(told, facts)]:
        for some in _mergeable([there[name] for name in names if name in there], apart):
            if len(some) > 1 and not any(set(some) <= other for other in seen):
                seen.append(set(some))
                yield Proposal(MERGE, tuple(some), (), why)


def _mergeable(faults: Sequence[Fault], apart: Collection[frozenset[str]]) -> list[list[str]]:
    """The faults in groups that may be merged: their states do not contradict each other, and nobody ruled them
    apart."""
    groups = list[list[Fault]]()
    for fault in faults:
        for group in groups:
            try:
                combined({one.id: one.state for one in [*group, fault]})
            except StoreError:
                continue
            if not any(frozenset((one.id, fault.id)) in apart for one in group):
                group.append(fault)
                break
        else:
            groups.append([fault])
    return [[fault.id for fault in group] for group in groups]


def _by_note(told: Iterable[Fault]) -> Iterator[tuple[str, list[str]]]:
    """Faults whose notes call them one, through any chain: `as F9cbc40c and Fcdf832c`."""
    groups = list[list[str]]()
    for fault in told:
        for found in _SAME.finditer(fault.state.note):
            named = [*re.findall(r"F[0-9a-f]{7}", found[1]), fault.id]
            alike = [group for group in groups if set(group) & set(named)]
            one = list(dict.fromkeys(name for group in [*alike, named] for name in group))
            groups = [*(group for group in groups if group not in alike), one]
    for group in groups:
        yield f"notes say: as {group[0]}", group


def _by_experiment(told: Iterable[Fault], facts: Mapping[str, Sequence[_Facts]]) -> Iterator[tuple[str, list[str]]]:
    """Faults of which one is gone where the cause of the other is: the diagnosis of one made the change that tests the
    other's cause (`recognise.Known`), with the same result."""
    tested = [
        known
        for fault in told
        for known in known_fault(fault.id, [one.finding for one in facts[fault.id] if one.finding.stages])
        if known.telling
    ]
    for fault in told:
        one = facts[fault.id][0]
        for known in tested:
            if (
                known.fault != fault.id
                and known.shown_by(one.finding.signature)
                and any(needs & kernels_of(one.program) for needs in known.needs)
                and all(one.answers(question) for question in known.questions)
            ):
                change = known.questions[0].name
                yield f"both agree under one change: {change}", [known.fault, fault.id]


def _by_facts(told: Sequence[Fault], facts: Mapping[str, Sequence[_Facts]]) -> Iterator[tuple[str, list[str]]]:
    """Faults whose representatives begin at the same stage, show the same, and have one more thing in common."""
    alike = defaultdict[str, list[str]](list)
    similar = defaultdict[str, list[tuple[str, _Facts]]](list)
    for fault in told:
        one = facts[fault.id][0]
        place = " on ".join(filter(None, [one.stage, one.device]))
        what = f"{place}: {one.shows}{one.pattern}"
        similar[f"{what}, in {one.regions or 'no region'}"].append((fault.id, one))
        if one.regions:
            alike[f"{what}, in {one.regions}"].append(fault.id)
        if one.formula:
            alike[f"{what}, {one.formula} of what is right"].append(fault.id)
        for issue in fault.state.issue.split():
            alike[f"{place}: {one.shows}, issue {issue}"].append(fault.id)
    for what, some in similar.items():
        for (name, one), (other, another) in combinations(some, 2):
            if family := sorted(one.families & another.families):
                alike[f"{what}, ops of one family: {' '.join(family)}"] += [name, other]
    for why, names in alike.items():
        yield why, list(dict.fromkeys(names))


# Words in the names of many families of ops.
_PLAIN_WORDS = frozenset("all as even linear loss margin max min norm pool scalar tensor".split())


# ---------------------------------------------------------------- splits

# What variants of one cause have in common. Direction and ops are not among it: one cause shows in several.
_FACETS: Mapping[str, Callable[[_Facts], str]] = {
    "stage": lambda one: one.stage,
    "eager's kernels": lambda one: one.device,
    "cause": lambda one: one.decided,
    "class": lambda one: one.finding.signature.verdict,
    "shows": lambda one: one.kind,
    "regions": lambda one: one.regions or "none",
    "ratio": lambda one: one.formula,
}


def _splits(told: Iterable[Fault], facts: Mapping[str, Sequence[_Facts]]) -> Iterator[Proposal]:
    """For each open fault the groups of its variants that differ in the same way from the one that represents it."""
    for fault in told:
        if fault.state.name not in OPEN:
            continue
        first, *others = facts[fault.id]
        off = defaultdict[str, list[str]](list)
        for one in others:
            if differs := _differences(one, first):
                off["; ".join(differs)].append(one.finding.id)
        for why, names in off.items():
            yield Proposal(SPLIT, (fault.id,), tuple(names), why)


def _differences(one: _Facts, first: _Facts) -> list[str]:
    """The facets in which two variants differ, as far as both are known."""
    told = [(name, facet(one), facet(first)) for name, facet in _FACETS.items()]
    return [f"{name} {own}, not {other}" for name, own, other in told if own and other and own != other]
