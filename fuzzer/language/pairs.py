"""Pairs of operations, maker and reader of a value, found in a program's text without parsing it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

LEAF = "leaf"  # the maker of a value that no operation made

_STATEMENT = re.compile(r"^ *([\w, ]+) = (\w+)\((.*)\)$", re.MULTILINE)
_NAME = re.compile(r"\b[a-z]\w*\b(?! *[=(])")


def pairs(text: str) -> frozenset[tuple[str, str]]:
    """(maker, reader) for each operand of each operation of a canonical text; LEAF made the leaves."""
    return frozenset(_pairs(text))


class PairCounts:
    """How many texts hold each pair. Once every operation was met, 4 bytes a pair are all that it takes, however many
    pairs are met: a campaign of weeks meets most of those that there are."""

    def __init__(self) -> None:
        self.place: dict[str, int] = {}  # of a reader in each row
        self.rows: dict[str, array[int]] = {}  # by maker

    def add(self, text: str) -> None:
        """Count the pairs of one canonical text."""
        for made, reads in pairs(text):
            row, place = self.rows.setdefault(made, array("I")), self.place.setdefault(reads, len(self.place))
            row.extend([0] * (place + 1 - len(row)))
            row[place] += 1

    def counted(self) -> dict[tuple[str, str], int]:
        """The texts that hold each pair, of the pairs that were met, in alphabetical order."""
        readers = [*self.place]
        met = {(made, readers[i]): n for made, row in self.rows.items() for i, n in enumerate(row) if n}
        return dict(sorted(met.items()))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    made: dict[str, str] = {}
    for results, op, arguments in _STATEMENT.findall(text):
        if op not in ("leaf", "leaf_view"):
            for name in _NAME.findall(arguments):
                if name in made:
                    yield made[name], op
        made |= dict.fromkeys(results.split(", "), LEAF if op in ("leaf", "leaf_view") else op)
