"""What is new and what is rare, of the features of programs."""

from __future__ import annotations

from collections.abc import Iterable

from fuzzer.features import FAMILIES, Features

# A campaign meets some ten thousand features of these; in this many places few of them meet another. 128 KiB travel
# with a task.
PLACES = 1 << 17
MOST = 255
SIZE_POWER = 0.5


class Seen:
    """How many programs showed a feature, by its number; up to 255, features that share a place counted together."""

    def __init__(self, counts: bytes = bytes(PLACES)):
        self.counts = bytearray(counts)

    def __getitem__(self, feature: int) -> int:
        return self.counts[feature % PLACES]

    def add(self, features: Features) -> None:
        """Count a program that was compiled."""
        for place in {feature % PLACES for feature in before(features)}:
            self.counts[place] = min(self.counts[place] + 1, MOST)

    def __bytes__(self) -> bytes:
        return bytes(self.counts)


def before(features: Features) -> frozenset[int]:
    """Those that are known before the program is compiled: by them candidates are compared."""
    return frozenset().union(*(features.get(family, ()) for family in FAMILIES))


def novelty(features: Iterable[int], seen: Seen, power: float = SIZE_POWER) -> float:
    """How rare these are: the sum of 1 / (1 + programs that showed it), over their number to this power."""
    found = list(features)
    return sum(1 / (1 + seen[feature]) for feature in found) / max(len(found), 1) ** power
