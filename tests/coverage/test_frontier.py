"""The frontier: what was shown, by which program, and the few programs that show it all."""

from __future__ import annotations

import random
from dataclasses import replace

from fuzzer.coverage.frontier import STALL_PROGRAMS, Frontier, KeptProgram, packed, set_cover
from tests.campaign.kept import kept


def test_the_frontier_names_the_smallest_then_the_fastest() -> None:
    frontier = Frontier()
    for one in (kept("a", 3, 1.0, 1, 2), kept("b", 2, 9.0, 1), kept("c", 2, 3.0, 1, 3), kept("d", 4, 0.1, 2)):
        frontier.add(one)
    assert {number: best.id for number, best in frontier.best.items()} == {1: "c", 2: "a", 3: "c"}


def test_features_are_listed_once_in_the_order_in_which_they_came_without_lines() -> None:
    frontier = Frontier()
    lines = {"source": packed({7, 8})}
    for one in (kept("a", 3, 1.0, 4, 2), replace(kept("b", 2, 1.0), features=lines), kept("c", 1, 1.0, 2, 3)):
        frontier.add(one)
    assert list(frontier.features) == [2, 4, 3]


def test_a_family_that_stands_still_or_sees_nothing_is_told() -> None:
    frontier = Frontier()
    frontier.add(kept("a", 1, 1.0, 1))
    assert not frontier.absent(["line"])
    for _ in range(STALL_PROGRAMS):
        frontier.count()
    assert frontier.stalled(["operand", "line"]) == ["operand"]
    assert frontier.absent(["operand", "line"]) == ["line"]


def test_few_programs_show_every_feature() -> None:
    drawn = random.Random(5)
    programs = [
        kept(f"p{n}", drawn.randint(1, 6), 1.0, *drawn.sample(range(60), drawn.randint(1, 12))) for n in range(80)
    ]
    chosen = set_cover(programs)
    assert all_of(chosen) == all_of(programs)
    assert len(chosen) < 20
    for one in chosen:
        assert all_of([one]) - all_of(chosen[: chosen.index(one)]), "each brings something"


def all_of(programs: list[KeptProgram]) -> set[int]:
    return {number for kept in programs for number in kept.features["operand"].tolist()}


def test_of_equals_the_smaller_program_is_taken() -> None:
    assert [k.id for k in set_cover([kept("a", 5, 1.0, 1, 2), kept("b", 2, 9.0, 1, 2), kept("c", 2, 1.0, 1, 2)])] == [
        "c"
    ]
    assert set_cover([]) == []
