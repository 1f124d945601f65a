"""Sums, means, norms, scans and softmaxes."""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzzer.rounding.kernels.row import (
    ACCUMULATION,
    COMPOUND,
    EXACT,
    PRIMITIVE,
    Evaluation,
    Hidden,
    Kernel,
    Kind,
    Noise,
    each,
)
from fuzzer.rounding.precision import ULPS, epsilon, float_tensors, real_dtypes, underflow
from fuzzer.rounding.trace import Step, is_rounded


def _is_maximum(step: Step) -> bool:
    """Whether a norm or distance is one of p = inf."""
    return any(isinstance(a, float) and math.isinf(a) for a in step.args)


def _norm(step: Step) -> Kind:
    """A norm of p = inf is a maximum, but for complex numbers' moduli."""
    takes_complex = any(ref.dtype.is_complex for ref in step.inputs)
    return EXACT if not takes_complex and _is_maximum(step) else COMPOUND


def _distance(step: Step) -> Kind:
    """For p = inf: the largest of differences, each rounded once."""
    return PRIMITIVE if _is_maximum(step) else COMPOUND


def _segments(step: Step) -> Kind:
    """The largest or smallest element of a segment is selected."""
    return EXACT if step.args[1] in ("max", "min") else COMPOUND


def _along_dim(step: Step) -> float:
    """The size of the dimension that the step names: its first integer."""
    dims = [a for a in step.args if isinstance(a, int) and not isinstance(a, bool)]
    shape = next((ref.shape for ref in step.inputs if is_rounded(ref)), ())
    return float(max(shape[dims[0]], 1)) if dims and shape else 1.0


def _underflown(e: Evaluation) -> float:
    """The underflow of a product: a zero without a factor of zero."""
    factors = list(float_tensors((e.args, e.kwargs)))[:1]
    return underflow(e.step.results[0].dtype) if factors and not bool((factors[0] == 0).any()) else 0.0


def _log_of_sum(e: Evaluation) -> float:
    """The error of log(1 + a little), where one element dominates."""
    return 2.0 * e.unit


def _kept_logarithm(e: Evaluation) -> Hidden:
    """The backward of fused attention computes probabilities anew, as exp(score - l). Of the forward it keeps l alone,
    the logarithm of a row's sum of exponentials, rounded (docs/rounding.md, [12])."""
    logarithm = torch.logsumexp(e.args[0], e.args[1], keepdim=True).abs().nan_to_num(0.0, 0.0, 0.0)
    return [e.results[0].abs() * (e.adding * logarithm).clamp_max(1.0)]


def _multiplied(step: Step, args: Any, noise: Noise, scale: float) -> Any:
    """softmax's backward may round gradient * output to its operands' dtype before the sum and the difference."""
    coarsest = max(real_dtypes(step.inputs), key=epsilon)
    return (args[0] * (1 + noise(args[0]) * scale * ULPS[coarsest] * epsilon(coarsest)), *args[1:])


def _in_its_own_dtype(step: Step, precision: torch.dtype | None) -> tuple[Any, ...]:
    """A softmax of half precision may return float32 on CUDA alone."""
    return (*step.args[:2], False)


def _largest_product(step: Step, args: Any) -> torch.Tensor:
    """The largest product of some of the factors: in some order it occurs first."""
    return torch.prod(args[0].abs().clamp_min(1.0), *args[1:])


def _squares(step: Step, args: Any) -> torch.Tensor:
    """A sum of squares before it is divided or its root is taken. A running mean starts at one element, and the next
    one may be twice its size away."""
    return 4 * args[0].abs().square().sum()


def _powers(step: Step, args: Any) -> torch.Tensor:
    """The sum of powers of which a norm takes the root; the operand itself where the norm is no such root."""
    return _summed(args[0], args[1] if len(args) > 1 and args[1] is not None else 2.0)


def _powers_of_differences(step: Step, args: Any) -> torch.Tensor:
    """The same of a distance."""
    return _summed(args[0] - args[1], args[2] if len(args) > 2 else 2.0)


def _summed(x: torch.Tensor, p: float) -> torch.Tensor:
    return x.abs().pow(p).sum() if 0 < p < math.inf else x.abs()


TABLE = (
    Kernel("sum", ACCUMULATION, wide=True, shrinks=True),
    Kernel("mean", ACCUMULATION, wide=True, divides=True, approximated=True),
    *each("nansum trace", ACCUMULATION),
    *each("var var_mean", wide=True, intermediate=_squares),
    *each("std std_mean", wide=True, is_root=True, intermediate=_squares),
    *each("linalg_vector_norm norm", kind_of=_norm, wide=True, is_root=True, intermediate=_powers),
    Kernel("dist", kind_of=_distance, by_parts=True, intermediate=_powers_of_differences),
    Kernel("cumsum", ACCUMULATION, terms=_along_dim, narrow=True, is_tree=True),
    Kernel("cumprod", terms=_along_dim, narrow=True, is_tree=True, cancels=_underflown),
    Kernel("prod", narrow=True, is_tree=True, cancels=_underflown, intermediate=_largest_product),
    Kernel("logcumsumexp", terms=_along_dim, narrow=True, is_tree=True),
    *each("cummax cummin", EXACT, terms=_along_dim),
    Kernel("segment_reduce", kind_of=_segments, narrow=True),
    Kernel("logsumexp", cancels=_log_of_sum),
    Kernel("_safe_softmax", unstated="other kernels in a row, which compilers write out"),
    Kernel("_segment_reduce_backward", unstated="products and quotients that depend on its mode"),
    Kernel(
        "_softmax",
        terms=_along_dim,
        wide=True,
        rereads=lambda value, apart: value * apart.exp(),
        attended=_kept_logarithm,
        spelt_out=_in_its_own_dtype,
    ),
    Kernel(
        "_log_softmax",
        terms=_along_dim,
        rereads=lambda value, apart: value + apart,
        cancels=_log_of_sum,
        spelt_out=_in_its_own_dtype,
    ),
    Kernel("_softmax_backward_data", terms=_along_dim, wide=True, rounds_first=_multiplied),
    Kernel("_log_softmax_backward_data", terms=_along_dim, wide=True),
)
