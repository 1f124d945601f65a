"""Attention that is written out, as a compiler may fuse it: the backward of the fused kernel has a rounding more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuzzer.rounding.attentions import attentions
from tests.rounding.modelled import F32, floor, gradient, normal
from tests.rounding.recorded import recorded

Function = Callable[[torch.Tensor], torch.Tensor]


def attention(scale: float) -> Function:
    return lambda x: ((x @ x.mT) * scale).softmax(-1) @ x


@pytest.mark.parametrize(
    ("f", "fused"),
    [
        (attention(0.5), True),
        (lambda x: (x @ x.mT).masked_fill(x.new_ones(4, 4).triu(1).bool(), -torch.inf).softmax(-1) @ x, True),
        (lambda x: (x @ x.mT / 2).double().softmax(-1).to(x.dtype) @ x, True),
        (lambda x: torch.dropout((x @ x.mT).softmax(-1), 0.5, True) @ x, True),
        (lambda x: x.softmax(-1) @ x, False),
        (lambda x: (x @ x).softmax(-1), False),
        (lambda x: (x @ x).cumsum(-1).softmax(-1) @ x, False),
        (lambda x: (x @ x).log_softmax(-1) @ x, False),
    ],
    ids=["scaled", "masked", "cast", "dropped out", "no scores", "read by none", "scores summed", "logarithms"],
)
def test_a_softmax_between_two_products_is_one(f: Function, fused: bool) -> None:
    steps = recorded(lambda x: [f(x)], normal(2, 4, 4))[0].steps
    found = attentions(steps)
    assert [steps[number].name for number in found] == ["_softmax"] * fused


def tied(rows: int) -> torch.Tensor:
    """Rows that are alike, so that all scores are equal."""
    return torch.tensor([1.0, 0.5, -0.25, 2.0], dtype=F32).expand(1, rows, 4).clone()


def fused_backward(x: torch.Tensor, scale: float) -> torch.Tensor:
    """The gradient of attention(scale)(x).sum() in x as a fused kernel computes it: with exp(score - l) for the
    probabilities, l the rounded logarithm of the sum."""
    scores = (x @ x.mT) * scale
    p = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    cotangent = torch.ones_like(x)
    weighed = p * (cotangent @ x.mT - (cotangent * (p @ x)).sum(-1, keepdim=True)) * scale
    return weighed @ x + weighed.mT @ x + p.mT @ cotangent


@pytest.mark.parametrize(("scale", "rows"), [(1.0, 2), (1e4, 2), (1e4, 100)])
def test_probabilities_that_are_computed_anew_are_off_by_the_rounding_of_their_logarithm(
    scale: float, rows: int
) -> None:
    x = tied(rows)
    exact = gradient(attention(scale))(x.double())[0]
    off = float((fused_backward(x, scale) - exact).abs().max())
    bound = floor(gradient(attention(scale)), x)
    assert off <= bound


def test_the_probabilities_of_a_softmax_alone_add_up_to_one() -> None:
    """However its operand was rounded; not those of a fused backward, which are all off by the same factor."""
    scores, eye = torch.tensor([[3e4, 3e4]]), torch.eye(2)

    def total(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.softmax(-1).sum(-1)]

    def fused(x: torch.Tensor) -> list[torch.Tensor]:
        p = (x @ eye).softmax(-1)
        return [p.sum(-1), p @ eye]

    assert floor(total, scores) < 1e-5
    assert floor(fused, scores) > 1e-3
