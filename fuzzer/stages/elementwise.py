"""The elementwise operations of inductor's loops, each computed by the eager function for it.

Values have the dtype in which inductor computes: float32 for half precision, every other dtype itself. inductor
promotes nothing by itself; where operands differ in dtype, C++ and Triton promote as torch does.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0: the names of operations in torch._inductor.ops_handler, whose
docstrings define each. A stage cannot run an operation that is not named here. Operations that draw random numbers are
left out, since eager draws other numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fuzzer.stages.cannot import Cannot


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which inductor computes with elements of this dtype."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def _fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once (float64: twice)."""
    return (a.double() * b.double() + c.double()).to(
        torch.promote_types(torch.promote_types(a.dtype, b.dtype), c.dtype)
    )


def _integers_divided(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() / b.double()).to(torch.get_default_dtype())


def _polygamma(order: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    if order.numel() != 1:
        raise Cannot("operation: polygamma of several orders")
    return torch.polygamma(int(order), a)


# Under the names that they have in torch or in torch.special.
_OF_TORCH = """
    abs exp exp2 expm1 sqrt rsqrt relu minimum maximum cos sin tan cosh sinh tanh acos acosh asin asinh atan atan2 atanh
    copysign erf erfc erfinv hypot log log10 log1p log2 ldexp lgamma digamma nextafter neg reciprocal sigmoid sign
    signbit square round floor ceil trunc isinf isnan logical_and logical_not logical_or logical_xor bitwise_and
    bitwise_not bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift eq ne lt gt le ge add sub mul pow fmod
    remainder igamma igammac
"""
_OF_SPECIAL = """
    airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 erfcx gammainc gammaincc i0 i0e i1 i1e log_ndtr modified_bessel_i0
    modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtr ndtri scaled_modified_bessel_k0
    scaled_modified_bessel_k1 spherical_bessel_j0 zeta chebyshev_polynomial_t chebyshev_polynomial_u
    chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l
    legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
    shifted_chebyshev_polynomial_w
"""
_OWN: dict[str, Callable[..., Any]] = {
    "identity": lambda a: a,
    "truediv": torch.true_divide,
    "div_rn": torch.true_divide,
    "mul_rn": torch.mul,
    "int_truediv": _integers_divided,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.fmod,
    "fma": _fused,
    "and_": torch.bitwise_and,
    "or_": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "frexp": lambda a: tuple(torch.frexp(a)),
    "where": lambda condition, a, b: torch.where(condition.bool(), a, b),
    "polygamma": _polygamma,
    "fmaximum": lambda a, b: torch.where(a < b, b, a),  # since 2.15; generated code may choose the result for NaN
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in _OF_TORCH.split()},
    **{name: getattr(torch.special, name) for name in _OF_SPECIAL.split()},
    **_OWN,
}


def elementwise(name: str) -> Callable[..., Any]:
    """The function of tensors that computes this operation. Raises Cannot."""
    found = _FUNCTIONS.get(name)
    if found is None:
        raise Cannot(f"operation: {name}")
    return found


# ---------------------------------------------------------------- along dimensions

Tensors = tuple[torch.Tensor, ...]


def _as_last(value: torch.Tensor, dims: int) -> torch.Tensor:
    """The value with its last `dims` dimensions as one."""
    return value.reshape(*value.shape[: value.ndim - dims], -1)


def _position(name: str, value: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
    """The position of the first extreme element, NaN being the most extreme, as in inductor's own comparison. index:
    each element's position in the tensor, when the loops run through it in another order (since torch 2.11 on a GPU,
    since 2.13 on the CPU too)."""
    value = value.to(torch.uint8) if value.dtype == torch.bool else value
    at = getattr(torch, name)(value, -1)
    if index is None:
        return at
    most = value.gather(-1, at.unsqueeze(-1))
    alike = (value == most) | (value.isnan() & most.isnan())
    return torch.where(alike, index, torch.iinfo(index.dtype).max).amin(-1)


def _moments(value: torch.Tensor) -> Tensors:
    """Mean, sum of squared deviations, count."""
    mean = value.mean(-1)
    return mean, (value - mean.unsqueeze(-1)).square().sum(-1), torch.full_like(mean, value.shape[-1])


def _moments_joined(mean: torch.Tensor, squares: torch.Tensor, count: torch.Tensor) -> Tensors:
    total = count.sum(-1)
    whole = (mean * count).sum(-1) / total
    return whole, (squares + count * (mean - whole.unsqueeze(-1)).square()).sum(-1), total


def _softmax(value: torch.Tensor) -> Tensors:
    most = value.amax(-1)
    return most, (value - most.unsqueeze(-1)).exp().sum(-1)


# By reduction: functions of values in the accumulating dtype, along the last dimension.
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda value: value.sum(-1, dtype=value.dtype),
    "prod": lambda value: value.prod(-1, dtype=value.dtype),
    "max": lambda value: value.amax(-1),
    "min": lambda value: value.amin(-1),
    "any": lambda value: value.bool().any(-1),
    "xor_sum": lambda value: functools.reduce(torch.bitwise_xor, value.unbind(-1)),
    "welford_reduce": _moments,
    "welford_combine": _moments_joined,
    "online_softmax_reduce": _softmax,
    "dot": lambda a, b: (a * b).sum(-1, dtype=a.dtype),
    "argmax": functools.partial(_position, "argmax"),
    "argmin": functools.partial(_position, "argmin"),
}
_IN_THEIR_OWN_DTYPE = ("argmax", "argmin", "any", "xor_sum")


def reduced(kind: str, dtype: torch.dtype, values: Tensors, dims: int) -> Tensors:
    """A reduction's results over the last `dims` dimensions, which are kept with one element each. Raises Cannot."""
    function = _REDUCTIONS.get(kind)
    if function is None:
        raise Cannot(f"reduction: {kind}")
    if kind not in _IN_THEIR_OWN_DTYPE:
        values = tuple(value.to(compute_dtype(dtype)) for value in values)
    found = function(*(_as_last(value, dims) for value in values))
    return tuple(part.reshape(part.shape + (1,) * dims) for part in (found if isinstance(found, tuple) else (found,)))


def scanned(combine: Callable[[Tensors, Tensors], Tensors], values: Tensors, dims: int) -> Tensors:
    """An inclusive scan over the last `dims` dimensions, by doubling: results are combined in another order than one
    after another, which is legal for an associative function."""
    flat, shapes = tuple(_as_last(value, dims) for value in values), [value.shape for value in values]
    step = 1
    while step < flat[0].shape[-1]:
        joined = combine(tuple(v[..., :-step] for v in flat), tuple(v[..., step:] for v in flat))
        flat = tuple(torch.cat((v[..., :step], j.to(v.dtype)), -1) for v, j in zip(flat, joined, strict=True))
        step *= 2
    return tuple(v.reshape(shape) for v, shape in zip(flat, shapes, strict=True))


def sorted_together(values: Tensors, dims: int, descending: bool) -> Tensors:
    """The first value sorted over the last `dims` dimensions, stably, and the others permuted like it."""
    flat = [_as_last(value, dims) for value in values]
    order = torch.sort(flat[0], dim=-1, stable=True, descending=descending).indices
    return tuple(v.gather(-1, order).reshape(value.shape) for v, value in zip(flat, values, strict=True))
