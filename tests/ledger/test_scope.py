"""What a scope says in a line, in its tables and in JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from fuzzer.judgement.verdict import ELEMENTS, SUMS
from fuzzer.ledger.scope import (
    AGREES,
    OTHER,
    UNSAID,
    Row,
    decode_scope,
    encode_scope,
    scope_rows,
    shape_head,
    shape_rows,
)
from tests.ledger.varied import SHAPES, row, scope, sized


def test_the_summary_tells_each_axis_and_the_formula() -> None:
    said = scope(
        *SHAPES,
        row("dtype", "bf16"),
        row("dtype", "f64", AGREES),
        row("layout", "transposed"),
        row("layout", "expanded"),
        row("route", "vjp"),
        row("route", "compiled_autograd", AGREES),
        row("route", "aoti", UNSAID, "no time was left"),
        row("setting", "inductor.pattern_matcher=False", AGREES),
    ).summary
    assert said == (
        "fails in f32 and bf16, not in f64; any of 6 sizes and attributes tried; any layout of 2 tried; not with "
        "compiled_autograd; gone with inductor.pattern_matcher=False; the wrong sum is the right one "
        "times n / (n - k), n = x0.shape[1], "
        "k = x1.shape[1]; "
        "zero where start = 0"
    )


def test_the_summary_tells_which_sizes_fail() -> None:
    agrees = [replace(sized(n, n, 0), outcome=AGREES) for n in (3, 5)]
    assert "where x0.shape[1] > x1.shape[1]" in scope(*SHAPES, *agrees).summary
    odd = replace(sized(20, 7, 5), outcome=AGREES)
    assert "6 of 7 sizes and attributes tried" in scope(*SHAPES, odd).summary


def test_the_shape_table_has_the_numbers_that_vary_the_ratio_and_what_the_formula_gives() -> None:
    told = scope(*SHAPES)
    assert shape_head(told) == ("x0.shape[1]", "x1.shape[1]", "start", "wrong / right (sums)", "n / (n - k)")
    assert shape_rows(told)[0] == ("20", "7", "5", "1.53846 (20/13)", "1.53846")
    assert shape_rows(told)[4] == ("13", "6", "0", "0", "")


def test_one_size_is_no_table() -> None:
    assert shape_rows(scope(*SHAPES[:1])) == []


def test_a_formula_must_fit_every_row_that_is_not_zero() -> None:
    assert scope(*SHAPES).formula is not None
    odd = replace(sized(30, 10, 1), ratios={SUMS: 2.0})
    assert scope(*SHAPES, odd).formula is None
    assert scope(*SHAPES, replace(odd, ratios={})).formula is None
    assert "n / (n - k)" not in shape_head(scope(*SHAPES, odd))


def test_a_kind_of_ratio_that_a_formula_fits_is_preferred_to_one_that_more_rows_have() -> None:
    both = [replace(r, ratios={**r.ratios, ELEMENTS: 1.1 + i}) for i, r in enumerate(SHAPES)]
    assert scope(*both).told_by == SUMS


@pytest.mark.parametrize(
    ("shown", "cells"),
    [
        (replace(row("dtype", "f16"), error=0.5, eager=1.0, compiled=1.5), ("fails", "0.5", "1", "1.5")),
        (replace(row("dtype", "f16"), error=math.inf, eager=0.0, compiled=1.5, built=True),
         ("fails, built", "infinite", "0", "1.5")),
        (replace(row("dtype", "f16"), error=0.0, eager=1.0, compiled=1.0), ("fails", "passes assert_close", "1", "1")),
        (row("dtype", "f16"), ("fails", "", "", "")),
        (row("dtype", "f16", OTHER, "raises, no"), ("differs otherwise: raises, no", "", "", "")),
    ],
    ids=["number", "built", "faint", "raised", "other"],
)  # fmt: skip
def test_a_neighbours_row_tells_what_it_showed_and_by_how_much(shown: Row, cells: tuple[str, ...]) -> None:
    assert scope_rows(scope(shown)) == [("dtype", "f16", *cells)]


def test_json_of_a_scope_is_strict_and_decodes_to_the_scope() -> None:
    told = scope(*SHAPES, replace(row("dtype", "f16"), error=math.inf, compiled=math.nan))
    text = json.dumps(encode_scope(told), allow_nan=False)
    assert repr(decode_scope(json.loads(text))) == repr(told)
    assert json.loads(text)["formula"] == "n / (n - k), n = x0.shape[1], k = x1.shape[1]"
