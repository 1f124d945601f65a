"""Activations and their backwards. They compute in float32 inside, and cancel in differences there."""

from __future__ import annotations

import math

import torch

from fuzzer.rounding.kernels.bounds import in_units
from fuzzer.rounding.kernels.row import PRIMITIVE, Evaluation, Kernel, each
from fuzzer.rounding.precision import underflow


def _gelu(e: Evaluation) -> list[torch.Tensor]:
    """x (1 + erf(x)) and x (1 + tanh(x)) near -1."""
    return [4 * e.args[0].abs()]


def _gelu_backward(e: Evaluation) -> list[torch.Tensor]:
    """Both terms of the derivative; for the approximation's second, x (1 - tanh(z)^2) z', its factors."""
    gradient, x = e.args[0], e.args[1].abs()
    slope = x * (0.4 + 0.054 * x * x) if e.step.kwargs.get("approximate") == "tanh" else 0.0 * x
    return [4 * gradient.abs() * (1 + slope)]


def _elu(e: Evaluation) -> list[torch.Tensor]:
    """exp(x) - 1 where exp(x) is small."""
    scalars = [abs(a) for a in e.args[1:4] if not isinstance(a, bool | torch.Tensor)]
    return [2 * torch.ones_like(e.args[0]) * math.prod(scalars[:2])]


def _elu_backward(e: Evaluation) -> list[torch.Tensor]:
    """exp(x) - 1, or result + alpha, where exp(x) is small."""
    scalars = [abs(a) for a in e.args[1:4] if not isinstance(a, bool | torch.Tensor)]
    return [2 * e.args[0].abs() * math.prod(scalars[:3])]


def _celu(e: Evaluation) -> list[torch.Tensor]:
    """exp(x / alpha) - 1 where the power is small, times alpha; x / alpha is rounded."""
    alpha = abs(e.args[1]) if len(e.args) > 1 else 1.0
    return [torch.where(e.args[0] < 0, 3.0 * alpha, 0.0)]


def _tanh_backward(e: Evaluation) -> list[torch.Tensor]:
    """1 - y y where the square is rounded."""
    return [(e.args[0] * e.args[1] * e.args[1]).abs().nan_to_num(0, 0, 0)]


def _silu(e: Evaluation) -> torch.Tensor:
    """The sigmoid may underflow though its product with x does not."""
    return (e.args[0].abs() * underflow(e.step.results[0].dtype)).nan_to_num(0, 0, 0)


def _softplus(e: Evaluation) -> list[torch.Tensor]:
    """exp magnifies the rounding of beta x, by as much as that is; beside the threshold that rounding decides whether
    the result is x (its gradient: that of x)."""
    at = 1 if e.step.name.endswith("backward") else 0
    beta = e.args[at + 1] if len(e.args) > at + 1 else 1.0
    threshold = e.args[at + 2] if len(e.args) > at + 2 else 20.0
    magnified = (e.results[0] * e.args[at] * beta).abs().nan_to_num(0, 0, 0)
    linear = e.args[0] if at else e.args[0].abs() + math.log(2) / beta
    # beta and the product are each rounded
    beside = (e.args[at] * beta - threshold).abs() <= 2 * e.unit * abs(threshold)
    return [torch.where(beside, linear.abs() / e.unit, magnified)]


def _hardswish(e: Evaluation) -> list[torch.Tensor]:
    """x (x + 3) / 6 beside -3, where the sum cancels."""
    x = e.args[0]
    return [torch.where(x.abs() < 3, x.abs(), 0.0)]


def _glu_backward(e: Evaluation) -> list[torch.Tensor]:
    """1 - sigmoid(b) in the second half."""
    gradient, x = e.args[0], e.args[1]
    dim = e.args[2] if len(e.args) > 2 else -1
    return [torch.cat([torch.zeros_like(gradient), (gradient * x.chunk(2, dim)[0]).abs()], dim)]


def _swish_backward(e: Evaluation) -> list[torch.Tensor]:
    """sigmoid(x) (1 + x (1 - sigmoid(x))), and mish's derivative, which is as large."""
    return [2 * e.args[0].abs() * e.args[1].sigmoid() * (1 + e.args[1].abs())]


def _hardswish_backward(e: Evaluation) -> list[torch.Tensor]:
    """x / 3 + 1 / 2."""
    return [torch.where(e.args[1].abs() < 3, e.args[0].abs() * (1 + e.args[1].abs()), 0.0)]


def _mish(e: Evaluation) -> list[torch.Tensor]:
    """The operand times exp of it, where that may underflow."""
    least = underflow(e.step.results[0].dtype)
    return [torch.where(e.args[0] < math.log(least), e.args[0].abs() * least, 0.0)]


# exp, a difference and two products
_ELU = (2.5, 3.5, 2.0)

TABLE = (
    Kernel("elu", PRIMITIVE, units=_ELU, inexact=True, wide=True, cancels=in_units(_elu)),
    Kernel("elu_backward", PRIMITIVE, units=_ELU, inexact=True, wide=True, cancels=in_units(_elu_backward)),
    Kernel("gelu", PRIMITIVE, inexact=True, wide=True, cancels=in_units(_gelu)),
    Kernel("gelu_backward", PRIMITIVE, inexact=True, wide=True, cancels=in_units(_gelu_backward)),
    Kernel("glu_backward", PRIMITIVE, units=(6.5, 9.0, 2.5), inexact=True, cancels=in_units(_glu_backward)),
    *each("silu_backward mish_backward", PRIMITIVE, inexact=True, wide=True, cancels=in_units(_swish_backward)),
    # a sum, two products and a quotient by 6
    Kernel("hardswish", PRIMITIVE, units=(4.5, 5.5, 0.5), inexact=True, wide=True, cancels=in_units(_hardswish)),
    Kernel("hardswish_backward", PRIMITIVE, inexact=True, wide=True, cancels=in_units(_hardswish_backward)),
    Kernel("hardsigmoid", PRIMITIVE, units=(3.5, 4.5, 0.5), inexact=True, wide=True),
    Kernel("hardsigmoid_backward", PRIMITIVE, units=(1.5, 2.5, 0.5), inexact=True, wide=True),
    # sigmoid and a product
    Kernel("silu", PRIMITIVE, units=(3.5, 6.0, 0.5), inexact=True, wide=True, cancels=_silu),
    # two products, exp, log1p or a sum, and a quotient
    *each(
        "softplus softplus_backward",
        PRIMITIVE,
        units=(7.0, 9.0, 0.5),
        inexact=True,
        wide=True,
        cancels=in_units(_softplus),
    ),
    Kernel("mish", wide=True, cancels=_mish),
    Kernel("celu", PRIMITIVE, units=_ELU, inexact=True, cancels=in_units(_celu)),
    # sigmoid and a product
    Kernel("glu", PRIMITIVE, units=(3.5, 6.0, 1.0), inexact=True),
    # two products and 1 - y, which is rounded once
    Kernel("sigmoid_backward", PRIMITIVE, units=(3.0, 3.0, 1.5), inexact=True),
    Kernel("tanh_backward", PRIMITIVE, units=(2.0, 2.0, 1.0), inexact=True, cancels=in_units(_tanh_backward)),
    # exp, a quotient, a sum, a difference and a product; half: each is rounded
    Kernel("log_sigmoid_backward", PRIMITIVE, units=(6.5, 8.0, 3.0), inexact=True),
    # the slope, or the factor 1 / (1 - p), and a product
    *each("rrelu_with_noise_backward native_dropout_backward", PRIMITIVE, units=(3.0, 3.0, 1.0), inexact=True),
)
