"""Gradients that autograd adds one by one: one sum, whose order a compiler may choose."""

from __future__ import annotations

import pytest
import torch

from fuzzer.rounding.chains import chains
from tests.rounding.modelled import BF16, F32, Run, floor
from tests.rounding.recorded import recorded


def of_factor(read: int) -> Run:
    """The gradient of a value by which so many rows are multiplied, one after another."""

    def run(rows: torch.Tensor) -> list[torch.Tensor]:
        factor = torch.ones(rows.shape[1:], dtype=rows.dtype, requires_grad=True)
        total = [factor * row for row in rows[:read]]
        return list(torch.autograd.grad(total, factor, [torch.ones_like(t) for t in total]))

    return run


def column(*numbers: float, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)[:, None]


@pytest.mark.parametrize(("read", "lengths"), [(1, set()), (2, set()), (3, {3}), (6, {6})])
def test_three_gradients_of_one_value_and_more_are_one_sum(read: int, lengths: set[int]) -> None:
    trace = recorded(of_factor(read), torch.ones(6, 2))[0]
    found = chains(trace.steps)
    assert {chain.length for chain in found.values()} == lengths
    assert len(found) == max(read - 1, 0) * bool(lengths)


def test_additions_of_the_forward_and_sums_that_are_read_again_are_none() -> None:
    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        return list(torch.autograd.grad((((y + x) + x) + x).sum(), y))

    assert not chains(recorded(forward, torch.ones(3))[0].steps)


def test_what_cancels_in_eagers_order_has_the_floor_of_every_order() -> None:
    # backwards, as autograd goes: 1e8 - 1e8 is exact, and so is that + 1; from the other end the 1 is lost
    assert floor(of_factor(3), column(1.0, -1e8, 1e8)) >= 1.0


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_sum_that_is_exact_in_every_order_has_no_floor(dtype: torch.dtype) -> None:
    assert floor(of_factor(4), column(1.0, -2.5, 64.0, 7.0, dtype=dtype)) == 0.0


def test_half_precision_has_the_floor_of_its_own_partial_sums() -> None:
    rows = column(1.0, 1.0, -256.0, 256.0, dtype=BF16)  # 256 + 1 is no bfloat16
    assert floor(of_factor(4), rows) >= 2.0


def expanded(cotangents: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of a value that is read itself, and expanded by two, of which one is negated."""
    x = torch.ones(1, dtype=cotangents.dtype, requires_grad=True)
    wide = x.expand(2)
    grads = [cotangents[:2], cotangents[2:4], cotangents[4:]]
    return list(torch.autograd.grad([-wide, wide, x], x, grads))


def test_additions_before_and_after_an_expanded_value_are_one_sum() -> None:
    trace = recorded(expanded, torch.ones(5))[0]
    assert {chain.length for chain in chains(trace.steps).values()} == {5}


def test_a_sum_of_an_expanded_values_gradients_has_the_floor_of_every_order() -> None:
    """Eager adds 2 - 4 first, which is exact, as is -2 + 0.49183041; a compiler may round -4 + 0.49183041 and add 2."""
    assert floor(expanded, torch.tensor([1.0, 3.0, 1.0, 1.0, 0.49183041])) >= 2.0**-23
    assert floor(expanded, torch.tensor([1.0, 3.0, 1.0, 1.0, 0.5])) == 0.0


def written_through_a_view(rows: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of what is written through a view and of its base, which is read in another shape."""
    x = torch.zeros_like(rows[0]).requires_grad_()
    base = x * 1
    view = base.view(-1).mul_(1.0)
    return list(torch.autograd.grad([view, view * 1, base.t()], x, [rows[0].view(-1), rows[1].view(-1), rows[2].t()]))


def test_what_is_written_through_a_view_is_summed_with_its_base() -> None:
    def seeded(*numbers: float) -> torch.Tensor:
        return torch.tensor(numbers)[:, None, None].expand(-1, 2, 3).contiguous()

    assert floor(written_through_a_view, seeded(1e8, -1e8, 1.0)) >= 1.0
    assert floor(written_through_a_view, seeded(1.0, -2.5, 64.0)) == 0.0


def test_what_is_written_through_a_view_of_a_part_is_summed_with_its_base() -> None:
    def run(rows: torch.Tensor) -> list[torch.Tensor]:
        x = torch.zeros(3).requires_grad_()
        base = (x * 1).expand(2, 3).clone()
        part = base[0].copy_(x)
        return list(torch.autograd.grad([part, part * 1, base], x, [rows[0], rows[1], rows[2].expand(2, 3)]))

    assert floor(run, column(1e8, -1e8, 1.0).expand(3, 3)) >= 1.0
    assert floor(run, column(1.0, -2.5, 64.0).expand(3, 3)) == 0.0
