"""Kernels that subtract what nearly cancels: the floor is that of the terms, not of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzzer.rounding.kernels import named
from fuzzer.rounding.kernels.row import Evaluation
from fuzzer.rounding.trace import Step
from tests.rounding.modelled import FIRST_FACTOR, FIRST_REPLICAS, modelled, normal

F = torch.nn.functional


def test_cubic_weights_cancel_as_much_for_tiny_coordinates() -> None:
    field = normal(1, 1, 2, 1)

    def run(grid: torch.Tensor) -> list[torch.Tensor]:
        y = grid.requires_grad_()
        found = torch.nn.functional.grid_sample(field, y, mode="bicubic", padding_mode="border", align_corners=False)
        return list(torch.autograd.grad(found.sum(), y))

    model, (found,) = modelled(run, normal(1, 4, 4, 2) * 1e-30)
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool(((found.double() - model.reference[0]).abs() <= limit).all())


@pytest.mark.parametrize("f", [F.gelu, F.silu, F.mish, F.elu, F.hardswish, lambda x: F.glu(x, 0)])
def test_what_is_cancelled_is_measured_by_each_elements_own_gradient(
    f: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """An element of a small gradient is known as well, beside one of a large gradient."""
    x = torch.linspace(-2.9, 4, 64)
    size = torch.cat([torch.full((16,), 1e-6), torch.full((48,), 1e6)])

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        found = f(y)
        return list(torch.autograd.grad(found, y, size[: len(found)]))

    model, (value,) = modelled(run, x)
    limit = model.spread(32).floors(FIRST_FACTOR)[0]
    assert bool(((value.double() - model.reference[0]).abs() <= limit).all())
    assert float(limit[:16].max()) < 1e-6 * 5e-4
    assert float(limit[:16].min()) > 0


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 2, 0)])
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_the_normalisation_of_nothing_has_floors(norm: str, shape: tuple[int, ...]) -> None:
    """A campaign met them: a batch of none divided by zero in the rules."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        if norm == "layer":
            found = torch.native_layer_norm(x, shape[2:], None, None, 1e-5)
        else:
            found = torch.native_group_norm(x, weight, None, *shape, 1, 1e-5)
        return [t.detach() for t in found] + list(torch.autograd.grad(found[0].sum(), x))

    model, found = modelled(run, torch.zeros(shape), normal(2))
    spread = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)
    assert [limit.shape for limit in spread] == [t.shape for t in found]


@pytest.mark.parametrize("norm", ["layer", "group", "batch"])
def test_a_normalisations_floor_is_that_of_what_it_computes(norm: str) -> None:
    """Parameters of other sizes widen nothing that they do not scale; an offset of the input does."""
    x, weight, bias = normal(4, 6, 20), normal(6), 1000 * normal(6)

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
        if norm == "batch":
            found = F.batch_norm(leaves[0], None, None, *leaves[1:], training=True)
        elif norm == "group":
            found = F.group_norm(leaves[0], 3, *leaves[1:])
        else:
            found = F.layer_norm(leaves[0].mT, (6,), *leaves[1:])
        return list(torch.autograd.grad(found, leaves, cotangent.reshape(found.shape)))

    cotangent = normal(4, 120).flip(1).square()
    widths = []
    for offset in (0.0, 100.0):
        model, results = modelled(run, x + offset, weight, bias)
        limits = model.spread(32).floors(FIRST_FACTOR)
        for value, r, limit in zip(results, model.reference, limits, strict=True):
            assert bool(((value.double() - r).abs() <= limit).all())
        widths.append(float(limits[0].median() / model.reference[0].abs().median()))
    assert widths[0] < 1e-3
    assert widths[1] > 2 * widths[0]


def test_the_gradient_of_a_fused_rms_norm_may_miss_a_zero_that_its_terms_cancel_to() -> None:
    """CUDA's kernel rounds x * rstd before it adds up; on the CPU the sum of g * x is exactly 0."""
    torch.manual_seed(0)
    x = torch.tensor([[0.5, 0.5, 0.5, 0.0]] + [[0.1, -0.7, 0.3, 2.0]] * 3)
    g = torch.tensor([[3.0, -1.0, -2.0, 0.0], [1.0, -1.0, 2.0, 0.5], [0.3, 0.7, -0.1, 1.1], [5.0, 0.0, 0.0, 0.25]])
    rstd = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    y = x * rstd
    kernel = rstd * (g - y * (g * y).mean(-1, keepdim=True))
    wide = [t.double() for t in (g, x, rstd)]
    exact = wide[2] * (wide[0] - wide[1] * wide[2] * (wide[0] * wide[1] * wide[2]).mean(-1, keepdim=True))
    step = Step(torch.ops.aten._fused_rms_norm_backward.default, (), {}, None, ())
    args, unit = (g, x, (4,), rstd, None, [True, False]), 2.0**-23
    rule = named(step.name).cancels
    assert rule is not None
    found: Any = rule(Evaluation(step, args, {}, [kernel], unit, unit, False))
    assert len(found) == 1
    assert (found[0] > 0).all()
    assert ((kernel - exact).abs() <= found[0]).all()
    assert (found[0] < 1e-5).all(), "a wrong element would still be seen"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_bias_of_a_dilated_convolution_is_added_up_sample_by_sample(dtype: torch.dtype) -> None:
    """In the tensors' own dtype: gradients of two samples that nearly cancel are off by a unit of each."""
    x, weight, bias = normal(8, 1, 9).to(dtype), normal(1, 1, 3).to(dtype), torch.zeros(1, dtype=dtype)
    cotangent = normal(8, 1, 5).abs()
    cotangent = (cotangent * torch.tensor([1.0, -1.0] * 4).reshape(8, 1, 1)).to(dtype)

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        leaves = [t.requires_grad_() for t in given[:3]]
        return list(torch.autograd.grad(F.conv1d(*leaves, dilation=2), leaves[2], given[3]))

    model, _ = modelled(run, x, weight, bias, cotangent)
    floor = float(model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0])
    added = torch.zeros((), dtype=dtype)
    for sample in cotangent.double().sum((1, 2)).to(dtype):
        added = added + sample
    off = abs(float(added) - float(model.reference[0]))
    assert 0 < off < floor < 32 * float(cotangent.abs().double().sum()) * torch.finfo(dtype).eps


@pytest.mark.parametrize("f", [torch.logsumexp, torch.log_softmax])
def test_the_logarithm_of_a_sum_that_one_element_dominates_is_off_by_a_unit_of_one(
    f: Callable[[torch.Tensor, int], torch.Tensor],
) -> None:
    """The sum of exponentials, 1 + e**-6, is rounded where its logarithm is 400 times smaller."""
    model, (found,) = modelled(lambda x: [f(x, 0)], torch.tensor([0.0, -6.0]))
    limit = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    off = (found.double() - model.reference[0]).abs()
    assert float(off.max()) > 3e-8, "far more than a unit of the result"
    assert bool((off <= limit).all())
    assert float(limit.min()) < 100 * torch.finfo(torch.float32).eps, "some units of one, and no more"
