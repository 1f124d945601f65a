"""The scope of a fault: which neighbours of its program reproduce it, and how large the error is. Plain values and
text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from fuzzer.judgement.fraction import fraction
from fuzzer.judgement.verdict import ELEMENTS, SUMS, WORST
from fuzzer.language.program import DIFFERENTIABLE
from fuzzer.language.text import parse
from fuzzer.ledger.formula import Formula, condition, fit

FAILS, AGREES, OTHER, UNSAID = "fails", "agrees", "differs otherwise", "cannot be said"
PROGRAM = "program"  # the axis of the fault's own program, which is the first row


@dataclass(frozen=True)
class Row:
    """A neighbour and its result.

    axis, value  the change (`minimizer.neighbours`).
    outcome      FAILS, AGREES, OTHER, UNSAID;  why  the reason for the last two.
    error        the largest relative error that a reader sees; infinite where the right number is 0 or either number is
                 not finite, NaN where nothing was compared.
    eager, compiled   the worst element.
    ratios       wrong side / right side, by the quantity compared (ELEMENTS, ...).
    numbers      sizes and attributes of the program, by name.
    built        whether the result is that of a full compile; else a stage before the code decided.
    """

    axis: str
    value: str
    outcome: str
    program: str
    why: str = ""
    error: float = math.nan
    eager: float = math.nan
    compiled: float = math.nan
    ratios: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    built: bool = False

    @property
    def compared(self) -> bool:
        """Whether the neighbour fails with known numbers on both sides."""
        return self.outcome == FAILS and not math.isnan(self.error)


@dataclass(frozen=True)
class Scope:
    """The neighbours of a finding's natural program, measured once.

    torch, device   where they ran.  stage  the compiler's stage that judged them; "" where all were compiled in full.
    rows            the program itself, then axis by axis.
    """

    finding: str
    torch: str
    device: str
    stage: str
    created: str
    rows: tuple[Row, ...]

    def along(self, *axes: str) -> tuple[Row, ...]:
        """The rows of these axes."""
        return tuple(row for row in self.rows if row.axis in axes)

    @property
    def shapes(self) -> tuple[Row, ...]:
        """The failing rows of the shape table: the program itself, and those with other numbers."""
        return tuple(row for row in self.along(PROGRAM, *_SHAPES) if row.outcome == FAILS)

    def said(self, *axes: str) -> tuple[list[Row], list[Row]]:
        """The rows of these axes that fail, and those that agree."""
        rows = self.along(*axes)
        return [row for row in rows if row.outcome == FAILS], [row for row in rows if row.outcome == AGREES]

    @property
    def sizes(self) -> str:
        """The condition on sizes and attributes that all rows which fail meet, and none that agrees; "" where none is
        known."""
        fails, agrees = self.said(PROGRAM, *_SHAPES)
        return condition([row.numbers for row in fails], [row.numbers for row in agrees])

    @property
    def told_by(self) -> str:
        """The quantity whose ratios the table shows: the first that a formula fits, else the first that most rows
        have."""
        return self._told[0]

    @property
    def formula(self) -> Formula | None:
        """The formula for the ratios of all rows where the wrong side is not zero; None where none is claimed."""
        return self._told[1]

    @cached_property
    def _told(self) -> tuple[str, Formula | None]:
        kinds = [kind for kind in (ELEMENTS, SUMS, WORST) if any(_ratio(row, kind) for row in self.shapes)]
        for kind in kinds:
            if found := self._formula(kind):
                return kind, found
        counts = {kind: sum(kind in row.ratios for row in self.shapes) for kind in kinds}
        return max(kinds, key=lambda kind: counts[kind], default=ELEMENTS), None

    def _formula(self, kind: str) -> Formula | None:
        rows = [row for row in self.shapes if _ratio(row, kind) != 0]
        if any(kind not in row.ratios for row in rows):
            return None
        return fit([(row.numbers, row.ratios[kind]) for row in rows])

    @property
    def summary(self) -> str:
        """The scope in one line: `fails in f32 and f64; any layout of 4 tried; the wrong sum is the right one times n /
        (n - k), n = x0.shape[1], k = end; zero where start = 0`."""
        parts = [_dtypes(self), *_sizes(self), *(_any(self, axis) for axis in ("layout", "route", "setting", "device"))]
        return "; ".join([*filter(None, parts), *_ratios(self)])


_SHAPES = ("size", "attribute")


def _ratio(row: Row, kind: str) -> float | None:
    return row.ratios.get(kind)


def dtypes(scope: Scope) -> tuple[list[str], list[str]]:
    """The dtypes in which the fault reproduces, the program's own first, and those in which it does not."""
    own = {leaf.dtype for leaf in parse(scope.rows[0].program).leaves if leaf.dtype in DIFFERENTIABLE}
    fails, agrees = ([row.value for row in rows] for rows in scope.said("dtype"))
    return [*sorted(own), *fails] if len(own) == 1 else fails, agrees


def _dtypes(scope: Scope) -> str:
    fails, agrees = dtypes(scope)
    return (f"fails in {listed(fails)}" if fails else "") + (f", not in {listed(agrees)}" if agrees and fails else "")


def _any(scope: Scope, axis: str) -> str:
    """`any layout`, or the layouts in which the fault does not reproduce."""
    fails, agrees = ([row.value for row in rows] for rows in scope.said(axis))
    if agrees:
        return _NOT[axis].format(listed(agrees))
    return f"any {axis} of {len(fails)} tried" if len(fails) > 1 else f"{axis} {fails[0]} too" if fails else ""


_NOT = {
    "layout": "not where inputs are {}",
    "route": "not with {}",
    "setting": "gone with {}",
    "device": "not on {}",
}


def _sizes(scope: Scope) -> list[str]:
    """The sizes and attributes with which the fault reproduces."""
    if len(scope.along(PROGRAM, *_SHAPES)) < 2:
        return []
    fails, agrees = scope.said(PROGRAM, *_SHAPES)
    if not agrees:
        return [f"any of {len(fails)} sizes and attributes tried"] if fails else []
    if scope.sizes:
        return [f"where {scope.sizes}"]
    return [f"{len(fails)} of {len(fails) + len(agrees)} sizes and attributes tried"]


def _ratios(scope: Scope) -> list[str]:
    """The wrong numbers as a multiple of the right ones."""
    kind, rows = scope.told_by, scope.shapes
    zero, others = ([r.numbers for r in rows if (r.ratios.get(kind) == 0) is said] for said in (True, False))
    told = [f"{_MULTIPLE[kind]} times {scope.formula}"] if scope.formula is not None else []
    if zero and not others:
        return [*told, "zero is left"]
    found = condition(zero, others)
    return [*told, f"zero where {found}"] if found else told


_MULTIPLE = {
    ELEMENTS: "wrong numbers are the right ones",
    SUMS: "the wrong sum is the right one",
    WORST: "the worst number is the right one",
}


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# ---------------------------------------------------------------- tables


def scope_rows(scope: Scope) -> list[tuple[str, ...]]:
    """A row for each neighbour under SCOPE_HEAD; where a stage judged the others, full compiles are marked."""
    return [
        (
            row.axis,
            row.value,
            f"{row.outcome}{': ' if row.why else ''}{row.why}{', built' if scope.stage and row.built else ''}",
            *((error_text(row.error), *map(_number, (row.eager, row.compiled))) if row.compared else ("",) * 3),
        )
        for row in scope.rows
    ]


SCOPE_HEAD = ("axis", "changed to", "outcome", "largest relative error", "eager", "compiled")


def _number(value: float) -> str:
    return f"{value:.6g}"


def error_text(error: float) -> str:
    """A relative error for people; 0 is an error within the usual tolerances."""
    return "infinite" if math.isinf(error) else f"{error:.3g}" if error else "passes assert_close"


def shape_head(scope: Scope) -> tuple[str, ...]:
    """The columns of the shape table: the numbers that vary, the ratio, the formula's value."""
    formula = (scope.formula.text,) if scope.formula else ()
    of = {ELEMENTS: "", SUMS: " (sums)", WORST: " (worst element)"}[scope.told_by]
    return (*_varied(scope.shapes), f"wrong / right{of}", *formula)


def shape_rows(scope: Scope) -> list[tuple[str, ...]]:
    """A row for each size and attribute that fails, under `shape_head`, zero results last; no rows where fewer than two
    ratios are known."""
    kind, formula, names = scope.told_by, scope.formula, _varied(scope.shapes)
    rows = sorted((row for row in scope.shapes if kind in row.ratios), key=lambda row: row.ratios[kind] == 0)
    if len(rows) < _LEAST_SHAPES:
        return []
    given = iter(formula.values if formula else ())
    found = []
    for row in rows:
        ratio = row.ratios[kind]
        predicted = ((f"{next(given):.6g}" if ratio else "") if formula else None,)
        cells = (*(str(row.numbers.get(name, "")) for name in names), fraction(ratio))
        found.append((*cells, *(p for p in predicted if p is not None)))
    return found


_LEAST_SHAPES = 2


def _varied(rows: Iterable[Row]) -> list[str]:
    held = [row.numbers for row in rows]
    names = list(dict.fromkeys(name for numbers in held for name in numbers))
    return [name for name in names if len({numbers.get(name) for numbers in held}) > 1]


# ---------------------------------------------------------------- JSON


def encode_scope(scope: Scope) -> dict[str, Any]:
    """A scope as plain values, with its summary and formula; numbers that JSON does not know are strings."""
    rows = [asdict(row) for row in scope.rows]
    for row in rows:
        row |= {name: _plain(row[name]) for name in _FLOATS}
        row["ratios"] = {kind: _plain(ratio) for kind, ratio in row["ratios"].items()}
    formula = "" if scope.formula is None else str(scope.formula)
    return {**asdict(replace(scope, rows=())), "rows": rows, "summary": scope.summary, "formula": formula}


_FLOATS = ("error", "eager", "compiled")


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def decode_scope(fields: dict[str, Any]) -> Scope:
    """The scope that `encode_scope` wrote."""
    rows = tuple(_row(row) for row in fields["rows"])
    return Scope(**{key: fields[key] for key in ("finding", "torch", "device", "stage", "created")}, rows=rows)


def _row(fields: dict[str, Any]) -> Row:
    floats = {name: float(fields[name]) for name in _FLOATS}
    return Row(**fields | floats | {"ratios": {kind: float(ratio) for kind, ratio in fields["ratios"].items()}})
