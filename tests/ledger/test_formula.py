"""Formulas are found where ratios have one, and claimed nowhere else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fuzzer.ledger.formula import Row, condition, fit

SIZES = [(20, 7, 5), (6, 2, 1), (3, 1, 1), (9, 4, 2), (7, 3, 1), (12, 5, 3)]


def table(ratio: Callable[[int, int], float], off: float = 0.0) -> list[Row]:
    return [({"x0.shape[1]": n, "end": k, "start": s}, ratio(n, k) * (1 + off)) for n, k, s in SIZES]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (lambda n, k: n / (n - k), "n / (n - k), n = x0.shape[1], k = end"),
        (lambda n, k: 1 / n, "1 / n, n = x0.shape[1]"),
        (lambda n, k: n, "n, n = x0.shape[1]"),
        (lambda n, k: (k + 1) / n, "(n + 1) / k, n = end, k = x0.shape[1]"),
        (lambda n, k: n * k, "n * k, n = end, k = x0.shape[1]"),
    ],
    ids=["share", "inverse", "itself", "one-more", "product"],
)
def test_the_formula_of_a_table_is_found_also_where_sums_were_rounded(
    ratio: Callable[[int, int], float], text: str
) -> None:
    for off in (0.0, 3e-7):
        found = fit(table(ratio, off))
        assert found is not None
        assert sorted(str(found).split(", ")) == sorted(text.split(", "))


def test_a_formula_gives_each_row_its_value() -> None:
    found = fit(table(lambda n, k: n / (n - k)))
    assert found is not None
    assert found.values[0] == 20 / 13


def test_the_simplest_formula_is_claimed() -> None:
    rows = [({"a": n, "b": n + 1, "c": 1}, float(n)) for n in (2, 3, 5, 9)]
    found = fit(rows)
    assert found is not None
    assert str(found) == "n, n = a"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        table(lambda n, k: n / (n - k))[:3],
        [*table(lambda n, k: n / (n - k)), ({"x0.shape[1]": 8, "end": 4, "start": 0}, 2.001)],
        table(lambda n, k: 2.0),
        table(lambda n, k: (n / (n - k)) ** 0.5),
        [({"x0.shape[1]": 4, "end": 1, "start": 0}, r) for r in (1.5, 2.5, 3.5, 4.5)],
    ],
    ids=["none", "too-few", "one-row-off", "always-the-same", "no-quotient", "nothing-varies"],
)
def test_no_formula_is_claimed_of_too_little_or_of_what_fits_none(rows: list[Row]) -> None:
    assert fit(rows) is None


def test_a_number_that_some_rows_lack_is_in_no_formula() -> None:
    rows = table(lambda n, k: n / (n - k))
    del rows[2][0]["end"]  # type: ignore[attr-defined]
    assert fit(rows) is None


def test_of_random_ratios_hardly_any_table_has_a_formula() -> None:
    rng = random.Random(0)

    def drawn() -> Row:
        return {name: rng.randint(1, 12) for name in "abcdef"}, rng.randint(1, 12) / rng.randint(1, 12)

    claimed = sum(fit([drawn() for _ in range(5)]) is not None for _ in range(200))
    assert claimed <= 2


@pytest.mark.parametrize(
    ("inside", "outside", "text"),
    [
        ([{"n": 5}, {"n": 9}], [{"n": 4}, {"n": 1}], "n >= 5"),
        ([{"n": 1}, {"n": 2}], [{"n": 3}], "n <= 2"),
        ([{"n": 1}, {"n": 2}], [{"n": 4}], ""),
        ([{"n": 8, "s": 0}, {"n": 5, "s": 0}], [{"n": 9, "s": 2}], "s = 0"),
        ([{"n": 0}], [{"n": 1}, {"n": -1}], "n = 0"),
        ([{"n": 2}, {"n": 4}], [{"n": 3}], "n != 3"),
        ([{"n": 3, "k": 1}, {"n": 6, "k": 2}], [{"n": 1, "k": 1}, {"n": 3, "k": 3}], "n > k"),
        ([{"n": 3, "k": 1}, {"n": 6, "k": 2}], [{"n": 3, "k": 1}], ""),
        ([{"n": 3}], [], ""),
        (
            [{"k": 3, "n": 9}, {"k": 2, "n": 9}, {"k": 3, "n": 18}],
            [{"k": 3, "n": 8}, {"k": 1, "n": 9}, {"k": 3, "n": 1}],
            "k >= 2 and n >= 9",
        ),
    ],
)
def test_a_condition_holds_for_all_rows_inside_and_for_none_outside(
    inside: list[dict[str, int]], outside: list[dict[str, int]], text: str
) -> None:
    assert condition(inside, outside) == text
