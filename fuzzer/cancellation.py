"""What kernels cancel inside, which neither their operands nor their results show: sizes, to be taken by a unit.

`rounding` multiplies each by the unit of the kernel's own arithmetic and moves the results by that much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fuzzer.trace import Step


def _gelu_backward(step: Step, args: Any) -> torch.Tensor:
    """Both terms of the derivative; of the approximation's second, x (1 - tanh(z)^2) z', the factors."""
    gradient, x = args[0], args[1].abs()
    slope = x * (0.4 + 0.054 * x * x) if step.kwargs.get("approximate") == "tanh" else 0.0 * x
    return 4 * gradient.abs() * (1 + slope)


def _elu(step: Step, args: Any) -> torch.Tensor:
    """exp(x) - 1, or result + alpha, where exp(x) is small."""
    backward = step.name.endswith("_backward")
    scalars = [abs(a) for a in args[1:4] if not isinstance(a, bool | torch.Tensor)]
    size = args[0].abs() if backward else torch.ones_like(args[0])
    return 2 * size * math.prod(scalars[: 3 if backward else 2])


def _glu_backward(step: Step, args: Any) -> torch.Tensor:
    """1 - sigmoid(b) in the second half."""
    gradient, x = args[0], args[1]
    dim = args[2] if len(args) > 2 else -1
    return torch.cat([torch.zeros_like(gradient), (gradient * x.chunk(2, dim)[0]).abs()], dim)


def _swish_backward(step: Step, args: Any) -> torch.Tensor:
    """sigmoid(x) (1 + x (1 - sigmoid(x))), and mish's derivative, which is as large."""
    return 2 * args[0].abs() * args[1].sigmoid() * (1 + args[1].abs())


# Kernels without sums that cancel inside: what is cancelled, element by element, in units of the kernel's arithmetic.
POINTWISE: dict[str, Callable[[Step, Any], torch.Tensor]] = {
    "gelu": lambda step, args: 4 * args[0].abs(),  # x (1 + erf(x)) and x (1 + tanh(x)) near -1
    "gelu_backward": _gelu_backward,
    "elu": _elu,
    "elu_backward": _elu,
    "glu_backward": _glu_backward,
    "silu_backward": _swish_backward,
    "mish_backward": _swish_backward,
    "hardswish_backward": lambda step, args: args[0].abs() * (1 + args[1].abs()),  # x / 3 + 1 / 2
}


def _normalised(x: torch.Tensor, rstd: torch.Tensor, weight: Any, bias: Any) -> list[torch.Tensor]:
    """Of (x - mean) * rstd * weight + bias, of the mean and of rstd.

    x: rows that are normalised together;  rstd: a column, one number a row;  weight, bias: as x, or None.
    """
    largest = _row_maxima(x) * rstd
    result = largest * (1.0 if weight is None else weight.abs()) + (0.0 if bias is None else bias.abs())
    return [result.expand_as(x), largest / rstd, largest * rstd]


def _row_maxima(rows: torch.Tensor) -> torch.Tensor:
    return rows.abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True)


def _layer_norm(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    x, shape, weight, bias = args[:4]
    rows = math.prod(x.shape[: x.dim() - len(shape)])
    flat = [None if t is None else t.reshape(1, -1) for t in (weight, bias)]
    found = _normalised(x.reshape(rows, -1), values[2].reshape(rows, 1), *flat)
    return [size.reshape(v.shape) for size, v in zip(found, values, strict=True)]


def _group_norm(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    x, weight, bias, batch, channels, _, groups = args[:7]
    shown = (batch, channels, x.numel() // (batch * channels))
    flat = [None if t is None else t.reshape(1, channels, 1).expand(shown) for t in (weight, bias)]
    rows = [None if t is None else t.reshape(batch * groups, -1) for t in (x, values[2], *flat)]
    found = _normalised(*rows)  # type: ignore[arg-type]
    return [size.reshape(v.shape) for size, v in zip(found, values, strict=True)]


def _batch_norm(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    x, weight, bias, mean, variance, training = args[:6]
    columns = [None if t is None else t.reshape(-1, 1) for t in (weight, bias)]
    rows = _by_channel(x)
    rstd = values[2] if training else (variance + args[7]).rsqrt()
    found = _normalised(rows if training else rows.abs() + mean.abs()[:, None], rstd[:, None], *columns)
    result = found[0].reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    return [result, *(s.reshape(v.shape) if v.numel() else v for s, v in zip(found[1:], values[1:], strict=True))]


def _by_channel(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def _gradients(gradient: torch.Tensor, weight: Any, x: torch.Tensor, rstd: torch.Tensor) -> list[torch.Tensor]:
    """Of rstd * (w g - mean(w g) - y mean(w g y)), and of g y, in rows as in `_normalised`.

    y = (x - mean) * rstd, of n numbers at most sqrt(n), is off by a unit of the largest x times rstd.
    """
    size = _row_maxima(x) * rstd
    scaled = _row_maxima(gradient if weight is None else gradient * weight)
    input_s = rstd * scaled * (1 + 2 * size * size.clamp_max(math.sqrt(x.shape[-1])))
    return [input_s.expand_as(x), gradient.abs() * size]


def _layer_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    gradient, x, shape, _, rstd, weight, _, mask = args
    rows = math.prod(x.shape[: x.dim() - len(shape)])
    flat = [
        None if t is None else t.reshape(n, -1) for t, n in ((gradient, rows), (weight, 1), (x, rows), (rstd, rows))
    ]
    of_input, of_weight = _gradients(*flat)  # type: ignore[arg-type]
    sums = of_weight.norm(dim=0).reshape(shape)
    return _wanted([of_input.reshape(x.shape), sums, 0 * sums], mask)


def _rms_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    """As a layer_norm's with a mean of 0. The kernel of CUDA alone: on the CPU each operation is recorded."""
    gradient, x, shape, rstd, weight, mask = args
    return _layer_norm_backward((gradient, x, shape, None, rstd, weight, None, [*mask, False]), values)


def _group_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    gradient, x, _, rstd, weight, batch, channels, _, groups, mask = args
    shown = (batch, channels, x.numel() // (batch * channels))
    spread = None if weight is None else weight.reshape(1, channels, 1).expand(shown)
    rows = [None if t is None else t.reshape(batch * groups, -1) for t in (gradient, spread, x, rstd)]
    of_input, of_weight = _gradients(*rows)  # type: ignore[arg-type]
    sums = of_weight.reshape(shown).norm(dim=(0, 2))
    return _wanted([of_input.reshape(x.shape), sums, 0 * sums], mask)


def _batch_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    gradient, x, weight, _, variance, _, rstd, training, eps, mask = args
    scale = rstd if training else (variance + eps).rsqrt()
    column = None if weight is None else weight[:, None]
    of_input, of_weight = _gradients(_by_channel(gradient), column, _by_channel(x), scale[:, None])
    result = of_input.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    sums = of_weight.norm(dim=1)
    return _wanted([result, sums, 0 * sums], mask)


def _wanted(sizes: list[torch.Tensor], mask: list[bool]) -> list[torch.Tensor]:
    return [size for size, wanted in zip(sizes, mask, strict=True) if wanted]


# Normalisations and their backwards, of each of their results.
NORMS: dict[str, Callable[[Any, list[torch.Tensor]], list[torch.Tensor]]] = {
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm_backward": _batch_norm_backward,
}


# What a kernel computes on the way, element by element, and may round to the tensor's dtype: where it leaves the range,
# the result may be infinite though it is not.
INTERMEDIATE: dict[str, Callable[[Any], torch.Tensor]] = {
    "mse_loss": lambda args: (args[0] - args[1]).square(),
    "addcmul": lambda args: args[1] * args[2],
    "addcdiv": lambda args: args[1] / args[2],
}


def nearby(step: Step, args: Any) -> torch.Tensor:
    """Of a linear interpolation's results, what a weight is off by multiplies: the largest in reach of a tap."""
    field = args[0].abs()
    if step.name.endswith("_backward"):
        return dilated(step.op(field, *args[1:]))
    found: torch.Tensor = step.op(dilated(field), *args[1:])
    return found


def dilated(field: torch.Tensor) -> torch.Tensor:
    """Numbers that are not negative, over the dims after the first two, each become the largest of its neighbours."""
    for dim in range(2, field.dim()):
        wide = torch.nn.functional.pad(field.movedim(dim, -1), (1, 1))
        field = wide.unfold(-1, 3, 1).amax(-1).movedim(-1, dim)
    return field
