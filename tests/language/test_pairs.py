"""Pairs of operations, read off the text."""

from __future__ import annotations

from pathlib import Path

from fuzzer.language.pairs import LEAF, pairs
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
