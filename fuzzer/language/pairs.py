"""Pairs of operations, maker and reader of a value, found in a program's text without parsing it."""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAF = "leaf"  # the maker of a value that no operation made

_STATEMENT = re.compile(r"^ *([\w, ]+) = (\w+)\((.*)\)$", re.MULTILINE)
_NAME = re.compile(r"\b[a-z]\w*\b(?! *[=(])")


def pairs(text: str) -> frozenset[tuple[str, str]]:
    """(maker, reader) for each operand of each operation of a canonical text; LEAF made the leaves."""
    return frozenset(_pairs(text))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    made: dict[str, str] = {}
    for results, op, arguments in _STATEMENT.findall(text):
        if op not in ("leaf", "leaf_view"):
            for name in _NAME.findall(arguments):
                if name in made:
                    yield made[name], op
        made |= dict.fromkeys(results.split(", "), LEAF if op in ("leaf", "leaf_view") else op)
