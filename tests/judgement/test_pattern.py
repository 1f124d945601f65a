"""The picture of an error: which elements, in what ratio."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fuzzer.judgement.fraction import fraction
from fuzzer.judgement.pattern import CANVAS, elements, mask_text, ratio

ALL = slice(None)


def marked(shape: tuple[int, ...], *places: Any) -> torch.Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    for place in places:
        mask[place] = True
    return mask


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (marked((3,)), "none"),
        (marked(()), "none"),
        (marked((), ()), "whole: all 1"),
        (marked((2, 3), ALL), "whole: all 6"),
        (marked((2,), 1), "single element: (1,) of [2]"),
        (marked((2, 3), (1, 0)), "single element: (1, 0) of [2, 3]"),
        (marked((4, 13), (ALL, slice(6, None))), "tail: dim 1 from 6 to 12 of 13; 28 of 52"),
        (marked((5, 6), 4), "tail: dim 0 at 4 of 5; 6 of 30"),
        (marked((17,), slice(0, 16)), "head: dim 0 from 0 to 15 of 17; 16 of 17"),
        (marked((4, 5), 1), "rows: dim 0 at 1 of 4; 5 of 20"),
        (marked((4, 5), (ALL, 2)), "rows: dim 1 at 2 of 5; 4 of 20"),
        (marked((9, 2), 0, 4, 5), "rows: dim 0 at 0, 4, 5 of 9; 6 of 18"),
        (marked((4, 6), (ALL, slice(1, None, 2))), "stripes: dim 1 from 1 to 5 of 6 in steps of 2; 12 of 24"),
        (marked((5, 3), slice(1, 3)), "block: dim 0 from 1 to 2 of 5; 6 of 15"),
        (
            marked((4, 5), (slice(2, None), slice(0, 2))),
            "block: dim 0 from 2 to 3 of 4, dim 1 from 0 to 1 of 5; 4 of 20",
        ),
        (marked((3, 3), (0, 0), (1, 1), (2, 2)), "scattered: 3 of 9, the first at (0, 0)"),
    ],
)
def test_elements_are_told_by_their_shape(mask: torch.Tensor, told: str) -> None:
    assert elements(mask) == told


masks = st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
    lambda shape: st.lists(st.booleans(), min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda bits: torch.tensor(bits).reshape(shape)
    )
)


@given(masks)
def test_a_mask_is_scattered_where_it_is_no_choice_of_indices_in_each_dimension(mask: torch.Tensor) -> None:
    told = elements(mask)
    product = torch.ones_like(mask)
    for dim in range(mask.dim()):
        others = [d for d in range(mask.dim()) if d != dim]
        product &= mask.any(others, keepdim=True) if others else mask
    assert told.startswith("scattered") == (not torch.equal(product, mask))
    assert told.startswith("whole") == bool(mask.all())
    assert told.startswith("single element") == (int(mask.sum()) == 1 and mask.numel() > 1)
    if not told.startswith(("whole", "single", "none")):
        assert f"{int(mask.sum())} of {mask.numel()}" in told


@given(masks)
def test_a_drawing_shows_every_wrong_element_of_a_small_tensor(mask: torch.Tensor) -> None:
    head, *rows = mask_text(mask).splitlines()
    assert head.startswith(str(list(mask.shape)))
    if "drawn" not in head:
        assert "".join(rows) == "".join(".#"[bit] for bit in mask.flatten().tolist())


@pytest.mark.parametrize("shape", [(1000,), (3, 40, 2, 7), (300, 300)])
def test_one_wrong_element_shows_in_the_drawing_of_a_large_tensor(shape: tuple[int, ...]) -> None:
    for flat in (0, math.prod(shape) // 2, math.prod(shape) - 1):
        mask = torch.zeros(math.prod(shape), dtype=torch.bool)
        mask[flat] = True
        rows = mask_text(mask.reshape(shape)).splitlines()[1:]
        assert "".join(rows).count("#") == 1
        assert len(rows) <= CANVAS[0]
        assert all(len(row) <= CANVAS[1] for row in rows)


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("values", "expected", "told"),
    [
        (wide(0, -0.0), wide(1, 2), "all zero"),
        (wide(20, 40), wide(13, 26), "constant factor 1.53846 (20/13)"),
        (wide(-2, 4), wide(2, -4), "constant factor -1"),
        (wide(0.333333343), wide(1), "constant factor 0.333333 (1/3)"),
        (wide(1, 1, 1, 3), wide(2, 2, 3, 9), "factors 0.333333 (1/3), 0.5 (1/2)"),
        (wide(1.25, 2.25, 0.25), wide(1, 2, 0), "constant offset 0.25 (1/4)"),
        (wide(1, 7, 3, 2), wide(2, 2, 9, 9), "no constant factor or offset"),
        (wide(5, 1), wide(0, 0), "no constant factor or offset"),
        (wide(math.nan, 1), wide(1, 1), "NaN in 1 of 2"),
        (wide(math.nan, -math.inf, 3), wide(1, 1, 1), "NaN and inf in 2 of 3"),
        (wide(1, 2), wide(math.inf, 3), "finite where 1 of 2 should not be"),
    ],
)
def test_ratios_are_told_as_a_pattern(values: torch.Tensor, expected: torch.Tensor, told: str) -> None:
    assert ratio(values, expected) == told


numbers = st.lists(st.floats(0.5, 100) | st.floats(-100, -0.5), min_size=2, max_size=8)


@given(numbers, st.fractions(-8, 8, max_denominator=20).filter(bool))
def test_a_constant_factor_is_found_whatever_the_values(values: list[float], factor: Fraction) -> None:
    expected = wide(*values)
    assert ratio(expected * float(factor), expected) == f"constant factor {fraction(float(factor))}"
