"""What programs are asked for: evenly, each op once a round, by their numbers alone."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from fuzzer.coverage.cells import possible_cells
from fuzzer.coverage.wishes import Wishes, asked_cells
from fuzzer.generation.sets import SETS
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.generation.wish import Wish
from fuzzer.language.ops import REAL
from fuzzer.language.ops.spec import BEYOND, LARGE, UNHELD, ZERO, Limits
from fuzzer.language.values import ARANGE, AROUND, ENDS, NEAR, POSITIONS

LIMITS = Limits()
NUMBERS = range(4000)


@pytest.fixture(scope="module")
def asked() -> list[Wish]:
    """What the first programs are asked for, node by node."""
    wishes = Wishes(REAL, LIMITS, 7)
    return [wish for number in NUMBERS for wish in wishes.of(number)]


def test_every_op_is_asked_for_once_a_round_and_frequent_ones_come_first(asked: list[Wish]) -> None:
    rounds = [[wish.op for wish in asked[at : at + len(REAL)]] for at in range(0, 3 * len(REAL), len(REAL))]
    assert all(sorted(ops) == sorted(REAL) for ops in rounds)
    assert set(rounds[0][: len(SETS["core"])]) == set(SETS["core"])
    assert rounds[0] != rounds[1]


def test_programs_hold_as_many_nodes_as_in_a_blind_campaign() -> None:
    wishes = Wishes(REAL, LIMITS, 7)
    sizes = Counter(len(wishes.of(number)) for number in range(490))
    assert sizes == {1: 200, 2: 100, 3: 70, 4: 50, 5: 40, 6: 30}


def test_dtypes_and_classes_are_asked_for_evenly(asked: list[Wish]) -> None:
    counts = Counter((wish.op, name, kind) for wish in asked for name, kind in wish.attributes.items())
    for op in ("softmax", "layer_norm", "sum", "conv2d"):
        for name, found in itertools.groupby(sorted(k for k in counts if k[0] == op), key=lambda k: k[1]):
            times = [counts[key] for key in found]
            assert max(times) - min(times) <= 1, (op, name)
    dtypes = Counter(wish.dtype for wish in asked if wish.op == "softmax")
    assert set(dtypes) == set(LIMITS.dtypes)


def test_most_cells_that_can_be_are_asked_for(asked: list[Wish]) -> None:
    named = {cell for wish in asked for cell in asked_cells(wish, REAL[wish.op])}
    for family, possible in possible_cells(REAL, LIMITS).items():
        found = {words for asked_family, words in named if asked_family == family}
        assert found <= possible.known, family
        assert len(found) > 0.8 * len(possible.known), family


def test_numbers_that_decide_are_asked_for_in_few_programs(asked: list[Wish]) -> None:
    placed = Counter(wish.values for wish in asked if wish.values in (AROUND, ENDS, NEAR, ARANGE, POSITIONS))
    assert min(placed[name] for name in (AROUND, ENDS, NEAR, ARANGE, POSITIONS)) > 5
    rare = Counter(kind for wish in asked for a in REAL[wish.op].attributes
                   if (kind := wish.attributes.get(a.name, "")) in a.classes)  # fmt: skip
    assert set(rare) == {UNHELD, LARGE, BEYOND, ZERO}
    assert placed.total() + rare.total() < 0.08 * len(asked)


def test_later_nodes_are_asked_to_read_what_came_before(asked: list[Wish]) -> None:
    assert {wish.link for wish in asked} == {"", "after", "beside"}
    assert {wish.reads for wish in asked if wish.op == "where" and wish.link} >= {0, 1}


def test_a_number_says_it_all_in_whatever_order_it_is_asked_for() -> None:
    forward, backward = Wishes(REAL, LIMITS, 3), Wishes(REAL, LIMITS, 3)
    assert [forward.of(n) for n in range(30)] == [backward.of(n) for n in reversed(range(30))][::-1]
    assert forward.of(5) != Wishes(REAL, LIMITS, 4).of(5)


def test_programs_go_on_in_blocks_that_need_nothing_of_the_blocks_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.coverage.wishes.BLOCK", 40)
    wishes, late = Wishes(REAL, LIMITS, 3), Wishes(REAL, LIMITS, 3)
    all_ = [wishes.of(number) for number in range(160)]
    assert late.of(130) == all_[130]
    assert [len(block.made) for block in late.blocks.values()] == [11]
    assert [late.of(number) for number in (5, 90, 35)] == [all_[number] for number in (5, 90, 35)]
    assert len(late.blocks) == 2
    firsts = [all_[begin : begin + 40] for begin in range(0, 160, 40)]
    assert len({str(block) for block in firsts}) == 4


def test_few_ops_are_enough() -> None:
    wishes = Wishes(vocabulary(LIMITS, ("exp", "sum")), LIMITS, 0)
    assert {wish.op for number in range(10) for wish in wishes.of(number)} == {"exp", "sum"}
