"""What no algorithm promises: ties, signs, phases and orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from fuzzer.rounding.floors import FACTOR, SCALE, Model
from fuzzer.rounding.record import Recorder
from tests.rounding.modelled import (
    BF16,
    F32,
    FIRST_FACTOR,
    floor,
    floors,
    gradient,
    modelled,
    normal,
)


def test_signs_of_eigenvectors_and_singular_vectors_are_left_to_chance_and_their_squares_are_not() -> None:
    x = torch.diag(torch.arange(2.0, 7.0)) + 0.1 * torch.ones(5, 5)
    for factor in (lambda x: torch.linalg.eigh(x).eigenvectors, lambda x: torch.linalg.svd(x).U):
        assert floor(lambda x, f=factor: [f(x)], x) > 1
        assert floor(lambda x, f=factor: [f(x).square()], x) < 1e-4
    model, _ = modelled(lambda x: [(lambda u, s, v: (u * s) @ v)(*torch.linalg.svd(x))], x)
    assert float(model.spread(32).floors(FIRST_FACTOR)[0].max()) < 1e-4  # rows and columns flip together


def test_eigenvalues_of_a_real_matrix_have_no_order() -> None:
    x = torch.tensor([[0.0, -2.0, 0.1], [2.0, 0.0, 0.3], [0.2, 0.1, 1.0]])
    [found] = floors(lambda t: [torch.linalg.eigvals(t).abs()], x)
    assert float(found.max()) > 0.5
    [found] = floors(lambda t: [torch.linalg.eigvals(t).abs().sum()[None]], x)
    assert float(found.max()) < 1e-3


def test_the_largest_of_exact_differences_is_exact_so_that_its_gradient_goes_to_the_ties() -> None:
    x, y = torch.tensor([1.0, -1.0, 0.5]).half(), torch.zeros(3).half()
    recorder = Recorder()
    recorder.given("leaf", {"x0": x.requires_grad_()})
    with recorder:
        out = torch.dist(x, y, p=float("inf"))
        (gradient,) = torch.autograd.grad(out, x)
    spread = Model(recorder.trace, [recorder.ref(out), recorder.ref(gradient)]).spread(8, scale=SCALE)
    assert spread.reference[1].tolist() == [0.5, -0.5, 0.0]
    assert [floor.abs().max().item() for floor in spread.floors(FACTOR)] == [0.0, 0.0]


@pytest.mark.parametrize("tie", [math.inf, -math.inf, math.nan, 2.0])
@pytest.mark.parametrize("ordered", [torch.sort, partial(torch.topk, k=4)], ids=["sort", "topk"])
def test_which_of_equal_elements_comes_first_is_left_to_chance_and_their_values_are_not(
    ordered: Callable[[torch.Tensor], Any], tie: float
) -> None:
    x = torch.tensor([tie, 1.0, tie, -1.0])
    model, [values] = modelled(lambda t: [ordered(t).values], x)
    spread = model.spread(8)
    assert torch.equal(spread.reference[0].isnan(), values.isnan())
    assert float(spread.floors(FIRST_FACTOR)[0].max()) == 0.0
    assert not spread.unstable[0].any()
    [found] = floors(gradient(lambda t: ordered(t).values * torch.arange(1.0, 5.0)), x)
    assert (found > 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("ties", [torch.tensor([3, 1, 3, 0]), torch.tensor([3.0, 1.0, 3.0, 0.0])], ids=["i64", "f32"])
@pytest.mark.parametrize("ordered", [torch.sort, partial(torch.topk, k=4)], ids=["sort", "topk"])
def test_the_positions_of_equal_elements_are_left_to_chance_and_others_and_the_values_are_not(
    ordered: Callable[[torch.Tensor], Any], ties: torch.Tensor
) -> None:
    model, [values, places] = modelled(lambda t: list(ordered(t)), ties)
    spread = model.spread(8)
    assert torch.equal(spread.reference[0], values.to(spread.reference[0].dtype))
    assert not any(bool(spread.lack(at, value.double()).any()) for at, value in enumerate((values, places)))
    swapped = places.clone()
    swapped[places == 0], swapped[places == 2] = 2, 0
    assert not bool(spread.lack(1, swapped.double()).any())
    lacking = spread.lack(1, 4.0 + places) & ~torch.isinf(spread.floors(FIRST_FACTOR)[1])
    assert lacking.tolist() == [1.0 - (place in (0, 2)) == 1.0 for place in places.tolist()]


@pytest.mark.parametrize("at", [0, -1])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_of_thousands_of_equal_elements_the_first_and_the_last_may_be_chosen(dtype: torch.dtype, at: int) -> None:
    x = torch.ones(5000, dtype=dtype)
    [found] = floors(gradient(lambda t: t.float().sort().values[0]), x)
    assert float(found[at]) > 0


def test_where_a_largest_difference_is_does_not_move_with_the_distance() -> None:
    x, y = normal(23, 2), torch.zeros(2, 2)
    run = gradient(lambda t: torch.cdist(x, t, p=math.inf) * 0.7)
    model, [seen] = modelled(run, y)
    [r], [found] = model.reference, model.spread(32).floors(FIRST_FACTOR)
    assert float(found.min()) > 0
    assert float(found.max()) < 1e-4
    assert bool(((seen.double() - r).abs() <= found).all())
