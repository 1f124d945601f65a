"""Wrong decompositions of ops that occur only in backwards, and wrong strides from a meta kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuzzer.judgement.planted.fault import Fault
from fuzzer.language.private import config_module, replaced_decomposition, replaced_fake
from fuzzer.language.settings import default

Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def decomposed(op: Any, function: Callable[..., torch.Tensor]) -> Fault:
    return Fault(lambda: replaced_decomposition(op, function))


def sigmoid_gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (y * (1 - y))


def without_complement(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * y


def one_element_scaled(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    right = sigmoid_gradient(grad, y)
    where = torch.arange(right.numel(), device=right.device).reshape(right.shape)
    return torch.where(where == right.numel() // 2, right * 1.01, right)


def all_zero(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(grad)


def without_threshold(grad: torch.Tensor, x: torch.Tensor, beta: float, threshold: float) -> torch.Tensor:
    z = (x * beta).exp()
    return grad * z / (z + 1)


def hardtanh_without_its_limits(grad: torch.Tensor, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Eager gives 0 at the limits themselves; this does not."""
    return torch.where((x < low) | (x > high), 0.0, grad)


def hardtanh_at_its_own_limits(grad: torch.Tensor, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Right, as in eager's kernel: the limits in float32."""
    wide = x.float()
    return torch.where((wide <= low) | (wide >= high), 0.0, grad)


def hardtanh_at_rounded_limits(grad: torch.Tensor, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """The limits are rounded to the nearest numbers of the tensor's dtype."""
    low, high = (float(torch.tensor(limit).to(x.dtype)) for limit in (low, high))
    return hardtanh_at_its_own_limits(grad, x, low, high)


def relu_by_multiplication(grad: torch.Tensor, x: torch.Tensor, threshold: float) -> torch.Tensor:
    """Zero gradients by multiplication, so that infinity times zero gives NaN."""
    return grad * (x > threshold)


def softmax_beyond_its_tail(grad: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """The sum along the last dimension continues into the next row, up to a whole vector of 8."""
    product = grad * y
    following = product.roll(-1, 0)[..., : -product.shape[-1] % 8]
    total = product.sum(dim, keepdim=True) + following.sum(dim, keepdim=True)
    return product - y * total


_VECTOR = 16  # floats in the widest register


def elu_beside_a_vector(
    grad: torch.Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: torch.Tensor
) -> torch.Tensor:
    """The first element after a vector repeats the vector's last one."""
    slope = torch.where(x > 0, scale, scale * alpha * input_scale * (x * input_scale).exp())
    place = torch.arange(x.numel(), device=x.device)
    place = place - ((place > 0) & (place % _VECTOR == 0)).to(place.dtype)
    return (grad * slope).flatten()[place].reshape(x.shape)


def tanh_in_single_precision(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The cast back to the operands' own dtype is missing."""
    narrow = grad.float() * (1 - y.float() * y.float())
    return narrow.to(grad.dtype)


def layer_norm_without_mean(
    grad: torch.Tensor, x: torch.Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    """The gradient through the mean is missing. For a layer norm over the last dimension, without weight and bias."""
    normal = (x - mean) * rstd
    return (grad - normal * (grad * normal).mean(-1, keepdim=True)) * rstd, None, None


def sigmoid_under_a_setting(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Wrong unless inductor.max_fusion_size has its default."""
    return sigmoid_gradient(grad, y) * (1.0 if _usual_fusion() else 1.01)


def sigmoid_without_a_setting(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return sigmoid_gradient(grad, y) * (1.01 if _usual_fusion() else 1.0)


def _usual_fusion() -> bool:
    return bool(config_module("inductor").max_fusion_size == default("inductor.max_fusion_size"))


def relu_masked_by_minus_zero(grad: torch.Tensor, x: torch.Tensor, threshold: float) -> torch.Tensor:
    # from x, which is 0 there: inductor reads a literal -0.0 as 0.0, and Triton -x as 0 - x
    return torch.where(x > threshold, grad, x * -1.0)


def declared(op: Any, function: Callable[..., torch.Tensor]) -> Fault:
    """The compiler is told that an op's result has the layout of function's result."""
    return Fault(lambda: replaced_fake(op, function))


def layout_of_2_11(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """slice_scatter's layout as torch declared it before 2.12: that of x, even where x's elements share memory."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def layout_since_2_12(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty_like(x)
