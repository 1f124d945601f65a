"""A number told with the fraction of small numbers that it is. No torch: ledgers are read without."""

from __future__ import annotations

from fractions import Fraction

_MAX_DENOMINATOR = 64  # denominators up to this are told; by chance one number in 400 is within 1e-6 of such a fraction


def fraction(value: float) -> str:
    """A number, with the fraction of small numbers that it is: 1.53846 (20/13)."""
    near = Fraction(value).limit_denominator(_MAX_DENOMINATOR)
    exact = near.denominator > 1 and abs(float(near) - value) <= 1e-6 * abs(value)
    return f"{value:.6g} ({near})" if exact else f"{value:.6g}"
