"""What is finite on one side alone, and zeros whose sign something sees."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fuzzer.judgement.edges import left_to_range, sees_zero_sign
from fuzzer.judgement.oracles import verdicts
from tests.judgement.trials import at, put, trial, unchanged

LOST_EPSILON = """x0 = leaf(f16[2], values=data([0.0, 1.0]))
v0 = add_scalar(x0, other=1e-09)
v1 = rsqrt(v0)
backward(v1, cotangent(f16[2]))
"""
CANCELLED = """x0 = leaf(f16[3], values=data([0.1, 0.2, 0.3]))
x1 = leaf(f16[3], values=data([3.0, 5.0, 7.0]))
v0 = mul(x0, x1)
v1 = div(v0, x1)
v2 = sub(v1, x0)
v3 = reciprocal(v2)
backward(v3, cotangent(f16[3]))
"""
SEEN = """x0 = leaf(f32[3], values=data([0.0, 1.0, 2.0]))
x1 = leaf(f32[3], values=data([-1.0, 1.0, 2.0]))
v0 = abs(x0)
v1 = {later}
returns(v0)
backward(v1, cotangent(f32[3]))
"""


def test_an_epsilon_that_float16_reads_as_zero_is_a_question_of_range() -> None:
    made = unchanged(LOST_EPSILON)
    assert torch.isfinite(made.reference.outputs[0]).tolist() == [False, True]
    assert left_to_range(made)[0].tolist() == [True, False]
    other = trial(LOST_EPSILON, put("v1", at(31616.0, (0,))))
    assert [str(v.signature) for v in verdicts(other)] == [
        "finiteness_agrees/nonfinite-differs/forward/finite for infinite"
    ]


def test_one_over_a_difference_that_rounding_cancels_is_left_to_rounding() -> None:
    made = unchanged(CANCELLED)
    odd = ~torch.isfinite(made.reference.outputs[0].double())
    assert bool(odd.any())
    assert not bool((left_to_range(made)[0] & odd).any())
    other = trial(CANCELLED, put("v3", lambda t: t.nan_to_num(posinf=1000.0, neginf=1000.0)))
    assert [v for v in verdicts(other) if v.signature.oracle == "finiteness_agrees"] == []


MET = """x0 = leaf(f32[2], values=data([0.0, 1.0]))
v0 = reciprocal(x0)
v1 = log(x0)
v2 = add(v0, v1)
backward(v2, cotangent(f32[2]))
"""


def test_infinities_that_meet_in_eager_alone_are_told_below_wrong() -> None:
    """1 / 0 + log(0) is NaN; another order of a longer sum would leave an infinity."""
    assert torch.isnan(unchanged(MET).reference.outputs[0]).tolist() == [True, False]
    [told] = verdicts(trial(MET, put("v2", at(math.inf, (0,)))))
    assert str(told.signature) == "finiteness_agrees/nonfinite-differs/forward/infinite for NaN"
    assert "1 of 2 elements are NaN in eager alone" in told.detail
    [other] = verdicts(trial(MET.replace("log(x0)", "neg(x0)"), put("v2", at(math.nan, (0,)))))
    assert str(other.signature) == "no_new_nonfinite/wrong/forward/nonfinite"


@pytest.mark.parametrize(
    ("later", "seen"),
    [
        ("reciprocal(v0)", True),
        ("copysign(x1, v0)", True),
        ("atan2(v0, x1)", True),
        ("mul(x1, v0)", False),
        ("exp(v0)", False),
        ("sqrt(v0)", False),
    ],
)
def test_a_zeros_sign_counts_where_another_result_shows_it(later: str, seen: bool) -> None:
    text = SEEN.format(later=later)
    assert sees_zero_sign(unchanged(text), "v0") is seen
    told = verdicts(trial(text, put("v0", at(-0.0, (0,)))))
    assert [str(v.signature) for v in told] == ["seen_zero_signs_agree/signed-zero/forward/all"] * seen


@pytest.mark.parametrize("extremum", ["clamp(x0, min=0.0)", "hardtanh(x0, min_val=0.0)", "maximum(x0, x2)", "neg(x0)"])
def test_no_sign_of_a_zero_is_promised_that_an_extremum_takes(extremum: str) -> None:
    """A copied sign shows it. The second zero meets none of the other sign."""
    text = SEEN.replace("abs(x0)", extremum).replace("[0.0, 1.0", "[-0.0, 0.0").format(later="copysign(x1, v0)")
    text = text.replace("v0 =", "x2 = leaf(f32[3], values=data([0.0, 0.0, 0.0]))\nv0 =", 1)
    told = verdicts(trial(text, put("v0", lambda v: torch.where(torch.arange(3) == 0, -v, v))))
    signs = [v for v in told if v.signature.oracle == "seen_zero_signs_agree"]
    assert bool(signs) is (extremum == "neg(x0)")


def test_a_sign_that_only_a_gradient_shows_is_seen_too() -> None:
    scaled: Callable[[str], str] = lambda op: SEEN.format(later=f"{op}(v0)").replace("[0.0, ", "[-0.0, ")  # noqa: E731
    assert sees_zero_sign(unchanged(scaled("rsqrt")), "v0")
