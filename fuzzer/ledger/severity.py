"""How severe a fault is, from facts that the ledger holds, with a reason for each.

S1  silently wrong, in code that people write.       S2  silently wrong, in rare code.
S3  something raises, dies or costs too much: people notice.
S4  only numbers at an edge differ: infinities, NaN, subnormals, the sign of zero.
S5  not to post: torch promises nothing, or it takes several unusual things to see something raise.

A finding has points, ten to a level; within a level the rarest things that its program needs tell. A fault has the
points of its most severe finding. `scripts/bench severity` holds this order against a maintainer's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fuzzer.judgement.verdict import CORRUPT_HEAP, NARROWING, OF_EAGER, Comparison, Finding, Signature
from fuzzer.language.program import Leaf, Program, Region, Route, statements, writable
from fuzzer.language.text import parse
from fuzzer.ledger.cause import DEMANDED

MOST_SEVERE = 10  # points
_LOUD, _EDGE, _LEAST = 3, 4, 5  # levels
RARE_SILENT, RARE_LOUD = 2, 4  # weights of rare things that take what is silent to S2, and what is loud to S5
_EDGES = ("nonfinite", "huge", "subnormal", "signed_zeros")  # recipes of values


@dataclass(frozen=True)
class Severity:
    """points    10 to 59, the least the most severe: ten times the level, and one to nine for what is rare.
    reasons   why the level is not 1, and what is rare."""

    points: int
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return label(self.points)


def label(points: int) -> str:
    """A severity in two characters: 27 points are S2."""
    return f"S{points // 10}"


@dataclass(frozen=True)
class Facts:
    """A finding, as far as its severity depends on it."""

    signature: Signature
    program: Program
    worst: Comparison | None  # of the elements that differ the first
    unsupported: str


@dataclass(frozen=True)
class Rare:
    """Something rare that a program may need. weight   how rare;  of   the thing, "" where it is not needed."""

    name: str
    weight: int
    of: Callable[[Facts], str]


def severity_of(finding: Finding) -> Severity:
    """The severity of a finding."""
    return severity(finding.signature, finding.program, finding.comparisons, finding.unsupported)


def severity(
    signature: Signature,
    program: str,
    comparisons: Sequence[Comparison],
    unsupported: str,
    things: Sequence[Rare] | None = None,
) -> Severity:
    """The severity of a finding with these fields; things   RARE, with other weights."""
    facts = Facts(signature, parse(program), next(iter(comparisons), None), unsupported)
    needed = [(thing.weight, told) for thing in things or RARE if (told := thing.of(facts))]
    weight, why = sum(weight for weight, _ in needed), [told for _, told in needed]
    level = 2 if weight >= RARE_SILENT else 1
    for told, least in ((_loud(facts), _LEAST if weight >= RARE_LOUD else _LOUD), (_at_an_edge(facts), _EDGE),
                        (_unpromised(facts), _LEAST)):  # fmt: skip
        if told:
            level, why = max(level, least), [told, *why]
    return Severity(10 * level + min(weight, 9), tuple(why))


# ---------------------------------------------------------------- levels


def _loud(facts: Facts) -> str:
    signature = facts.signature
    if signature.verdict == "crashes":  # a corrupt heap may go unnoticed for long
        return "" if CORRUPT_HEAP in signature.pattern else "it dies"
    return {"raises": "it raises", "hangs": "it hangs", "costly": "it costs too much"}.get(signature.verdict, "")


def _at_an_edge(facts: Facts) -> str:
    if facts.signature.verdict in ("nonfinite-differs", "signed-zero", "rounding-sensitive", NARROWING):
        return "numbers differ at an edge alone"
    if recipe := next((leaf.values.name for leaf in facts.program.leaves if leaf.values.name in _EDGES), ""):
        return f"values at an edge ({recipe})"
    if any(_extreme(number) for leaf in facts.program.leaves for number in numbers_of(leaf)):
        return "values at an edge"
    if facts.worst is not None and not (math.isfinite(facts.worst.eager) and math.isfinite(facts.worst.float64)):
        return "the number itself is at an edge"
    return ""


def numbers_of(leaf: Leaf) -> Iterator[float]:
    """The numbers that a leaf's recipe states."""
    for value in leaf.values.args:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float):
                yield number


def _extreme(number: float) -> bool:
    return not math.isfinite(number) or abs(number) > 1e15 or 0 < abs(number) < 1e-30


def _unpromised(facts: Facts) -> str:
    if facts.unsupported:
        return f"torch promises nothing about this {facts.unsupported}"
    if any(_overlaps(leaf) for leaf in facts.program.leaves):
        return "elements of an input lie on one another"
    return ""


def _overlaps(leaf: Leaf) -> bool:
    """Whether elements share places otherwise than by a broadcast, which people write."""
    broadcast = any(step == 0 and size > 1 for size, step in zip(leaf.shape, leaf.stride, strict=True))
    return not (broadcast or writable(leaf.type))


# ---------------------------------------------------------------- what is rare


def _setting(facts: Facts) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.program.settings if name not in DEMANDED)


def _eager_alone(facts: Facts) -> str:
    return "eager alone raises" if facts.signature.pattern.startswith(OF_EAGER) else ""


def _region(facts: Facts) -> str:
    return ", ".join(sorted({s.kind for s in statements(facts.program.body) if isinstance(s, Region)}))


def _dynamic(facts: Facts) -> str:
    return "dynamic sizes" if dict(facts.program.route.options).get("dynamic") else ""


def _metadata(facts: Facts) -> str:
    pattern = facts.signature.pattern
    return f"the {pattern} alone differs" if pattern in ("dtype", "shape", "storage") else ""


def _route(facts: Facts) -> str:
    return "" if facts.program.route.name == Route().name else f"route {facts.program.route.name}"


RARE = (
    Rare("setting", 4, _setting),
    Rare("route", 4, _route),
    Rare("eager alone", 4, _eager_alone),
    Rare("region", 2, _region),
    Rare("dynamic", 2, _dynamic),
    Rare("metadata", 2, _metadata),
)
