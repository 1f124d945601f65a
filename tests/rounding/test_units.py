"""Functions err by no more than the `units` of their rows: kernels of eager, vectorised and not, and of inductor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzzer.rounding.kernels import KERNELS
from fuzzer.rounding.precision import ULPS

Function = Callable[[torch.Tensor], torch.Tensor]
F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16

UNITS = {name: row.units for name, row in KERNELS.items() if row.units is not None}
# Functions of one tensor whose error no cancellation adds to; elu and lgamma cancel too, and a floor bounds them.
OF_ONE = [name for name in UNITS if KERNELS[name].cancels is None or name in ("erf", "erfc")]
OF_MORE = """
    atan2 hypot pow xlogy special_xlog1py polar glu sigmoid_backward log_sigmoid_backward rrelu_with_noise
    rrelu_with_noise_backward native_dropout native_dropout_backward lgamma hardsigmoid hardsigmoid_backward
    mse_loss_backward huber_loss_backward smooth_l1_loss_backward binary_cross_entropy_backward nll_loss_backward
    nll_loss2d_backward
"""
OF_ONE = [name for name in OF_ONE if name not in OF_MORE.split()]
# inductor's erf is a polynomial (Abramowitz and Stegun 7.1.26) in float32, 1 minus something: see `fuzzer.rounding`.
ABSOLUTE = {"erf": 5 * torch.finfo(F32).eps}
# Faults of inductor's code: expm1 is exp(x) - 1, atanh returns 0 for small arguments, and erfinv beside 1 is a rational
# function with Newton's steps on an erf that is 1 there (see findings.db).
FAULTY = ("expm1", "atanh", "erfinv")


def called(name: str) -> Function:
    """The function of a kernel's name."""
    return getattr(torch, name, None) or getattr(torch.special, name.removeprefix("special_"))  # type: ignore[no-any-return]


def arguments(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Every exponent, and the ranges in which functions change their rule."""
    g = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=g).to(torch.int32).view(F32).double()
    near = torch.randn(count, generator=g, dtype=F64)
    found = torch.cat([bits, near, near * 10, near.sin(), near * 100, 1 + near / 1000]).to(dtype)
    return found[torch.isfinite(found)]


def units_off(value: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, absolute: float = 0.0) -> float:
    """The largest error in units of the last place of the exact result, among normal numbers."""
    info = torch.finfo(dtype)
    last = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - 1) * info.eps
    off = ((value.double() - exact).abs() - absolute * (1 + info.eps)).clamp_min(0) / last
    normal = torch.isfinite(value) & (exact.abs() >= info.smallest_normal) & (exact.abs() <= info.max)
    return float(torch.where(normal, off, 0.0).max())


def allowed(name: str, dtype: torch.dtype) -> float:
    return UNITS[name][{F64: 0, F32: 1}.get(dtype, 2)] * (1 + 2**-10)  # half precision is rounded twice


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_eagers_functions_err_by_no_more_than_is_documented(name: str, dtype: torch.dtype) -> None:
    x = arguments(2**14, dtype)
    function = called(name)
    apart = torch.stack([x, x], 1)[:, 0]  # not contiguous: kernels that are not vectorised
    for given in (x, apart):
        assert units_off(function(given), function(x.double()), dtype, ABSOLUTE.get(name, 0.0)) <= allowed(name, dtype)


@pytest.mark.parametrize("name", ["pow", "atan2", "hypot", "div", "xlogy", "special_xlog1py"])
def test_eagers_functions_of_two_err_by_no_more_than_is_documented(name: str) -> None:
    x = arguments(2**14, F32)
    y = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))]
    x = x.abs() if name == "pow" else x
    function: Any = called(name)
    assert units_off(function(x, y), function(x.double(), y.double()), F32) <= allowed(name, F32)


@pytest.mark.parametrize("name", [n for n in OF_ONE if n not in ("sigmoid", "reciprocal", "rsqrt")])
def test_float64_functions_err_by_no_more_than_is_documented(name: str) -> None:
    """Against mpmath, which torch needs itself (sympy)."""
    mpmath = pytest.importorskip("mpmath")
    special = {
        "exp2": lambda t: mpmath.mpf(2) ** t,
        "log2": lambda t: mpmath.log(t, 2),
        "i0": lambda t: mpmath.besseli(0, t),
        "special_i0e": lambda t: mpmath.besseli(0, t) * mpmath.exp(-abs(t)),
        "special_i1": lambda t: mpmath.besseli(1, t),
        "special_i1e": lambda t: mpmath.besseli(1, t) * mpmath.exp(-abs(t)),
        "special_entr": lambda t: -t * mpmath.log(t),
        "angle": mpmath.arg,
    }
    exact = special.get(name) or getattr(mpmath, name)
    x = arguments(60, F64)
    x = x[x.abs() < 300]
    value = called(name)(x)
    with mpmath.workprec(200):
        for argument, found in zip(x.tolist(), value.tolist(), strict=True):
            if math.isfinite(found) and abs(found) > 1e-300:
                r = exact(mpmath.mpf(argument))
                last = mpmath.mpf(2) ** (math.frexp(float(r))[1] - 53)
                assert abs(mpmath.mpf(found) - r) / last <= allowed(name, F64), argument


@pytest.mark.slow
def test_compiled_functions_err_by_no_more_than_is_documented() -> None:
    names = [name for name in OF_ONE if name not in FAULTY]
    functions = [called(name) for name in names]
    compiled = torch.compile(lambda x: [f(x) for f in functions])
    for dtype in (F32, BF16):
        x = arguments(2**14, dtype)
        for name, function, value in zip(names, functions, compiled(x), strict=True):
            off = units_off(value, function(x.double()), dtype, ABSOLUTE.get(name, 0.0))
            assert off <= allowed(name, dtype), f"{name} in {dtype} is off by {off} units"


def test_what_the_table_leaves_out_is_correctly_rounded() -> None:
    x = arguments(2**14, F32)
    y = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))]
    for name in ("add", "sub", "mul"):
        function: Any = getattr(torch, name)
        assert name not in UNITS
        assert units_off(function(x, y), function(x.double(), y.double()), F32) <= ULPS[F32] / 2 + 2**-10
