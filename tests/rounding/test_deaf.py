"""Deaf elements, and the kernel that is to blame."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fuzzer.rounding.deaf import AMPLIFIED, CANCELS, DECIDES, LEAF, NOT_FINITE, UNDERFLOWS, Deafening, deaf, deafening
from fuzzer.rounding.floors import FIRST_LOOK
from tests.rounding.modelled import BF16, modelled, normal

X = normal(16)


def blamed(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor = X) -> list[Deafening]:
    model, _ = modelled(lambda t: [run(t)], x)
    replicas, scale, _ = FIRST_LOOK
    return deafening(model, model.spread(replicas, scale=scale))


def test_an_element_is_deaf_beyond_half_of_its_value_and_a_zero_beyond_half_of_the_largest() -> None:
    reference = torch.tensor([1.0, 1.0, 0.0, 0.0, -4.0, math.nan, 1.0])
    floor = torch.tensor([0.6, 0.5, 2.1, 1.9, 0.0, 9.0, math.inf])
    assert deaf(reference, floor).tolist() == [True, False, True, False, False, False, True]
    assert deaf(torch.zeros(2), torch.tensor([0.0, 1e-9])).tolist() == [False, True]
    assert not deaf(torch.zeros(0), torch.zeros(0)).numel()


@pytest.mark.parametrize(
    ("run", "kernel", "cause", "exact"),
    [
        (lambda x: torch.sin(x * 1e9), "sin", AMPLIFIED, False),
        (lambda x: torch.exp(x) - torch.exp(x * 1.0000001), "sub", CANCELS, False),
        (lambda x: (x - x.sin().asin().clamp(-1, 1)).sign(), "sign", DECIDES, False),
        (lambda x: x.sign() * 2.0**127 * 4, "mul", NOT_FINITE, True),
        (lambda x: x * 1e-40, "mul", UNDERFLOWS, True),
    ],
)
def test_the_first_step_whose_operands_are_clear_and_whose_result_is_not_is_to_blame(
    run: Callable[[torch.Tensor], torch.Tensor], kernel: str, cause: str, exact: bool
) -> None:
    found = blamed(run)
    assert (found[0].kernel, found[0].cause, found[0].exact) == (kernel, cause, exact)


def test_a_step_is_to_blame_only_for_the_elements_that_it_reaches() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.sin(x[:4] * 1e9), (x[4:] * 3).exp() - (x[4:] * 3).exp() * 1.0000001, x[:3] * 3])

    assert {(made.kernel, made.elements) for made in blamed(run)} == {("sin", 4), ("sub", 12)}


def test_subnormal_leaves_may_be_flushed_and_no_kernel_is_to_blame() -> None:
    assert [made.kernel for made in blamed(lambda x: x.exp() + x[0].abs() * 0 + x, X * 1e-40)] == []
    assert [made.kernel for made in blamed(lambda x: (x * 2).sum(0), X * 1e-40)] == [LEAF]


def test_what_is_deaf_on_the_way_and_drowned_afterwards_is_nobodys_fault() -> None:
    assert not blamed(lambda x: torch.sin(x * 1e9) * 1e-6 + 100)
    assert not blamed(lambda x: x * 3)


def test_results_in_another_dtype_and_complex_ones_are_followed() -> None:
    found = blamed(lambda x: torch.complex(torch.sin(x * 1e9) * 9, x).abs().to(BF16).argmax())
    assert [made.kernel for made in found] == ["sin"]
