"""Triggers in values and dtypes: zeros and their signs, NaN, bounds that a dtype does not hold, integers, complex."""

from __future__ import annotations

import struct

from benches.triggers.kinds import (
    HALF,
    Trigger,
    holds_negative,
    holds_nonfinite,
    holds_zero,
    is_constant,
    is_zero_constant,
    may_be_minus_zero,
    may_be_nan,
    numbers,
    sees_sign,
)
from benches.triggers.sketch import Sketch

_CASTS = ("to", "float", "double", "half", "bfloat16")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "gt_scalar", "le_scalar")
_INTEGERS = ("i64", "i32", "i16", "i8", "u8")
_PARTIAL = ("acosh", "log", "log2", "log10", "asin", "acos", "atanh")
_SMALLEST_HALF = 2.0**-25  # float16 rounds this and less to zero


def rounded(number: float, dtype: str) -> float:
    """The number as float16 or bfloat16 has it."""
    if dtype == "f16":
        return float(struct.unpack("e", struct.pack("e", number))[0])
    bits: int = struct.unpack("I", struct.pack("f", number))[0]
    bits += 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
    return float(struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0])


def bound_that_half_precision_does_not_hold(s: Sketch) -> bool:
    """hardtanh in half precision, of the very number to which its bound is rounded."""
    for node in s.of("hardtanh", "hardtanh_"):
        dtype, recipe = s.dtype(node.uses[0]), s.recipe(node.uses[0])
        if dtype not in HALF or recipe is None or recipe.name not in ("data", "around"):
            continue
        held = {rounded(n, dtype) for n in numbers(recipe)}
        for name, usual in (("min_val", -1.0), ("max_val", 1.0)):
            bound = float(s.attr(node, name, usual))
            if rounded(bound, dtype) != bound and rounded(bound, dtype) in held:
                return True
    return False


def sign_of_log_ndtr(s: Sketch) -> bool:
    """The sign of log_ndtr is seen where it is minus zero: of large numbers."""
    for node in s.of("log_ndtr"):
        recipe = s.recipe(node.uses[0])
        large = recipe is not None and (
            recipe.name in ("large", "huge", "overflow") or max(numbers(recipe), default=0) > 40
        )
        if large and sees_sign(s, node.outs[0]):
            return True
    return False


def polygamma_of_order_zero(s: Sketch) -> bool:
    """polygamma whose order is 0."""
    return any(s.attr(node, "n") == 0 for node in s.of("polygamma", "polygamma_special"))


def angle_between_zero_and_its_negation(s: Sketch) -> bool:
    """atan2 of a value in float16 and its negation, where it is zero."""
    for node in s.of("atan2"):
        first, second = node.uses[:2]
        made = s.made_by(second, ("neg",))
        if made is not None and s.dtype(first) == "f16" and holds_zero(s.recipe(made.uses[0])):
            return True
    return False


def fraction_of_minus_zero(s: Sketch) -> bool:
    """The sign of the fractional part of minus zero is seen."""
    return any(may_be_minus_zero(s, n.uses[0]) and sees_sign(s, n.outs[0]) for n in s.of("frac", "frac_"))


def minus_zero_plus_zero(s: Sketch) -> bool:
    """Minus zero plus a constant zero, and the sign of the sum is seen."""
    for node in s.of("add", "add_scalar"):
        if node.op == "add_scalar":
            zero, others = s.attr(node, "other") == 0, node.uses[:1]
        else:
            constant = [name for name in node.uses if is_zero_constant(s, name)]
            zero, others = bool(constant), tuple(name for name in node.uses if name not in constant)
        if zero and any(may_be_minus_zero(s, name) for name in others) and sees_sign(s, node.outs[0]):
            return True
    return False


def angle_of_nan(s: Sketch) -> bool:
    """The angle of a value that may be NaN, or the sine of an arctangent of one."""
    if any(may_be_nan(s, node.uses[0]) for node in s.of("angle")):
        return True
    inner = (s.made_by(node.uses[0], ("atan",)) for node in s.of("sin", "cos"))
    return any(node is not None and may_be_nan(s, node.uses[0]) for node in inner)


def nonfinite_times_zero(s: Sketch) -> bool:
    """What may be infinite or NaN, times the scalar 0 or a constant zero."""

    def nonfinite(name: str) -> bool:
        recipe = s.recipe(name)
        overflowing = recipe is not None and recipe.name == "overflow"
        return holds_nonfinite(recipe) or overflowing or may_be_nan(s, name)

    scalars = s.of("mul_scalar", "mul_scalar_", "rmul_scalar")
    if any(s.attr(node, "other") == 0 and nonfinite(node.uses[0]) for node in scalars):
        return True
    return any(
        any(is_zero_constant(s, a) and nonfinite(b) for a, b in (node.uses[:2], node.uses[1::-1]))
        for node in s.of("mul", "rmul")
        if len(node.uses) == 2
    )


def product_with_a_mask(s: Sketch) -> bool:
    """A value times a comparison's truths as numbers."""
    for node in s.of("mul", "mul_", "rmul"):
        for name in node.uses:
            cast = s.made_by(name, _CASTS)
            if cast is not None and s.made_by(cast.uses[0], _COMPARISONS):
                return True
    return False


def quotient_of_integers(s: Sketch) -> bool:
    """The true quotient of two integer values."""
    return any(
        all(s.dtype(name) in _INTEGERS for name in node.uses)
        for node in s.of("div")
        if s.attr(node, "rounding_mode") is None
    )


def modulus_of_a_transposed_complex(s: Sketch) -> bool:
    """abs, angle or sgn of complex numbers that lie in another order than their dimensions."""
    return any(
        (s.dtype(node.uses[0]) or "").startswith("c") and s.order_in_memory(node.uses[0]) == "permuted"
        for node in s.of("abs", "angle", "sgn")
    )


def conjugate_in_a_checkpoint(s: Sketch) -> bool:
    """A checkpoint's statements read a lazily conjugated complex value."""
    checkpointed = s.inside("checkpoint")
    for node in s.of("conj", "H", "mH"):
        lazy = (s.dtype(node.uses[0]) or "").startswith("c")
        if lazy and any(reader.outs[0] in checkpointed for reader in s.readers.get(node.outs[0], ())):
            return True
    return False


def root_of_an_unseen_summand(s: Sketch) -> bool:
    """In float16, the reciprocal of what may be zero but for a summand that float16 rounds to zero."""
    for node in s.of("add_scalar"):
        other = s.attr(node, "other")
        if s.dtype(node.uses[0]) != "f16" or not 0 < abs(other) < _SMALLEST_HALF:
            continue
        readers = s.readers.get(node.outs[0], ())
        if any(n.op in ("rsqrt", "reciprocal", "log", "rdiv_scalar") for n in readers):
            return True
    return False


def nan_with_a_factor_zero(s: Sketch) -> bool:
    """addmm or its kin of what may be NaN or infinite, with a factor 0 for it."""
    for node in s.of("addmm", "baddbmm", "addmv", "addbmm", "addr"):
        ignored = (node.uses[2:] if s.attr(node, "beta") == 0 else ()) + (
            node.uses[:2] if s.attr(node, "alpha") == 0 else ()
        )
        if any(holds_nonfinite(s.recipe(name)) for name in ignored):
            return True
    return False


def inverse_of_a_complex_matrix(s: Sketch) -> bool:
    """The pseudo-inverse or square root of a complex matrix, and its gradient is wanted."""
    return any(
        (s.dtype(node.uses[0]) or "").startswith("c") and s.tracked(node.uses[0])
        for node in s.of("pinv", "pinverse", "pinv_hermitian")
    )


def _folds(s: Sketch, name: str) -> bool:
    """Whether a value is computed from constants alone."""
    node = s.maker.get(name)
    return node is not None and (is_constant(s, name) or all(_folds(s, n) for n in node.uses))


def softmax_of_nan(s: Sketch) -> bool:
    """softmax of what was computed from constants alone, by a function that not every number is in the domain of."""
    for node in s.of("softmax", "log_softmax", "softmin"):
        partial = any(n.op in _PARTIAL for n in s.ancestors(node.uses[0]))
        if partial and _folds(s, node.uses[0]):
            return True
    return False


def norm_of_an_infinite_constant(s: Sketch) -> bool:
    """A layer norm of the logarithm of a constant zero."""
    return any(
        logarithm is not None and is_zero_constant(s, logarithm.uses[0])
        for node in s.of("layer_norm", "rms_norm", "native_layer_norm")
        for logarithm in [s.made_by(node.uses[0], ("log", "log2", "log10"))]
    )


def margin_that_half_precision_does_not_hold(s: Sketch) -> bool:
    """margin_ranking_loss in half precision, at the very number to which its margin is rounded."""
    for node in s.of("margin_ranking_loss"):
        dtype, recipe, margin = s.dtype(node.uses[0]), s.recipe(node.uses[0]), float(s.attr(node, "margin", 0.0))
        if dtype not in HALF or recipe is None or recipe.name not in ("data", "around"):
            continue
        if rounded(margin, dtype) != margin and rounded(margin, dtype) in {abs(n) for n in numbers(recipe)}:
            return True
    return False


def integers_times_a_fraction(s: Sketch) -> bool:
    """Computed int32 numbers, made floating and multiplied by a number."""
    return any(
        cast is not None and s.dtype(cast.uses[0]) == "i32" and cast.uses[0] not in s.leaves
        for node in s.of("mul_scalar", "rmul_scalar")
        for cast in [s.made_by(node.uses[0], _CASTS)]
    )


def quotient_by_what_relu_made_zero(s: Sketch) -> bool:
    """The sign of relu's zero is seen, of a negative number."""
    return any(holds_negative(s.recipe(n.uses[0])) and sees_sign(s, n.outs[0]) for n in s.of("relu", "relu_"))


TABLE: dict[int, Trigger] = {
    185472: bound_that_half_precision_does_not_hold,
    187336: sign_of_log_ndtr,
    143648: polygamma_of_order_zero,
    185696: angle_between_zero_and_its_negation,
    183606: fraction_of_minus_zero,
    189799: minus_zero_plus_zero,
    143978: angle_of_nan,
    186281: nonfinite_times_zero,
    100466: product_with_a_mask,
    164486: quotient_of_integers,
    184101: modulus_of_a_transposed_complex,
    171665: conjugate_in_a_checkpoint,
    183605: root_of_an_unseen_summand,
    196596: nan_with_a_factor_zero,
    197084: inverse_of_a_complex_matrix,
    188225: softmax_of_nan,
    190417: norm_of_an_infinite_constant,
    185517: margin_that_half_precision_does_not_hold,
    97124: integers_times_a_fraction,
    101009: quotient_by_what_relu_made_zero,
}
