"""Fractions of small numbers, as they are told."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzer.judgement.fraction import fraction


@given(st.fractions(-8, 8, max_denominator=64))
def test_a_fraction_of_small_numbers_is_written_as_one(value: Fraction) -> None:
    told = fraction(float(value))
    assert (f"({value})" in told) == (value.denominator > 1)
    assert float(told.split()[0]) == pytest.approx(float(value), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (20 / 13, "1.53846 (20/13)"),
        (2.0, "2"),
        (-0.5, "-0.5 (-1/2)"),
        (1.0000001, "1.0000001"),
        (1 + 3e-8, "1.00000003"),
        (0.123456789, "0.123457"),
    ],
)
def test_what_is_no_such_fraction_is_a_number_alone(value: float, text: str) -> None:
    assert fraction(value) == text


def test_a_ratio_beyond_the_range_of_numbers_has_no_fraction() -> None:
    assert fraction(1e308 / 1e-10) == "inf"
