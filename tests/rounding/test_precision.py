"""What floating numbers can hold."""

from __future__ import annotations

import pytest
import torch

from fuzzer.rounding.precision import representable
from tests.rounding.modelled import (
    BF16,
    F16,
    F32,
    F64,
)

REPRESENTABLE = [
    (0.5, F16, True),
    (1 + 2**-10, F16, True),
    (1 + 2**-11, F16, False),
    (1 + 2**-7, BF16, True),
    (1 + 2**-8, BF16, False),
    (0.1, F32, False),
    (0.1, F64, False),
    (0.5, F64, True),
    (1e300, F32, False),
]


@pytest.mark.parametrize(("value", "dtype", "expected"), REPRESENTABLE)
def test_representable_numbers_are_told_from_rounded_ones(value: float, dtype: torch.dtype, expected: bool) -> None:
    assert bool(representable(torch.tensor(value, dtype=F64), dtype)) == expected
