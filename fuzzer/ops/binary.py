"""Functions of two tensors, element by element, with broadcasting and, where it is cheap to have, type promotion."""

from __future__ import annotations

from math import inf

from fuzzer.ops.spec import FROM_SOURCE, INDEX, SAME, Attribute, Operand, OpSpec, broadcast, choice, nonempty, real
from fuzzer.program import FLOATS, Recipe

FAMILY = "binary"


def binary(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = FLOATS,
    promotes: tuple[str, ...] | str = SAME,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
    since: str = "",
) -> OpSpec:
    """`values` and `others` suit the first and the second operand; `promotes`: dtypes of the second."""
    operands = (Operand(dtypes=dtypes, values=values), Operand("other", promotes, shape=broadcast, values=others))
    source = source or f"torch.{name}"
    params: tuple[Operand | Attribute, ...] = (*operands, *attributes)
    return OpSpec(name, FAMILY, source, params, differentiable=differentiable, entries=entries, since=since)


EXTREMES = ("normal", "overflow", "subnormal")
ALPHA = real("alpha", -2, 2, (1.0, 0.0, 0.5, -1.0), 1.0)

TABLE = (
    binary("add", ALPHA, values=EXTREMES, promotes=FLOATS),
    binary("sub", ALPHA, promotes=FLOATS),
    binary("mul", values=EXTREMES, promotes=(*FLOATS, "i64", "bool")),
    binary(
        "div",
        choice("rounding_mode", None, None, "floor", "trunc", default=None),
        values=("normal", "zeros", "subnormal"),
        others=("positive", "corners"),
        entries=(*(f"div.{mode}" for mode in ("no_rounding_mode", "floor_rounding", "trunc_rounding")), "true_divide"),
    ),
    binary(
        "pow",
        values=("positive", "nonnegative", "overflow"),
        others=("zeros", "integers", "normal"),
        promotes=(*FLOATS, "i64"),
    ),
    binary("float_power", values=("positive", "nonnegative"), others=("zeros", "integers", "normal")),
    binary("remainder", others=("positive", "corners")),
    binary("fmod", others=("positive", "corners")),
    binary("maximum", values=("ties", "integers"), others=("ties", "integers"), promotes=FLOATS),
    binary("minimum", values=("ties", "integers"), others=("ties", "integers")),
    binary("fmax", values=("ties", "integers"), others=("ties", "integers")),
    binary("max_binary", source="torch.max", values=("ties",), others=("ties", "integers"), entries=("max.binary",)),
    binary("min_binary", source="torch.min", values=("ties",), others=("ties", "integers"), entries=("min.binary",)),
    binary("radd", source="torch.Tensor.__radd__", promotes=FLOATS),
    binary("rsub_reflected", source="torch.Tensor.__rsub__", promotes=FLOATS),
    binary("rmul", source="torch.Tensor.__rmul__", promotes=FLOATS),
    binary("rdiv", source="torch.Tensor.__rdiv__", values=("positive",)),
    binary("rmod", source="torch.Tensor.__rmod__", values=("positive", "corners")),
    binary("rpow", source="torch.Tensor.__rpow__", others=("positive",)),
    binary("nextafter", since="2.13"),
    OpSpec(
        "dist",
        FAMILY,
        "torch.dist",
        (
            Operand(accepts=nonempty, values=("ties", "integers")),
            Operand("other", SAME, shape=broadcast, values=("ties", "integers")),
            # not 0: eager's backward breaks ("Expected a proper Tensor but got None", torch 2.11 and 2.13)
            choice("p", 2, 2, 1, 3, 0.5, inf, -inf, default=2),
        ),
    ),
    binary("fmin", values=("ties", "integers"), others=("ties", "integers")),
    binary("atan2", values=("zeros", "subnormal"), others=("zeros", "subnormal")),
    binary("hypot", values=("zeros", "subnormal", "overflow"), others=("zeros", "subnormal")),
    binary("copysign", others=("signs", "zeros")),
    binary("logaddexp", values=("ties", "normal"), others=("ties", "normal")),
    binary("logaddexp2"),
    binary("xlogy", values=("zeros",), others=("positive", "nonnegative")),
    binary("xlog1py", source="torch.special.xlog1py", values=("zeros",), others=("positive", "unit")),
    OpSpec(
        "floor_divide",
        FAMILY,
        "torch.floor_divide",
        # of integers: on floats that require grad its backward raises, and div(rounding_mode="floor") says the same
        (
            Operand(dtypes=("i64", "i32")),
            Operand(
                "other", SAME, shape=broadcast, recipe=lambda d: Recipe("between", d.rng.choice(((1, 5), (-5, -1))))
            ),
        ),
        differentiable=False,
    ),
    OpSpec(
        "ldexp",
        FAMILY,
        "torch.ldexp",
        (Operand(), Operand("other", INDEX, shape=broadcast, recipe=lambda d: Recipe("between", (-3, 3)))),
    ),
)
