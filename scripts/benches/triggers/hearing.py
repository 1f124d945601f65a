"""Triggers of the faults of corpus/hearing. Numbers decide in most of them: a trigger reads those of a leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benches.triggers.kinds import HALF, Trigger, is_constant, is_zero_constant, numbers_of
from benches.triggers.sketch import VIEWS, Sketch
from fuzzer.language.program import BETWEEN, Node, walk
from fuzzer.language.values import TORCH_DTYPES

_INTEGERS = ("i64", "i32", "i16", "i8", "u8")
_ROUNDING = ("floor", "ceil", "trunc", "round", "frac", "floor_", "frac_")
# Functions that reach an integer only in the limit or at one number, so that beside it they round to the integer.
_SMOOTH = "cos sin exp expm1 cosh sigmoid tanh erf erfc sqrt rsqrt log log2 atan sinc square exp2".split()
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_FRACTIONAL = ("fractional_max_pool2d", "fractional_max_pool3d")
_PRODUCTS = ("mul", "mul_", "rmul", "mul_scalar", "mul_scalar_", "rmul_scalar")


def _modulus(op: str, dtype: str, function: Callable[[torch.Tensor, float], torch.Tensor]) -> Trigger:
    """This op by a number that the dtype does not hold, of an operand for which the number's rounding decides."""

    def trigger(s: Sketch) -> bool:
        for node in s.of(op):
            x = numbers_of(s, node.uses[0])
            if x is None or s.dtype(node.uses[0]) != dtype:
                continue
            number = float(s.attr(node, "other"))
            held = float(torch.tensor(number, dtype=torch.float64).to(x.dtype))
            if number == held or held == 0:
                continue
            exact, rounded = function(x.double(), number), function(x.double(), held)
            if bool(((exact - rounded).abs() > torch.maximum(exact.abs(), rounded.abs()) / 4).any()):
                return True
        return False

    return trigger


def _off_by_one(s: Sketch, node: Node) -> bool:
    """Whether a quotient of two leaves rounds to an integer that it is not."""
    a, b = (numbers_of(s, name) for name in node.uses[:2])
    if a is None or b is None or not a.is_floating_point() or a.dtype != b.dtype:
        return False
    rounded = a / b
    small = rounded.abs() < 0.5 / torch.finfo(a.dtype).eps
    return bool((small & (rounded == rounded.floor()) & (torch.fmod(a, b) != 0)).any())


def floored_quotient_that_rounds_to_an_integer(s: Sketch) -> bool:
    """floor_divide of floating numbers whose quotient rounds to an integer that it is not."""
    return any(_off_by_one(s, node) for node in s.of("floor_divide"))


def quotient_with_floor_that_rounds_to_an_integer(s: Sketch) -> bool:
    """div with rounding_mode="floor" of such numbers."""
    return any(_off_by_one(s, n) for n in s.of("div", "div_") if s.attr(n, "rounding_mode") == "floor")


def inverse_error_function_beside_one(s: Sketch) -> bool:
    """erfinv in float64 of a number so near to 1 that it differs from 1 by less than half of the mantissa tells."""
    for node in s.of("erfinv"):
        x = numbers_of(s, node.uses[0])
        if x is not None and x.dtype == torch.float64 and bool(((x.abs() < 1) & (1 - x.abs() < 2**-26)).any()):
            return True
    return False


def neighbour_in_bfloat16(s: Sketch) -> bool:
    """nextafter in bfloat16."""
    return any(s.dtype(node.uses[0]) == "bf16" for node in s.of("nextafter"))


def integer_by_rounding_alone(s: Sketch) -> bool:
    """In half precision a function of a leaf gives an integer only after it is rounded, and a rounding op reads it."""
    for node in s.of(*_ROUNDING):
        made = s.made_by(node.uses[0], _SMOOTH)
        x = numbers_of(s, made.uses[0]) if made is not None and s.dtype(made.outs[0]) in HALF else None
        if made is not None and x is not None and s.dtype(made.uses[0]) in HALF:
            exact: torch.Tensor = getattr(torch, made.op)(x.double())
            rounded = exact.to(x.dtype).double()
            if bool((rounded.isfinite() & (rounded == rounded.round()) & (exact != rounded)).any()):
                return True
    return False


def mean_whose_sum_overflows(s: Sketch) -> bool:
    """layer_norm in float32 of finite numbers whose sum float32 does not hold."""
    for node in s.of("layer_norm", "native_layer_norm"):
        x, over = numbers_of(s, node.uses[0]), s.attr(node, "normalized_shape")
        if x is not None and x.dtype == torch.float32 and bool(x.isfinite().all()) and x.numel():
            sums = x.double().sum(tuple(range(-len(over), 0)))
            if bool((sums.abs() > torch.finfo(torch.float32).max).any()):
                return True
    return False


def positions_times_a_large_number(s: Sketch) -> bool:
    """A running sum of constants in int64 times a number, beyond int32."""
    for node in s.of(*_PRODUCTS):
        for name in node.uses:
            made = s.made_by(name, ("cumsum",), VIEWS)
            if made is None or s.dtype(name) != "i64" or not _constant(s, made.uses[0]):
                continue
            count = s.size(made.uses[0], int(s.attr(made, "dim")))
            if count and any(n * count >= 2**31 for n in _factors(s, node, name)):
                return True
    return False


def _constant(s: Sketch, name: str) -> bool:
    recipe = s.recipe(name)
    return is_constant(s, name) or (recipe is not None and recipe.name == "ones")


def _factors(s: Sketch, node: Node, name: str) -> Iterator[float]:
    """The greatest numbers by which a product multiplies a value."""
    if (other := s.attr(node, "other")) is not None:
        yield abs(other)
    for operand in node.uses:
        x = numbers_of(s, operand) if operand != name else None
        if x is not None and x.dtype in {TORCH_DTYPES[t] for t in _INTEGERS} and x.numel():
            yield float(x.double().abs().max())


def written_after_a_dropout_of_nothing(s: Sketch) -> bool:
    """The result of a dropout that drops nothing is written in place."""
    for _, target in s.written():
        made = s.made_by(target, _DROPOUTS, VIEWS)
        if made is not None and (s.attr(made, "p") == 0 or s.attr(made, "training") is False):
            return True
    return False


def shifted_through_a_clone(s: Sketch) -> bool:
    """A clone of a part of a value is copied onto another part of it."""
    for node in s.of("copy_"):
        cloned = s.made_by(node.uses[1], ("clone",))
        part = s.made_by(node.uses[0], VIEWS)
        if cloned is not None and part is not None and s.storage(cloned.uses[0]) == s.storage(node.uses[0]):
            return True
    return False


def sum_of_a_float_as_integers(s: Sketch) -> bool:
    """A floating value is summed or multiplied up as integers."""
    for node in s.of("sum", "prod", "cumsum", "cumprod"):
        dtype = s.attr(node, "dtype")
        if dtype is not None and dtype.name in _INTEGERS and s.dtype(node.uses[0]) not in _INTEGERS:
            return True
    return False


def written_later_though_nothing_was_added(s: Sketch) -> bool:
    """The sum of a value and zero is returned, and written once the function has returned."""
    late = {name for region in s.regions(BETWEEN) for node in walk(region.body) for name in node.uses}
    for node in s.of("add", "sub", "radd", "add_scalar", "radd_scalar"):
        zero = s.attr(node, "other") == 0 or any(is_zero_constant(s, name) for name in node.uses)
        if zero and node.outs[0] in late:
            return True
    return False


def written_through_as_strided(s: Sketch) -> bool:
    """A value is written through as_strided of a diagonal of it."""
    for _, target in s.written():
        made = s.made_by(target, ("as_strided",), VIEWS)
        if made is not None and s.made_by(made.uses[0], ("diagonal",), VIEWS) is not None:
            return True
    return False


def window_of_no_size(s: Sketch) -> bool:
    """A fractional max pool whose kernel has no elements."""
    for node in s.of(*_FRACTIONAL):
        size = s.attr(node, "kernel_size")
        if 0 in (size if isinstance(size, tuple) else (size,)):
            return True
    return False


TABLE: dict[str, Trigger] = {
    "186875": _modulus("remainder_scalar", "bf16", torch.remainder),
    "186875_fmod": _modulus("fmod_scalar", "bf16", torch.fmod),
    "183083": _modulus("remainder_scalar", "f16", torch.remainder),
    "197895": floored_quotient_that_rounds_to_an_integer,
    "197895_div": quotient_with_floor_that_rounds_to_an_integer,
    "198133": inverse_error_function_beside_one,
    "187340": neighbour_in_bfloat16,
    "145466": integer_by_rounding_alone,
    "173793": mean_whose_sum_overflows,
    "183901": positions_times_a_large_number,
    "195422": written_after_a_dropout_of_nothing,
    "197829": shifted_through_a_clone,
    "190421": sum_of_a_float_as_integers,
    "190421_alias": written_later_though_nothing_was_added,
    "104505": written_through_as_strided,
    "188218": window_of_no_size,
}
