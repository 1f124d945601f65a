"""One tensor against its reference."""

from __future__ import annotations

import pytest
import torch

from fuzzer.judgement.oracles import detectable, differing_tensors, verdicts
from tests.judgement.trials import INTEGER, ROUNDED, UNUSED, Change, at, put, trial


def test_bits_are_compared_whatever_the_layout() -> None:
    one = torch.ones(4, dtype=torch.bfloat16)[::2][:1]
    assert one.stride() == (2,)
    assert differing_tensors({"v0": one}, {"v0": torch.ones(1, dtype=torch.bfloat16)}) == []
    assert differing_tensors({"v0": one}, {"v0": -one}) == ["v0"]
    assert differing_tensors({"v0": torch.tensor(0.0)}, {"v0": torch.tensor(-0.0)}) == ["v0"]
    assert differing_tensors({"v0": torch.ones(2, 3).mT}, {"v0": torch.ones(3, 2)}) == []


EMPTY = """x0 = leaf(f32[6, 11], stride=(12, 1), offset=5)
v0, v1, v2 = tensor_split(x0, indices=(3, 6))
backward(v1, cotangent(f32[3, 11]))
returns(v2)
"""


def test_an_empty_slice_may_start_behind_the_end_of_its_storage() -> None:
    assert verdicts(trial(EMPTY)) == []


def test_the_worst_element_is_shown_with_its_numbers() -> None:
    (found,) = verdicts(trial(INTEGER, put("x0.grad", at(0, (3, 4), by=100.0))))
    shown = found.comparisons[0]
    assert (shown.name, shown.index, shown.wrong, shown.total) == ("x0.grad", (3, 4), 1, 96)
    assert shown.compiled == shown.eager + 100
    assert shown.float64 == shown.eager
    assert shown.floor == 0
    assert "x0.grad[3, 4]" in found.detail


def test_the_element_farthest_beyond_its_floor_is_the_worst() -> None:
    (found,) = verdicts(trial(INTEGER, put("x0.grad", lambda t: at(0, (1, 1), by=50.0)(at(0, (0, 0), by=9.0)(t)))))
    assert found.comparisons[0].index == (1, 1)
    assert found.comparisons[0].wrong == 2


def test_elements_that_are_zero_or_have_an_infinite_floor_show_no_error() -> None:
    seen, total = detectable(trial(UNUSED))
    assert (seen, total) == (5, 10)  # x0's gradient is all zero, x2's is not
    gone = trial(UNUSED, put("x2.grad", lambda t: None))
    assert detectable(gone) == (0, 5)


SPREAD = """x0 = leaf(f32[3, 20, 7], seed=1)
x1 = leaf(f32[3, 7, 7], seed=2)
v0 = slice_scatter(x0, x1, dim=1, start=5, end=12)
v1 = sum(v0, dim=1)
backward(v1, cotangent(f32[3, 7], seed=3))
"""
BALANCED = """x0 = leaf(f32[4], values=data([1.0, 2.0, 1.0, 2.0]))
v0 = mul(x0, x0)
backward(v0, cotangent(f32[4], values=data([2.0, 1.0, -2.0, -1.0])))
"""


def spread_over_all_rows(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient as it would be if nothing had been written over the rows in the middle."""
    return gradient[:, :1].expand(-1, 20, -1).clone()


PROPORTIONS = {
    "a ratio": (ROUNDED, put("x1.grad", lambda t: t * 0.75), "; constant ratio 0.75 (3/4)"),
    "a ratio that is no small fraction": (ROUNDED, put("x1.grad", lambda t: t * 1.7071), "; constant ratio 1.7071"),
    "another sign": (ROUNDED, put("x1.grad", lambda t: -t), "; constant ratio -1"),
    "20 rows for 13": (
        SPREAD,
        put("x0.grad", spread_over_all_rows),
        "; its sum is 1.53846 (20/13) of the reference's",
    ),
    "two elements": (ROUNDED, put("x0.grad", at(0.1, (0, 0), (1, 1))), "; 2 of 96 elements"),
    "a sum of nothing": (
        BALANCED,
        put("x0.grad", lambda t: t + torch.tensor([1.0, 2.0, 0.0, 0.0])),
        "; 2 of 4 elements",
    ),
}


@pytest.mark.parametrize(("text", "change", "end"), PROPORTIONS.values(), ids=PROPORTIONS)
def test_evidence_tells_a_ratio_where_there_is_one(text: str, change: Change, end: str) -> None:
    assert verdicts(trial(text, change))[0].detail.endswith(end)
