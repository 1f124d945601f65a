"""The clusters of a campaign: suspects whose cores have one key are taken for one fault until an experiment says
otherwise."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fuzzer.campaign.suspects.core import Key
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.language.program import Program

_T = TypeVar("_T")
# Suspects of one key that are kept beside the first: it is decided by its first, and one of the others is held against
# its fault.
MOST_OTHERS = 8
# Of these, those that are kept once it is decided: the furthest from the first is held against its fault, and another
# only where it is told apart.
MOST_DOUBTFUL = 2
# Suspects of one key that may come to nothing, one after the other, before the rest is given up.
MOST_FRUITLESS = 2


@dataclass
class Cluster:
    """The suspects of one key.

    first   that is decided for all;  others  those that joined it by their key, at most `room`.
    told    the line about it once code showed it; "" before.
    fault   that explains it; "" where none does.
    over    whether no suspect of it is looked into any more.
    idle    whether its first came to nothing and no other is there; the next that joins is its first.
    doubted whether another of it was held against its fault.
    fruitless  suspects of it that came to nothing.
    """

    first: Suspect
    others: list[Suspect] = field(default_factory=list)
    told: str = ""
    fault: str = ""
    over: bool = False
    idle: bool = False
    doubted: bool = False
    fruitless: int = 0

    @property
    def furthest(self) -> Suspect | None:
        """The other suspect whose program has least in common with the first; None where there is none."""
        return max(self.others, key=self._distance, default=None)

    def _distance(self, other: Suspect) -> tuple[float, str]:
        """How little another has in common with the first; its text decides between equals."""
        return distance(self.first.program, other.program), other.text

    @property
    def room(self) -> int:
        """The most others that it keeps: two once a fault explains it, none once it is over without one."""
        if self.over:
            return MOST_DOUBTFUL if self.fault else 0
        return MOST_OTHERS

    def surplus(self) -> list[Suspect]:
        """The others for which it has no room, which it gives up: those nearest to the first."""
        if len(self.others) <= self.room:
            return []
        kept = heapq.nlargest(self.room, self.others, key=self._distance)
        given_up = [other for other in self.others if other not in kept]
        self.others = kept
        return given_up

    @property
    def members(self) -> list[Suspect]:
        """All that are kept of it."""
        return [self.first, *self.others]


def distance(one: Program, other: Program) -> float:
    """How little two programs have in common, from 0 to 1: of the ops, dtypes, route and settings that either has, the
    share that only one has."""
    a, b = _traits(one), _traits(other)
    return len(a ^ b) / len(a | b)


def _traits(program: Program) -> set[str]:
    made = {*(node.op for node in program.nodes), *(leaf.dtype for leaf in program.leaves)}
    return made | {program.route.name, *(name for name, _ in program.settings)}


class Clusters:
    """The clusters that are kept, by the key of their cores, in the order in which they were last met.

    made  how many there ever were; one that was forgotten and comes again counts again.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[Key, str], Cluster] = {}
        self.made = 0

    def __iter__(self) -> Iterator[Cluster]:
        return iter(list(self.found.values()))

    def __len__(self) -> int:
        return len(self.found)

    def of(self, suspect: Suspect) -> Cluster:
        """The cluster of a sorted suspect; a new one where its key is new, or it was told apart from the others."""
        name = _name(suspect)
        cluster = self.found.pop(name, None)
        self.made += cluster is None
        self.found[name] = cluster = cluster or Cluster(suspect)
        return cluster

    def __contains__(self, suspect: Suspect) -> bool:
        """Whether there is a cluster for a sorted suspect."""
        return _name(suspect) in self.found

    def forget(self, suspect: Suspect) -> Cluster | None:
        """Forget the cluster of a sorted suspect, and return it; None where there is none."""
        return self.found.pop(_name(suspect), None)

    def forget_decided(self, most: int) -> list[Cluster]:
        """Forget those that were not met for longest of more than so many that are decided, or wait for nothing; return
        them."""
        decided = [cluster for cluster in self if cluster.over or cluster.idle]
        return [gone for cluster in decided[: max(0, len(decided) - most)] if (gone := self.forget(cluster.first))]


def _name(suspect: Suspect) -> tuple[Key, str]:
    """The name of a sorted suspect's cluster."""
    assert suspect.core is not None
    return suspect.core.key, suspect.text if suspect.apart else ""


def firsts_first(things: Sequence[_T], suspect_of: Callable[[_T], Suspect | None]) -> list[_T]:
    """The same things in another order: of those whose suspects have one key the first, then the others."""
    met: set[Key] = set()
    firsts, others = list[_T](), list[_T]()
    for thing in things:
        suspect = suspect_of(thing)
        key = None if suspect is None or suspect.core is None else suspect.core.key
        (others if key in met else firsts).append(thing)
        met |= set() if key is None else {key}
    return firsts + others
