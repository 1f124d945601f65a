"""Normalisations subtract a mean: x - mean(x) has an error of a unit of the largest x, which 1 / deviation scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fuzzer.rounding.kernels.bounds import by_largest_operands, by_largest_operands_and_third_result, in_units
from fuzzer.rounding.kernels.row import Evaluation, Hidden, Kernel, each
from fuzzer.rounding.trace import Step


def _of_each(sizes: Callable[[Any, list[torch.Tensor]], list[torch.Tensor]]) -> Callable[[Evaluation], Hidden]:
    """Absolute errors from sizes, in units of the kernel's own arithmetic, of its operands and results. Where
    the input has no elements, there is no error."""
    return in_units(
        lambda e: sizes(e.args, e.results) if e.args[0].numel() else [torch.zeros_like(v) for v in e.results]
    )


def _with_epsilon(step: Step, precision: torch.dtype | None) -> tuple[Any, ...]:
    """The epsilon that rms_norm uses for None, from the precision in which it computes; float64's would be smaller."""
    if step.args[3] is not None:
        return step.args
    computed = torch.float64 if precision == torch.float64 else torch.float32
    return (*step.args[:3], torch.finfo(computed).eps, *step.args[4:])


def _normalised(x: torch.Tensor, rstd: torch.Tensor, weight: Any, bias: Any) -> list[torch.Tensor]:
    """Sizes of errors of (x - mean) * rstd * weight + bias, of the mean and of rstd.

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
    """Before its results, in training, the running statistics that it writes.

    They add momentum times the mean, and times the variance. (x - mean)**2 is off by 2 |x - mean| units of the largest
    x, and n / (n - 1) is at most 2: the variance is off by four times the largest x times the deviation.
    """
    x, weight, bias, mean, variance, training, momentum, eps = args
    *running, _, shown_mean, shown_rstd = values
    columns = [None if t is None else t.reshape(-1, 1) for t in (weight, bias)]
    rows = _by_channel(x)
    rstd = shown_rstd if training else (variance + eps).rsqrt()
    result, *found = _normalised(rows if training else rows.abs() + mean.abs()[:, None], rstd[:, None], *columns)
    result = result.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    largest = found[0].reshape(-1)
    statistics = [momentum * largest, 4 * momentum * largest / rstd][: len(running)]
    shown = zip(found, (shown_mean, shown_rstd), strict=True)
    return [*statistics, result, *(s.reshape(v.shape) if v.numel() else v for s, v in shown)]


def _by_channel(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def _gradients(gradient: torch.Tensor, weight: Any, x: torch.Tensor, rstd: torch.Tensor) -> list[torch.Tensor]:
    """Sizes of errors of rstd * (w g - mean(w g) - y mean(w g y)), and of g y, in rows as in `_normalised`.

    y = (x - mean) * rstd, of n numbers at most sqrt(n), has an error of a unit of the largest x times rstd.
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
    return _wanted([of_input.reshape(x.shape), sums, torch.zeros_like(sums)], mask)


def _rms_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those of a layer_norm with a mean of 0. CUDA's kernel only: on the CPU each operation is recorded."""
    gradient, x, shape, rstd, weight, mask = args
    return _layer_norm_backward((gradient, x, shape, None, rstd, weight, None, [*mask, False]), values)


def _group_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    gradient, x, _, rstd, weight, batch, channels, _, groups, mask = args
    shown = (batch, channels, x.numel() // (batch * channels))
    spread = None if weight is None else weight.reshape(1, channels, 1).expand(shown)
    rows = [None if t is None else t.reshape(batch * groups, -1) for t in (gradient, spread, x, rstd)]
    of_input, of_weight = _gradients(*rows)  # type: ignore[arg-type]
    sums = of_weight.reshape(shown).norm(dim=(0, 2))
    return _wanted([of_input.reshape(x.shape), sums, torch.zeros_like(sums)], mask)


def _batch_norm_backward(args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
    gradient, x, weight, _, variance, _, rstd, training, eps, mask = args
    scale = rstd if training else (variance + eps).rsqrt()
    column = None if weight is None else weight[:, None]
    of_input, of_weight = _gradients(_by_channel(gradient), column, _by_channel(x), scale[:, None])
    result = of_input.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    sums = of_weight.norm(dim=1)
    return _wanted([result, sums, torch.zeros_like(sums)], mask)


def _wanted(sizes: list[torch.Tensor], mask: list[bool]) -> list[torch.Tensor]:
    return [size for size, wanted in zip(sizes, mask, strict=True) if wanted]


def _powers_of_slices(step: Step, args: Any) -> torch.Tensor:
    """The sums of powers whose roots are the norms that `renorm` limits, at each element of their slices; none for the
    largest element (p = inf)."""
    x, p, dim = args[:3]
    if p == math.inf:
        return x
    summed = [d for d in range(x.dim()) if d != dim % x.dim()]
    return x.abs().pow(p).sum(summed, keepdim=True).expand_as(x)


_RUNNING = ("running_mean", "running_var")

TABLE = (
    Kernel("renorm", intermediate=_powers_of_slices),
    Kernel("native_layer_norm", wide=True, cancels=_of_each(_layer_norm)),
    Kernel("native_group_norm", wide=True, cancels=_of_each(_group_norm)),
    Kernel("native_batch_norm", cancels=_of_each(_batch_norm), writes=_RUNNING),
    Kernel("native_layer_norm_backward", cancels=_of_each(_layer_norm_backward)),
    Kernel("native_group_norm_backward", cancels=_of_each(_group_norm_backward)),
    Kernel("native_batch_norm_backward", cancels=_of_each(_batch_norm_backward)),
    Kernel("_fused_rms_norm", spelt_out=_with_epsilon),
    Kernel("_fused_rms_norm_backward", cancels=_of_each(_rms_norm_backward)),
    *each(
        """
        cudnn_batch_norm miopen_batch_norm batch_norm_gather_stats batch_norm_gather_stats_with_counts
        batch_norm_update_stats
        """,
        cancels=by_largest_operands_and_third_result,
        writes=_RUNNING,
    ),
    *each(
        """
        _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
        _batch_norm_no_update _batch_norm_with_update _batch_norm_with_update_functional batch_norm_elemt
        batch_norm_stats
        """,
        cancels=by_largest_operands_and_third_result,
    ),
    *each(
        """
        cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward batch_norm_backward_elemt
        batch_norm_backward_reduce
        """,
        cancels=by_largest_operands,
    ),
)
