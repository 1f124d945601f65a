"""The formula behind a table of ratios: 20/13 = n / (n - k). The search covers few simple formulas and claims one
seldom.

A formula is a quotient of two terms. A term is 1, a number of the table, one more or less than it, or the sum,
difference or product of two. The simplest formula that fits every row is claimed; with fewer than four different
ratios none is, since some formula fits those by chance.
"""

from __future__ import annotations

import bisect
import itertools
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Numbers = Mapping[str, int]
Row = tuple[Numbers, float]  # the numbers of a row by name, and its ratio

LEAST = 4  # fewer different ratios fit some formula by chance
# Sums of f32 elements that cancel to a hundredth are off by some 1e-5; fractions of sizes below 100 differ by 1e-4.
_TOLERANCE = 2e-5


@dataclass(frozen=True)
class Formula:
    """A quotient of two terms over named numbers, and its values for the rows of the search."""

    text: str
    names: tuple[str, ...]
    values: tuple[float, ...]

    @property
    def letters(self) -> dict[str, str]:
        """The letter of each number that the text has."""
        return dict(zip(self.names, _LETTERS, strict=False))

    def __str__(self) -> str:
        """`n / (n - k), n = x0.shape[1], k = end`."""
        return ", ".join([self.text, *(f"{letter} = {name}" for name, letter in self.letters.items())])


_LETTERS = "nkmpqrstuvwxyz" + string.ascii_uppercase


@dataclass(frozen=True)
class _Term:
    """A template over letters, the columns it takes, its value for each row, and its complexity."""

    text: str
    columns: tuple[str, ...]
    values: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.columns) + any(c in self.text for c in "+-*")


def fit(rows: Sequence[Row]) -> Formula | None:
    """The simplest formula that gives every row's ratio, none of which is 0; None where there is none, or too few
    ratios."""
    if len({f"{ratio:.4g}" for _, ratio in rows}) < LEAST:
        return None
    terms, ratios = list(_terms([numbers for numbers, _ in rows])), [ratio for _, ratio in rows]
    found = min(_fitting(terms, ratios), default=None)
    if found is None:
        return None
    over, under = (terms[i] for i in found[1:])
    return _formula(over, under, tuple(a / b for a, b in zip(over.values, under.values, strict=True)))


def _fitting(terms: Sequence[_Term], ratios: Sequence[float]) -> Iterator[tuple[int, int, int]]:
    """(complexity, dividend, divisor) of all quotients of terms that fit. The first row leaves few divisors to try."""
    divisors = sorted((term.values[0], i) for i, term in enumerate(terms))
    for i, over in enumerate(terms):
        wanted = over.values[0] / ratios[0]
        slack = 2 * _TOLERANCE * abs(wanted)
        near = slice(bisect.bisect_left(divisors, (wanted - slack,)), bisect.bisect_left(divisors, (wanted + slack,)))
        for _, j in divisors[near]:
            if _fits(over.values, terms[j].values, ratios):
                yield over.size + terms[j].size, i, j


def _fits(over: Sequence[int], under: Sequence[int], ratios: Sequence[float]) -> bool:
    return all(
        b and abs(a / b - ratio) <= _TOLERANCE * abs(ratio) for a, b, ratio in zip(over, under, ratios, strict=True)
    )


def _terms(rows: Sequence[Numbers]) -> Iterator[_Term]:
    """Every term over the numbers that all rows have and that differ between rows, each column once."""
    columns: dict[tuple[int, ...], str] = {}
    for name in rows[0]:
        values = tuple(row[name] for row in rows if name in row)
        if len(values) == len(rows) and len(set(values)) > 1:
            columns.setdefault(values, name)
    ones = (1,) * len(rows)
    yield _Term("1", (), ones)
    for values, name in columns.items():
        yield _Term("{}", (name,), values)
        yield _Term("{} - 1", (name,), tuple(v - 1 for v in values))
        yield _Term("{} + 1", (name,), tuple(v + 1 for v in values))
    for (one, name), (two, other) in itertools.permutations(columns.items(), 2):
        pairs = list(zip(one, two, strict=True))
        yield _Term("{} - {}", (name, other), tuple(a - b for a, b in pairs))
        if name < other:
            yield _Term("{} + {}", (name, other), tuple(a + b for a, b in pairs))
            yield _Term("{} * {}", (name, other), tuple(a * b for a, b in pairs))


def _formula(over: _Term, under: _Term, values: tuple[float, ...]) -> Formula:
    names = tuple(dict.fromkeys((*over.columns, *under.columns)))
    letters = Formula("", names, ()).letters
    told = [term.text.format(*(letters[name] for name in term.columns)) for term in (over, under)]
    if told[1] == "1":
        return Formula(told[0], names, values)
    parts = [f"({text})" if " " in text else text for text in told]
    return Formula(" / ".join(parts), names, values)


# ---------------------------------------------------------------- conditions


def condition(inside: Sequence[Numbers], outside: Sequence[Numbers]) -> str:
    """A condition on one number or two that all rows inside meet and none outside: `n >= 5`, `k != n`, `n >= 5 and
    k >= 2`; "" where there is none.

    Both sides need rows. A threshold is claimed only where both numbers next to it were tried; a relation of two
    numbers only where both sides have several rows.
    """
    if not inside or not outside:
        return ""
    names = [name for name in inside[0] if all(name in row for row in (*inside, *outside))]
    columns = [(name, {r[name] for r in inside}, {r[name] for r in outside}) for name in names]
    singles = (_of_one(*column) for column in sorted(columns, key=lambda column: len(column[1])))
    pairs = itertools.permutations(names, 2) if min(len(inside), len(outside)) > 1 else ()
    doubles = (_of_two(a, b, inside, outside) for a, b in pairs)
    return next(filter(None, itertools.chain(singles, doubles, _thresholds(names, inside, outside))), "")


def _thresholds(names: Sequence[str], inside: Sequence[Numbers], outside: Sequence[Numbers]) -> Iterator[str]:
    """Two thresholds, both of which all rows inside reach."""
    least = {name: min(row[name] for row in inside) for name in names}
    known = [name for name in names if any(row[name] == least[name] - 1 for row in outside)]
    for a, b in itertools.combinations(known, 2):
        if all(row[a] < least[a] or row[b] < least[b] for row in outside):
            yield f"{a} >= {least[a]} and {b} >= {least[b]}"


def _of_one(name: str, inside: set[int], outside: set[int]) -> str:
    if inside & outside:
        return ""
    if len(inside) == 1:
        return f"{name} = {min(inside)}"
    if min(inside) == max(outside) + 1:
        return f"{name} >= {min(inside)}"
    if max(inside) == min(outside) - 1:
        return f"{name} <= {max(inside)}"
    return f"{name} != {min(outside)}" if len(outside) == 1 and min(inside) < min(outside) < max(inside) else ""


def _of_two(a: str, b: str, inside: Sequence[Numbers], outside: Sequence[Numbers]) -> str:
    if all(row[a] > row[b] for row in inside) and not any(row[a] > row[b] for row in outside):
        return f"{a} > {b}"
    if all(row[a] >= row[b] for row in inside) and not any(row[a] >= row[b] for row in outside):
        return f"{a} >= {b}"
    if all(row[a] != row[b] for row in inside) and not any(row[a] != row[b] for row in outside):
        return f"{a} != {b}"
    return ""
