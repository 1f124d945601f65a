"""Which features are new, and for each feature the best program that has it."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fuzzer.coverage.features import LINES, Features


@dataclass(frozen=True, order=True)
class KeptProgram:
    """A program that was the first with some feature. Programs are ordered by nodes, then seconds; the smaller is the
    better.

    nodes      in its text.
    seconds    wall time of the compiled side.
    features   ids by family, as packed arrays: a campaign of days keeps tens of thousands of programs with some hundred
               features each, and sets take 15 times as much memory.
    """

    nodes: int
    seconds: float
    id: str
    features: Mapping[str, NDArray[np.uint64]] = field(compare=False, default_factory=dict)


def packed(numbers: Iterable[int]) -> NDArray[np.uint64]:
    """Ids of features as a sorted array."""
    return np.sort(np.fromiter(numbers, np.uint64))


STALL_PROGRAMS = 200  # programs without a new feature, after which a family counts as stalled


class Frontier:
    """For each feature the best kept program that has it; how many features each family has, and when the last one
    came.

    best       by a feature's id, which says its family too (`features.feature_id`).
    families   number of features by family;  last_new: the program with which the last one came, counted from 1.
    programs   that were compiled.
    features   ids in the order in which they came, but of LINES: of a line it is not known who else has it.
    """

    def __init__(self) -> None:
        self.best: dict[int, KeptProgram] = {}
        self.families: Counter[str] = Counter()
        self.last_new: dict[str, int] = {}
        self.programs = 0
        self.features = array("Q")

    def new(self, features: Features) -> Counter[str]:
        """How many of these features no kept program has, by family; families with none are left out."""
        return Counter(f for f, numbers in features.items() for number in numbers if number not in self.best)

    def countable(self, family: str, numbers: Iterable[int]) -> frozenset[int]:
        """The features that count for a program: all of them, but only new ones of lines, which are reported once a
        process."""
        known = self.best if family in LINES else ()
        return frozenset(number for number in numbers if number not in known)

    def count(self) -> None:
        """Count one more compiled program."""
        self.programs += 1

    def add(self, kept: KeptProgram) -> None:
        """Enter a program for each feature of which it is the first or the best program."""
        for family, numbers in kept.features.items():
            for number in numbers.tolist():
                known = self.best.get(number)
                if known is None:
                    self.families[family] += 1
                    self.last_new[family] = self.programs
                    if family not in LINES:
                        self.features.append(number)
                if known is None or kept < known:
                    self.best[number] = kept

    def stalled(self, families: Iterable[str]) -> list[str]:
        """Those of these families that have features, but none new for STALL_PROGRAMS programs."""
        return [f for f in families if f in self.last_new and self.programs - self.last_new[f] >= STALL_PROGRAMS]

    def saturated(self, family: str, share: float = 1.0) -> bool:
        """Whether a family whose features come ever more rarely had no new one in the second half of the programs.

        At best new features come as 1 / programs: the same number in every doubling of the programs.

        share: of the programs, those that can show the family.
        """
        last = self.last_new.get(family, 0)
        return bool(last) and self.programs - last >= max(STALL_PROGRAMS / share, last)

    def absent(self, families: Iterable[str], share: float = 1.0) -> list[str]:
        """The families among these without any feature, once STALL_PROGRAMS / 4 programs could show one (share)."""
        return [f for f in families if f not in self.last_new and self.programs * share >= STALL_PROGRAMS // 4]


def set_cover(programs: Sequence[KeptProgram]) -> list[KeptProgram]:
    """A small selection of these programs that has every feature: greedy set cover; of equals the smaller, faster
    program."""
    ordered = sorted(programs)
    own = _indices([np.concatenate([*kept.features.values(), packed(())]) for kept in ordered])
    missing = np.ones(1 + max((int(shown.max(initial=-1)) for shown in own), default=-1), bool)
    waiting = [(-len(shown), n) for n, shown in enumerate(own)]
    heapq.heapify(waiting)
    chosen: list[KeptProgram] = []
    while missing.any():
        _, n = heapq.heappop(waiting)
        gain = -int(missing[own[n]].sum()), n
        if waiting and waiting[0] < gain:  # gains less now than when it was counted: put back
            heapq.heappush(waiting, gain)
            continue
        chosen.append(ordered[n])
        missing[own[n]] = False
    return chosen


def _indices(programs: Sequence[NDArray[np.uint64]]) -> list[NDArray[np.intp]]:
    """The features of each program, each once, as indices into the sorted features of all."""
    every = np.unique(np.concatenate([*programs, packed(())]))
    return [np.searchsorted(every, np.unique(shown)) for shown in programs]
