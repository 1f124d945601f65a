"""What is new and what is rare, of the features of programs; which program shows a feature best."""

from __future__ import annotations

import heapq
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fuzzer.features import FAMILIES, LINES, Features

# A campaign meets some ten thousand features of these; in this many places few of them meet another. Packed they are
# 21 KiB (33 for 40,000), which travel with a task: less than a pipe holds, so that nobody waits for a reader.
PLACES = 1 << 17
MOST = 255
SIZE_POWER = 0.0  # measured: docs/guidance.md


class Seen:
    """How many programs showed a feature, by its number; up to 255, features that share a place counted together.

    packed: what another one gave. Raises ValueError where it is no such thing.
    """

    def __init__(self, packed: bytes = b""):
        try:
            self.counts = bytearray(zlib.decompress(packed) if packed else PLACES)
        except zlib.error as error:
            raise ValueError(f"no packed counts of features: {error}") from None

    def __getitem__(self, feature: int) -> int:
        return self.counts[feature % PLACES]

    def add(self, features: Features) -> None:
        """Count a program that was compiled."""
        self.count(before(features))

    def count(self, numbers: Iterable[int]) -> None:
        """One more program showed these."""
        for place in {number % PLACES for number in numbers}:
            self.counts[place] = min(self.counts[place] + 1, MOST)

    def packed(self) -> bytes:
        """All counts, compressed: equal counts give equal bytes."""
        huffman = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)  # hashed places repeat nothing
        return huffman.compress(bytes(self.counts)) + huffman.flush()


def before(features: Features) -> frozenset[int]:
    """Those that are known before the program is compiled: by them candidates are compared."""
    return frozenset().union(*(features.get(family, ()) for family in FAMILIES))


def novelty(features: Iterable[int], seen: Seen, power: float = SIZE_POWER) -> float:
    """How rare these are: the sum of 1 / (1 + programs that showed it), over their number to this power."""
    found = list(features)
    return sum(1 / (1 + seen[feature]) for feature in found) / max(len(found), 1) ** power


# ---------------------------------------------------------------- the frontier


@dataclass(frozen=True, order=True)
class Kept:
    """A program that showed something first, smaller and faster ones before others.

    nodes of its text; seconds that the compiled side took.  features: packed, because a campaign of days keeps tens of
    thousands of programs with some hundred each, and sets take 15 times as much memory.
    """

    nodes: int
    seconds: float
    id: str
    features: Mapping[str, Collection[int]] = field(compare=False, default_factory=dict)


def packed(numbers: Iterable[int]) -> Collection[int]:
    """Numbers of features, in order, in eight bytes each."""
    return array("Q", sorted(numbers))


STILL = 200  # programs


class Frontier:
    """For each feature the smallest, fastest of the kept programs that show it; when each family last brought one."""

    def __init__(self) -> None:
        self.best: dict[int, Kept] = {}  # a feature's number says its family too (`features.number`)
        # the keys of `best`, in order, but lines: who else shows one is not known
        self.found = array("Q")
        self.families: Counter[str] = Counter()
        self.moved: dict[str, int] = {}
        self.programs = 0

    def new(self, features: Features) -> Counter[str]:
        """How many of these no program showed before, by family."""
        return Counter(f for f, numbers in features.items() for number in numbers if number not in self.best)

    def told(self, family: str, numbers: Iterable[int]) -> frozenset[int]:
        """Those that count for a program: of lines, of which a worker tells what is new to it, those new here too."""
        known = self.best if family in LINES else ()
        return frozenset(number for number in numbers if number not in known)

    def count(self) -> None:
        """One more program was compiled."""
        self.programs += 1

    def add(self, kept: Kept) -> None:
        """Enter a program for each feature that it is the first or the best to show."""
        for family, numbers in kept.features.items():
            for number in numbers:
                known = self.best.get(number)
                if known is None:
                    if family not in LINES:
                        self.found.append(number)
                    self.families[family] += 1
                    self.moved[family] = self.programs
                if known is None or kept < known:
                    self.best[number] = kept

    def still(self, families: Iterable[str]) -> list[str]:
        """Of these families those that brought nothing new for some time, though they did before."""
        return [f for f in families if f in self.moved and self.programs - self.moved[f] >= STILL]

    def dried_up(self, family: str, share: float = 1.0) -> bool:
        """Whether a family that gets rare by nature has brought nothing for longer than that explains.

        What is left of it comes ever more slowly, at best as 1 / programs: then as much is due in every doubling of the
        programs. So: nothing new since half of them. share: of the programs that can show it.
        """
        moved = self.moved.get(family, 0)
        return bool(moved) and self.programs - moved >= max(STILL / share, moved)

    def silent(self, families: Iterable[str], share: float = 1.0) -> list[str]:
        """Of these families those of which no program showed anything, after enough that can (this share)."""
        return [f for f in families if f not in self.moved and self.programs * share >= STILL // 4]


def covering(programs: Sequence[Kept]) -> list[Kept]:
    """Few programs that show every feature that these show: always the one next that shows most of what is missing.

    Of equals the smallest, fastest. (The greedy rule for set cover; the smallest set is hard to find.)
    """
    ordered = sorted(programs)
    own = [{number for numbers in kept.features.values() for number in numbers} for kept in ordered]
    missing = set[int]().union(*own)
    waiting = [(-len(shown), n) for n, shown in enumerate(own)]
    heapq.heapify(waiting)
    chosen: list[Kept] = []
    while missing:
        _, n = heapq.heappop(waiting)
        gain = -len(own[n] & missing), n
        if waiting and waiting[0] < gain:  # it shows less by now than when it was counted: back in the row
            heapq.heappush(waiting, gain)
            continue
        chosen.append(ordered[n])
        missing -= own[n]
    return chosen
