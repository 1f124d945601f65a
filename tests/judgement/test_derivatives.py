"""Eager on trial: gradients that are no derivatives are told, and what has a rule of its own is left alone."""

from __future__ import annotations

import pytest

from fuzzer.judgement.derivatives import own_rule
from fuzzer.judgement.oracles import gradients_are_derivatives
from fuzzer.judgement.trial import RAISED, Observation, Raised, Trial
from fuzzer.judgement.verdict import EAGER, side_by_class
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import run_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

SMOOTH = """x0 = leaf(f32[4, 5], seed=1)
x1 = leaf(f32[4, 5], seed=2)
v0 = tanh(x0)
v1 = mul(v0, x1)
backward(v1, cotangent(f32[4, 5], seed=3))
"""
ACCUMULATED = SMOOTH.replace("v0 = tanh", "v0 = exp")
HALF = """x0 = leaf(f16[6], seed=1)
v0 = sigmoid(x0)
v1 = square(v0)
backward(v1, cotangent(f16[6], values="ones"))
"""
COMPLEX = """x0 = leaf(c64[4], seed=1)
x1 = leaf(f32[4], seed=2)
v0 = real(x0)
v1 = mul(v0, x1)
backward(v1, cotangent(f32[4], seed=3))
"""
SHARED = """x0 = leaf(f32[4], seed=1)
x1 = leaf_view(x0, f32[2], offset=1, requires_grad=False)
v0 = square(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
# what subgradient is taken at a kink or among equals is eager's to choose
CORNER = """x0 = leaf(f32[4], values=data([0.0, 0.0, 1.0, -1.0]))
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
TIE = """x0 = leaf(f32[3], values=data([2.0, 2.0, 1.0]))
v0 = amax(x0, dim=(0,))
backward(v0, cotangent(f32[()], values="ones"))
"""
JUMP = """x0 = leaf(f32[5], values="integers", seed=1)
v0 = floor(x0)
v1 = mul(v0, x0)
backward(v1, cotangent(f32[5], values="ones"))
"""
NOT_FINITE = """x0 = leaf(f32[3], values=data([0.0, 4.0, 1.0]))
v0 = sqrt(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""
# pi / 180 is no number of float32, in which the backward multiplies by it; ones times that are
CONSTANT = """x0 = leaf(f32[4], seed=1)
v0 = deg2rad(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
# these gradients are no derivatives, and torch says so
PADDING = """x0 = leaf(f32[4, 3], seed=1)
x1 = leaf(i64[2], values=data([1, 2]))
v0 = embedding(x0, x1, padding_idx=1)
backward(v0, cotangent(f32[2, 3], seed=2))
"""
BY_FREQUENCY = PADDING.replace("padding_idx=1", "scale_grad_by_freq=True").replace("[1, 2]", "[1, 1]")
HOOK = """x0 = leaf(f32[3], seed=1)
with hook(scale=2.0):
    v0 = square(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""
SCATTERED = """x0 = leaf(f32[3], seed=1)
x1 = leaf(i64[2], values=data([1, 1]))
x2 = leaf(f32[2], seed=2)
v0 = scatter(x0, x1, x2, dim=0)
backward(v0, cotangent(f32[3], seed=3))
"""
PUT = SCATTERED.replace("scatter(x0, x1, x2, dim=0)", "index_put(x0, [x1], x2)").replace("[1, 1]", "[1, -2]")
COPIED = SCATTERED.replace("scatter(x0, x1, x2, dim=0)", "index_copy(x0, x1, x2, dim=0)")
DETACHED = """x0 = leaf(f32[3], seed=1)
v0 = detach(x0)
v1 = mul(x0, v0)
backward(v1, cotangent(f32[3], values="ones"))
"""


def run(body: str, scale: float = 1.0, route: str = "autograd") -> Trial:
    """The program's eager run, whose gradients are scaled afterwards."""
    made = run_reference(parse(f'program(1)\nroute("{route}")\n{body}'), Task(), Journal(None))
    made.reference.gradients = {n: g if g is None else g * scale for n, g in made.reference.gradients.items()}
    made.subject = made.reference
    return made


@pytest.mark.parametrize(
    ("scale", "route"),
    [(1.01, "autograd"), (-1.0, "autograd"), (0.0, "autograd"), (2.0, "autograd"), (1.01, "accumulate"), (1.01, "vjp")],
)
def test_a_gradient_that_is_no_derivative_is_told(scale: float, route: str) -> None:
    told = gradients_are_derivatives(run(SMOOTH, scale, route))
    assert told is not None
    assert str(told.signature) == "gradients_are_derivatives/eager-suspect/backward/no derivative"
    assert told.detail.startswith("x0.grad is no derivative: along random signs of x0 central differences in float64")
    assert side_by_class(told.signature) == EAGER


@pytest.mark.parametrize("body", [SMOOTH, ACCUMULATED, HALF, COMPLEX, CONSTANT])
def test_what_is_a_derivative_is_not(body: str) -> None:
    assert gradients_are_derivatives(run(body)) is None
    assert gradients_are_derivatives(run(body, 2.0)) is not None


@pytest.mark.parametrize("body", [SCATTERED, PUT, COPIED, SCATTERED.replace("scatter(", "scatter_add(")])
def test_writes_to_places_of_their_own_have_a_derivative(body: str) -> None:
    apart = body.replace("[1, 1]", "[1, 0]").replace("[1, -2]", "[1, -1]")
    assert not own_rule(run(apart))
    assert gradients_are_derivatives(run(apart)) is None
    assert gradients_are_derivatives(run(apart, 2.0)) is not None


@pytest.mark.parametrize("body", [CORNER, TIE, JUMP, NOT_FINITE, SHARED])
def test_nothing_is_said_where_no_derivative_decides(body: str) -> None:
    assert gradients_are_derivatives(run(body)) is None


def test_nothing_is_asked_where_the_other_side_raised() -> None:
    """It may have lost the device, on which derivatives are taken."""
    made = run(SMOOTH, 2.0)
    made.subject = Observation(RAISED, phase="forward", raised=Raised("AcceleratorError", "device-side assert", ()))
    assert gradients_are_derivatives(made) is None


@pytest.mark.parametrize("body", [PADDING, BY_FREQUENCY, HOOK, DETACHED, SCATTERED, PUT, COPIED])
def test_nothing_is_said_where_torch_has_a_rule_of_its_own(body: str) -> None:
    made = run(body, 3.0)
    assert own_rule(made)
    assert gradients_are_derivatives(made) is None
