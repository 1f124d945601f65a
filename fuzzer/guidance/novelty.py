"""How rare the features of a program are, among those that were compiled so far."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fuzzer.coverage.features import TRACE_FAMILIES, Features

# A campaign meets some ten thousand features of these; in this many places few of them meet another. Packed they are
# 21 KiB (33 for 40,000), which travel with a task: less than a pipe holds, so that nobody waits for a reader.
SLOTS = 1 << 17
MAX_COUNT = 255
_SIZE_POWER = 0.0  # measured: docs/guidance.md


class FeatureCounts:
    """How many programs showed a feature, by its number; up to 255, features that share a place counted together.

    packed: what another one gave. Raises ValueError where it is no such thing.
    """

    def __init__(self, packed: bytes = b""):
        try:
            self.counts = np.frombuffer(bytearray(zlib.decompress(packed) if packed else SLOTS), np.uint8)
        except zlib.error as error:
            raise ValueError(f"no packed counts of features: {error}") from None

    def __getitem__(self, feature: int) -> int:
        return int(self.counts[feature % SLOTS])

    def counts_of(self, numbers: Iterable[int]) -> NDArray[np.uint8]:
        """The counts of these, in their order."""
        return self.counts[_places(numbers)]

    def add(self, features: Features) -> None:
        """Count a program that was compiled."""
        self.count(trace_features(features))

    def count(self, numbers: Iterable[int]) -> None:
        """One more program showed these."""
        places = _places(numbers)
        counts = self.counts[places]
        self.counts[places] = counts + (counts < MAX_COUNT)  # of a place that occurs twice, each is the same count

    def packed(self) -> bytes:
        """All counts, compressed: equal counts give equal bytes."""
        huffman = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)  # hashed places repeat nothing
        return huffman.compress(self.counts.tobytes()) + huffman.flush()


def _places(numbers: Iterable[int]) -> NDArray[np.intp]:
    return (np.fromiter(numbers, np.uint64) % SLOTS).astype(np.intp)


def trace_features(features: Features) -> frozenset[int]:
    """Those that are known before the program is compiled: by them candidates are compared."""
    return frozenset().union(*(features.get(family, ()) for family in TRACE_FAMILIES))


def novelty(features: Iterable[int], seen: FeatureCounts, power: float = _SIZE_POWER) -> float:
    """How rare these are: the sum of 1 / (1 + programs that showed it), over their number to this power."""
    found = list(features)
    rarity = (1 / (1 + seen.counts_of(found).astype(np.float64))).tolist()  # summed in order: numpy sums in parts
    return sum(rarity) / max(len(found), 1) ** power
