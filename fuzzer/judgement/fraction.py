"""A number as text, with its fraction of small numbers. No torch: ledgers are read without it."""

from __future__ import annotations

import math
from fractions import Fraction

_MAX_DENOMINATOR = 64  # largest denominator; by chance one number in 400 is within 1e-6 of such a fraction


def fraction(value: float) -> str:
    """A number, with the fraction of small numbers that equals it: 1.53846 (20/13).

    It has the digits that tell it from 1."""
    if not math.isfinite(value):
        return f"{value:.6g}"
    near = Fraction(value).limit_denominator(_MAX_DENOMINATOR)
    exact = near.denominator > 1 and abs(float(near) - value) <= 1e-6 * abs(value)
    digits = next((n for n in range(6, 17) if value == 1 or float(f"{value:.{n}g}") != 1), 17)
    return f"{value:.{digits}g} ({near})" if exact else f"{value:.{digits}g}"
