"""Pairs of operations, read off the text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fuzzer.language.pairs import LEAF, PairCounts, pairs
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show

SEEDS = sorted((Path(__file__).parents[2] / "corpus" / "seeds").glob("*.prog"))


def by_parsing(program: Program) -> frozenset[tuple[str, str]]:
    made = {name: node.op for node in program.nodes for name in node.outs}
    return frozenset((made.get(name, LEAF), node.op) for node in program.nodes for name in node.uses)


def test_they_are_those_of_the_parsed_program_regions_and_several_results_among_them() -> None:
    programs = [parse(path.read_text()) for path in SEEDS]
    assert [pairs(show(p)) for p in programs] == [by_parsing(p) for p in programs]
    assert sum(len(by_parsing(p)) for p in programs) > 100


def test_texts_are_counted_by_the_pairs_that_they_hold() -> None:
    texts, counts = [path.read_text() for path in SEEDS], PairCounts()
    for text in (*texts, *texts[:3]):
        counts.add(text)
    told = counts.counted()
    assert told == Counter(pair for text in (*texts, *texts[:3]) for pair in pairs(text))
    assert [*told] == sorted(told)
