"""Wrong decompositions: each differs from torch's own gradient where it says so, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuzzer.judgement.planted import gradients
from fuzzer.judgement.planted.gradients import _VECTOR
from fuzzer.language.settings import in_force

aten = torch.ops.aten
GRAD = torch.linspace(-2.0, 3.0, 40, dtype=torch.float64).reshape(4, 10)
X = torch.linspace(-4.0, 4.0, 40, dtype=torch.float64).reshape(4, 10)


def wrong(found: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where they differ by more than rounding."""
    assert (found.shape, found.dtype) == (right.shape, right.dtype)
    return ~torch.isclose(found, right, rtol=1e-9, atol=0)


def test_the_right_gradient_is_torchs() -> None:
    y = X.sigmoid()
    assert not wrong(gradients.sigmoid_gradient(GRAD, y), aten.sigmoid_backward(GRAD, y)).any()


def test_one_element_alone_is_scaled() -> None:
    y = X.sigmoid()
    found = wrong(gradients.one_element_scaled(GRAD, y), aten.sigmoid_backward(GRAD, y))
    assert found.flatten().nonzero().flatten().tolist() == [20]


EVERYWHERE: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "complement": lambda: (
        gradients.without_complement(GRAD, X.sigmoid()),
        aten.sigmoid_backward(GRAD, X.sigmoid()),
    ),
    "zeros": lambda: (gradients.all_zero(GRAD, X.tanh()), aten.tanh_backward(GRAD, X.tanh())),
    "single precision": lambda: (
        gradients.tanh_in_single_precision(GRAD, X.tanh()),
        aten.tanh_backward(GRAD, X.tanh()),
    ),
}


@pytest.mark.parametrize("case", EVERYWHERE)
def test_almost_every_element_is_wrong(case: str) -> None:
    assert wrong(*EVERYWHERE[case]()).sum() >= 38


def test_softplus_differs_beyond_its_threshold_alone() -> None:
    x = torch.tensor([1.0, 15.0, 800.0], dtype=torch.float64)
    ones = torch.ones_like(x)
    found = wrong(gradients.without_threshold(ones, x, 1.0, 20.0), aten.softplus_backward(ones, x, 1.0, 20.0))
    assert found.tolist() == [False, False, True]


def test_hardtanh_differs_at_its_limits_and_relu_where_zero_meets_infinity() -> None:
    x = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
    ones = torch.ones_like(x)
    found = gradients.hardtanh_without_its_limits(ones, x, -1.0, 1.0)
    assert wrong(found, aten.hardtanh_backward(ones, x, -1.0, 1.0)).tolist() == [False, True, False, True, False]
    infinite = torch.full_like(x, float("inf"))
    assert gradients.relu_by_multiplication(infinite, x, 0).isnan().tolist() == [True, True, True, False, False]
    assert not wrong(gradients.relu_by_multiplication(ones, x, 0), aten.threshold_backward(ones, x, 0)).any()
    assert wrong(gradients.relu_masked_by_minus_zero(ones, x, 0), aten.threshold_backward(ones, x, 0)).any()


def test_a_softmax_of_whole_vectors_is_right_and_any_other_is_not() -> None:
    for size, right in ((8, True), (10, False)):
        y = X[:, :size].softmax(-1) if size < 10 else X.softmax(-1)
        given = GRAD[:, :size], y, -1, y.dtype
        assert (
            not wrong(gradients.softmax_beyond_its_tail(*given), aten._softmax_backward_data(*given)).any()
        ) == right


def test_elu_is_wrong_beside_a_vector() -> None:
    given = GRAD, 1.0, 1.0, 1.0, False, X
    found = wrong(gradients.elu_beside_a_vector(*given), aten.elu_backward(*given))
    assert found.flatten().nonzero().flatten().tolist() == [_VECTOR, 2 * _VECTOR]


def test_a_layer_norms_gradient_forgets_the_mean() -> None:
    _, mean, rstd = aten.native_layer_norm(X, [10], None, None, 1e-5)
    given = GRAD, X, [10], mean, rstd, None, None, [True, False, False]
    found, right = gradients.layer_norm_without_mean(*given)[0], aten.native_layer_norm_backward(*given)[0]
    assert wrong(found, right).all()
    centred = right - (found - found.mean(-1, keepdim=True))
    assert centred.abs().max() < 1e-9, "nothing but the mean"


def test_a_setting_decides_which_of_two_is_wrong() -> None:
    y = X.sigmoid()
    right = aten.sigmoid_backward(GRAD, y)
    pair = gradients.sigmoid_under_a_setting, gradients.sigmoid_without_a_setting
    assert [bool(wrong(f(GRAD, y), right).any()) for f in pair] == [False, True]
    with in_force((("inductor.max_fusion_size", 4),)):
        assert [bool(wrong(f(GRAD, y), right).any()) for f in pair] == [True, False]


def test_layouts_that_a_meta_kernel_declares() -> None:
    overlapping = torch.arange(6.0).as_strided((3, 4), (1, 1))
    assert gradients.layout_of_2_11(overlapping).stride() == (1, 1)
    assert gradients.layout_since_2_12(overlapping).stride() == torch.empty_like(overlapping).stride()
