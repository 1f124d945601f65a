"""Arithmetic and library functions of numbers: one rounding each.

Units of a compound function are sums of its parts' units. Triton divides and takes roots approximately, inductor
multiplies by reciprocals. Half precision is float32 rounded once more, except in kernels that round in between.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzzer.rounding.kernels.bounds import in_units
from fuzzer.rounding.kernels.row import COMPOUND, PRIMITIVE, Evaluation, Kernel, Kind, each
from fuzzer.rounding.precision import epsilon, real_dtypes, representable
from fuzzer.rounding.scalars import round_to
from fuzzer.rounding.trace import Ref, Step, is_rounded


def _unscaled(step: Step) -> Kind:
    """a + alpha * b is a product too."""
    return COMPOUND if step.kwargs.get("alpha", 1) != 1 or len(step.args) > 2 else PRIMITIVE


def _is_rounded_off(step: Step) -> bool:
    """Whether a quotient is rounded to an integer, which is a jump."""
    return step.name == "floor_divide" or step.kwargs.get("rounding_mode") is not None


def _is_truncated(step: Step) -> bool:
    return step.kwargs.get("rounding_mode") == "trunc" and is_rounded(step.results[0])


def _quotient(step: Step, args: Any, kwargs: Any) -> Any:
    """A truncated quotient is rounded before it is truncated (`div_trunc_kernel`, ATen/native/cpu/BinaryOpsKernel.cpp).
    A floored one is exact: it comes from the exact remainder (`div_floor_floating`, c10/util/generic_math.h)."""
    if not _is_truncated(step):
        return step.op(*args, **kwargs)
    found = args[0] / args[1]
    if step.results[0].dtype != torch.float64:
        found = found.to(torch.float32).double()
    return args[0].copy_(found.trunc()) if step.writes else found.trunc()


def _hyperbolic(step: Step, args: Any, kwargs: Any) -> Any:
    """cosh and sinh. torch's vectorised kernels are infinite from 709 on, where half of an overflowing exp is not."""
    x = args[0].clone()
    found = step.op(*args, **kwargs)
    if x.is_complex():
        return found
    root = (x.abs() / 2).exp()
    large = (root / 2 * root).copysign(found)
    return found.copy_(torch.where(x.abs() > 709, large, found))


def _rounding_before(step: Step, approximate: bool) -> float:
    """The error of a quotient before it becomes an integer, relative to it. A CPU's scalar kernels round quotients of
    half-precision tensors, and the divisor's multiple before that, to the dtype; vectors and compiled code keep
    them in float32. Before it truncates, an accelerator may invert the divisor (1 unit of float32) or divide
    approximately (2), and multiply."""
    if not _is_rounded_off(step) or not is_rounded(step.results[0]):
        return 0.0
    unit = epsilon(step.results[0].dtype)
    if unit > epsilon(torch.float32):
        return unit
    return 3 * epsilon(torch.float32) if approximate and _is_truncated(step) else 0.0


def _floored(e: Evaluation) -> float | torch.Tensor:
    """A unit of a floored quotient of 1 / eps and more: beyond that a dtype does not hold the quotient's fraction."""
    (result,) = e.step.results
    if not _is_rounded_off(e.step) or _is_truncated(e.step) or epsilon(result.dtype) > epsilon(torch.float32):
        return 0.0
    unit, size = epsilon(result.dtype), e.results[0].abs()
    return torch.where(torch.isfinite(size) & (size >= 1 / unit), unit * size, 0.0)


def _remainder(e: Evaluation) -> float | torch.Tensor:
    """a - floor(a / b) b, as torch documents it: a unit of a, unless the product is a number of the dtype. The
    quotient is exact."""
    a, b = e.args
    multiple = torch.floor_divide(torch.as_tensor(a, dtype=torch.float64), b) * b
    exact = representable(multiple, e.step.results[0].dtype) & (a - multiple == e.results[0])
    return torch.where(exact, 0.0, e.unit * abs(a)).nan_to_num(0, 0, 0)


def _by_what_float32_rounds(step: Step) -> bool:
    """Whether a scalar operand is no float32 number, and the result is one: code that continues in float64 keeps it."""
    to = {ref.dtype.to_real() for ref in step.outs}
    return to == {torch.float32} and any(isinstance(a, float) and round_to(a, torch.float32) != a for a in step.args)


def _approximation_of_erf(e: Evaluation) -> float:
    """torch's vectorised erf is 1 - the approximation 7.1.26 of Abramowitz and Stegun, with an absolute error of 1.5e-7
    and the rounding of its terms; 4.9e-7 has been measured."""
    return 0.0 if any(r.dtype == torch.float64 for r in e.step.results) else 5.0 * epsilon(torch.float32)


def _logit(e: Evaluation) -> list[torch.Tensor]:
    """log(z / (1 - z)): 1 / (1 - z), which is 1 + exp of the result, times the error of z."""
    return [(2 * (1 + e.results[0].exp())).nan_to_num(0, 0, 0)]


def _limit_is_one(step: Step) -> bool:
    """Whether 1 - eps, to which an operand is limited, is 1 in the tensor's dtype: x / (1 - x) is then infinite."""
    eps = step.args[-1]
    return isinstance(eps, float) and round_to(1.0 - eps, step.results[0].dtype) == 1.0


def _logit_of_one(step: Step, args: Any, value: torch.Tensor) -> torch.Tensor:
    """logit is infinite for operands of 1 or more at the limit. Uses the result alone, since in place it overwrites the
    operand."""
    if not _limit_is_one(step):
        return value
    eps = step.args[-1]
    return torch.where(value >= math.log((1 - eps) / eps) * (1 - 1e-6), math.inf, value)


def _logit_backward_of_one(step: Step, args: Any, value: torch.Tensor) -> torch.Tensor:
    return torch.where(args[1] == 1, args[0] / 0.0, value) if _limit_is_one(step) else value


def _ones(step: Step, given: Any, moved: Any) -> Any:
    """1 - x is exactly 0 for x = 1, however it is rounded."""
    return (moved[0], torch.where(given[1] == 1, given[1], moved[1]), *moved[2:])


def _linspace(e: Evaluation) -> float:
    """(end - start) * i / n + start."""
    return 4.0 * e.unit * max(abs(a) for a in e.step.args[:2])


def _dropped(step: Step) -> tuple[Ref, float]:
    """native_dropout's mask and 1 / (1 - p)."""
    chance = step.args[1]
    return step.outs[1], 1 / (1 - chance) if chance < 1 else 0.0


def _beside_poles(e: Evaluation) -> list[torch.Tensor]:
    """The sum of lgamma(x - j / 2), j < p: a difference has an error of a unit, lgamma digamma times that."""
    x, p = e.args
    differences = x.unsqueeze(-1) - torch.arange(p, dtype=x.dtype) / 2
    return [(differences * torch.digamma(differences)).abs().nan_to_num(0, 0, 0).sum(-1)]


def _poles(step: Step, given: Any, moved: Any) -> Any:
    """A pole is a whole number, and is read as it is."""
    x = given[0]
    pole = (x <= 0) & (x == x.floor())
    if bool(pole.any()):
        moved[0].copy_(torch.where(pole, x, moved[0]))
    return moved


def _at_a_pole(step: Step, args: Any) -> torch.Tensor:
    """Infinite where an operand may be a pole, else 0. An operand that a few roundings made of numbers of the largest
    operand's size is off by as many units of that; here four are allowed. At the pole itself `polygamma` returns a
    number, since sin(pi x) is rounded."""
    x, half, last = args[0], 1.0, 0.0
    if step.name == "polygamma":
        x = args[1]
    elif step.name == "mvlgamma":  # x - j / 2 for j < p
        half, last = (0.5, (args[1] - 1) / 2) if args[1] > 1 else (1.0, 0.0)
    pole = (x / half).round() * half
    size = x.abs().nan_to_num(0, 0, 0).max() if x.numel() else x
    near = (x - pole).abs() <= 4 * epsilon(step.results[0].dtype) * size
    return torch.where(near & (pole <= last), math.inf, 0.0)


def _sinc(e: Evaluation) -> list[torch.Tensor]:
    """sin(pi x) / (pi x): the rounding of pi x, a share of it, moves the sine by that."""
    return [torch.full_like(e.results[0].abs(), 2.0)]


def _log_of_two(e: Evaluation) -> list[torch.Tensor]:
    """The larger operand, and the logarithm of 1 + exp(-|a - b|), which may cancel it."""
    larger = torch.maximum(*e.args[:2])
    return [(1 + larger.abs()).nan_to_num(0, 0, 0)]


def _log_ndtr(e: Evaluation) -> list[torch.Tensor]:
    """Beside 1 and -1 two terms cancel; further on, erfc(x / sqrt(2)) magnifies the rounding of its argument."""
    x, result = e.args[0], e.results[0].abs()
    found = 2 * result * torch.where(x > 0, x * x, 1.0) + torch.where(x.abs() < 1.5, 1.5, 0.0)
    return [found.nan_to_num(0, 0, 0)]


def _between(e: Evaluation) -> list[torch.Tensor]:
    """start + weight (end - start), or the same from the end; exact at both ends and where these are equal."""
    start, end, weight = e.args[0], e.args[1], torch.as_tensor(e.args[2], dtype=torch.float64)
    size = start.abs() + end.abs() + (weight * (end - start)).abs()
    return [torch.where((start == end) | (weight == 0) | (weight == 1), 0.0, size).nan_to_num(0, 0, 0)]


def _added_product(e: Evaluation) -> list[torch.Tensor]:
    """a + value b c: the sum's first operand, and both roundings of the products."""
    added, *factors = e.args
    product = e.kwargs.get("value", 1) * factors[0] * factors[1]
    exact = representable(product, max(real_dtypes((*e.step.inputs, *e.step.results)), key=epsilon))
    return [torch.where(exact, 0.0, added.abs() + 2 * product.abs()).nan_to_num(0, 0, 0)]


def _added_quotient(e: Evaluation) -> list[torch.Tensor]:
    """a + value b / c: the sum's first operand, and the roundings of the product and the quotient."""
    added, over, under = e.args
    quotient = e.kwargs.get("value", 1) * over / under
    return [(added.abs() + 3 * quotient.abs()).nan_to_num(0, 0, 0)]


def _scaled(step: Step, args: Any) -> torch.Tensor | None:
    """alpha times the second operand, which the CPU's vectorised kernels round to half precision."""
    alpha = step.kwargs.get("alpha", 1)
    return None if abs(alpha) == 1 else torch.as_tensor(abs(args[1]) * abs(alpha))


def _exponential(step: Step, args: Any) -> torch.Tensor:
    """exp of the operand's size, which is multiplied by less than 1."""
    return args[0].abs().exp()  # type: ignore[no-any-return]


TABLE = (
    Kernel(
        "add", PRIMITIVE, kind_of=_unscaled, by_parts=True, contracts=True, sums_gradients=True, intermediate=_scaled
    ),
    Kernel("sub", PRIMITIVE, kind_of=_unscaled, by_parts=True, contracts=True, intermediate=_scaled),
    Kernel("rsub", PRIMITIVE, kind_of=_unscaled, by_parts=True, contracts=True),
    Kernel("mul", PRIMITIVE, rescales=_by_what_float32_rounds),
    *each("ldexp deg2rad rad2deg leaky_relu leaky_relu_backward softshrink", PRIMITIVE),
    *each("_prelu_kernel _prelu_kernel_backward", PRIMITIVE),
    Kernel(
        "div",
        PRIMITIVE,
        units=(1.5, 2.5, 0.5),
        approximated=True,
        rescales=_by_what_float32_rounds,
        cancels=_floored,
        decides=_is_rounded_off,
        divides_first=_rounding_before,
        recomputes=True,
        mended=_quotient,
        modulus_at=1,
    ),
    Kernel("floor_divide", PRIMITIVE, jumps=True, cancels=_floored, decides=True, divides_first=_rounding_before),
    Kernel("remainder", PRIMITIVE, jumps=True, cancels=_remainder, decides=True),
    Kernel("reciprocal", PRIMITIVE, units=(1.0, 1.5, 0.5), approximated=True, modulus_at=0),
    Kernel("sqrt", PRIMITIVE, units=(1.0, 1.5, 0.5), approximated=True),
    Kernel("rsqrt", PRIMITIVE, units=(1.5, 2.5, 1.5), inexact=True),  # half: the root is rounded
    Kernel("exp", PRIMITIVE, units=(1.5, 2.5, 0.5), inexact=True),
    Kernel("exp2", PRIMITIVE, units=(1.5, 2.5, 0.5), inexact=True),
    Kernel("expm1", PRIMITIVE, units=(1.5, 1.5, 0.5), inexact=True),
    Kernel("log", PRIMITIVE, units=(1.5, 3.0, 0.5), inexact=True),
    Kernel("log2", PRIMITIVE, units=(2.0, 1.5, 0.5), inexact=True),
    Kernel("log10", PRIMITIVE, units=(2.0, 2.5, 0.5), inexact=True),
    Kernel("log1p", PRIMITIVE, units=(1.5, 2.0, 0.5), inexact=True),
    Kernel("sin", PRIMITIVE, units=(2.0, 3.5, 0.5), inexact=True),
    Kernel("cos", PRIMITIVE, units=(2.0, 3.5, 0.5), inexact=True),
    Kernel("tan", PRIMITIVE, units=(2.5, 4.5, 0.5), inexact=True),
    Kernel("asin", PRIMITIVE, units=(2.5, 4.5, 0.5), inexact=True),
    Kernel("acos", PRIMITIVE, units=(1.5, 3.5, 0.5), inexact=True),
    Kernel("atan", PRIMITIVE, units=(2.5, 2.5, 0.5), inexact=True),
    Kernel("atan2", PRIMITIVE, units=(3.0, 3.5, 0.5), inexact=True),
    Kernel("sinh", PRIMITIVE, units=(2.0, 3.5, 0.5), inexact=True, mended=_hyperbolic, intermediate=_exponential),
    Kernel("cosh", PRIMITIVE, units=(2.0, 2.5, 0.5), inexact=True, mended=_hyperbolic, intermediate=_exponential),
    Kernel("tanh", PRIMITIVE, units=(2.0, 2.5, 0.5), inexact=True),
    Kernel("asinh", PRIMITIVE, units=(2.5, 3.5, 0.5), inexact=True),
    Kernel("acosh", PRIMITIVE, units=(2.5, 4.5, 0.5), inexact=True),
    Kernel("atanh", PRIMITIVE, units=(2.5, 3.5, 0.5), inexact=True),
    Kernel("erf", PRIMITIVE, units=(2.5, 2.5, 0.5), inexact=True, cancels=_approximation_of_erf),
    Kernel("erfc", PRIMITIVE, units=(5.0, 4.5, 0.5), inexact=True, cancels=_approximation_of_erf),
    Kernel("erfinv", PRIMITIVE, units=(5.5, 2.5, 0.5), inexact=True),
    Kernel("lgamma", units=(4.5, 7.0, 0.5), kept=_poles, intermediate=_at_a_pole),  # its zeros cancel
    Kernel("mvlgamma", cancels=in_units(_beside_poles), intermediate=_at_a_pole),
    *each("digamma", kept=_poles, intermediate=_at_a_pole),
    Kernel("polygamma", intermediate=_at_a_pole),  # a series whose libraries give no bound in units
    *each("special_erfcx", unstated="a table, whose library gives no bound in units"),
    Kernel("special_ndtri", domain=(0.0, 1.0)),
    Kernel("angle", PRIMITIVE, by_parts=True, units=(3.0, 3.5, 0.5), inexact=True),
    Kernel("polar", PRIMITIVE, units=(3.0, 4.5, 0.5), inexact=True),
    # Cephes' largest relative errors (i0.c, i0f.c, i1.c, i1f.c), in units of numbers just below a power of two
    Kernel("i0", PRIMITIVE, units=(5.5, 7.0, 0.5), inexact=True, intermediate=_exponential),
    Kernel("special_i0e", PRIMITIVE, units=(5.0, 6.5, 8.0), inexact=True),  # the CPU's kernel adds up in half precision
    Kernel("special_i1", PRIMITIVE, units=(18.0, 26.0, 1.0), inexact=True, intermediate=_exponential),
    Kernel("special_i1e", PRIMITIVE, units=(18.0, 26.0, 1.0), inexact=True),
    # a logarithm and a product; half: the logarithm is rounded
    Kernel("special_entr", PRIMITIVE, units=(2.5, 4.0, 1.5), inexact=True),
    Kernel("special_xlog1py", PRIMITIVE, units=(2.5, 3.0, 1.5), inexact=True),
    Kernel("special_log_ndtr", PRIMITIVE, units=(7.5, 7.5, 4.0), inexact=True, cancels=in_units(_log_ndtr)),
    Kernel(
        "sinc",
        PRIMITIVE,
        units=(4.5, 7.0, 2.0),
        inexact=True,
        cancels=in_units(_sinc),
        intermediate=lambda step, args: math.pi * args[0],
    ),
    *each("logaddexp logaddexp2", PRIMITIVE, units=(2.5, 3.0, 1.5), inexact=True, cancels=in_units(_log_of_two)),
    Kernel("lerp", PRIMITIVE, cancels=in_units(_between)),
    Kernel("pow", PRIMITIVE, units=(2.5, 8.5, 1.5), inexact=True),  # half: x * x is rounded
    Kernel("hypot", PRIMITIVE, units=(2.5, 3.5, 0.5), inexact=True),
    Kernel("sigmoid", PRIMITIVE, units=(2.5, 5.0, 0.5), inexact=True),  # exp, a sum and a quotient
    # log and a product; half: the logarithm is rounded
    Kernel("xlogy", PRIMITIVE, units=(2.0, 3.5, 1.5), inexact=True),
    Kernel("logit", cancels=in_units(_logit), domain=(0.0, 1.0), limited=_logit_of_one),
    Kernel("logit_backward", kept=_ones, limited=_logit_backward_of_one),
    Kernel("linspace", cancels=_linspace),
    Kernel("addcmul", PRIMITIVE, intermediate=lambda step, args: args[1] * args[2], cancels=in_units(_added_product)),
    Kernel("addcdiv", PRIMITIVE, intermediate=lambda step, args: args[1] / args[2], cancels=in_units(_added_quotient)),
    Kernel(
        "native_dropout",
        PRIMITIVE,
        units=(3.0, 3.0, 0.5),  # 1 - p, its reciprocal and a product
        rescales=lambda step: math.frexp(1.0 - step.args[1])[0] != 0.5,  # 1 - p is no power of two
        masked=_dropped,
    ),
    Kernel(
        "rrelu_with_noise",
        PRIMITIVE,
        units=(2.0, 2.0, 1.0),  # the slope and a product
        inexact=True,
        masked=lambda step: (step.args[1], 1.0),  # the noise is 1 where the operand is positive
        draws_nothing=lambda given: given.get("training") is not True,
    ),
    Kernel(
        "rrelu_with_noise_functional",
        PRIMITIVE,
        inexact=True,
        masked=lambda step: (step.outs[1], 1.0),
        draws_nothing=lambda given: given.get("training") is not True,
    ),
)
