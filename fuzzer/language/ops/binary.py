"""Functions of two tensors, element by element, with broadcasting and, for some of them, type promotion."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fuzzer.language.ops.spec import (
    FROM_SOURCE,
    INDEX,
    NUMBERS,
    SAME,
    Attribute,
    Domain,
    Draw,
    Edges,
    Operand,
    OpSpec,
    broadcast,
    choice,
    nonempty,
    real,
)
from fuzzer.language.program import FLOATS, INTEGERS, Recipe, Value

FAMILY = "binary"


def _binary(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
    edges: tuple[Edges, Edges] = (None, None),
    domain: Domain = None,
    others_domain: Domain = None,
    dtypes: tuple[str, ...] = FLOATS,
    promotes: tuple[str, ...] | str = SAME,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
    since: str = "",
    divides: bool = False,
) -> OpSpec:
    """`values` and `others`: recipes that suit the first and the second operand, as with edges and domains; `promotes`:
    dtypes of the second."""
    other = Operand(
        "other", promotes, shape=broadcast, values=others, edges=edges[1], domain=others_domain, divisor=divides
    )
    operands = (Operand(dtypes=dtypes, values=values, edges=edges[0], domain=domain), other)
    source = source or f"torch.{name}"
    params: tuple[Operand | Attribute, ...] = (*operands, *attributes)
    return OpSpec(name, FAMILY, source, params, differentiable=differentiable, entries=entries, since=since)


def _whole(recipe: str) -> Edges:
    """Numbers with quotients that are integers but for one unit, where the op rounds its quotient to an integer."""

    def edges(d: Draw) -> Sequence[Value] | Recipe:
        return Recipe(recipe) if d.attrs.get("rounding_mode", "floor") else ()

    return edges


_QUOTIENT = (_whole("tenths"), _whole("few_tenths"))


def _divisors(d: Draw) -> Recipe:
    return Recipe("between", d.rng.choice(((1, 5), (-5, -1)))) if d.x.dtype in INTEGERS else Recipe("few_tenths")


_EXTREMES = ("normal", "overflow", "subnormal")
_POSITIVE = (0.0, inf)
_ALPHA = real("alpha", -2, 2, (1.0, 0.0, 0.5, -1.0), 1.0)

TABLE = (
    _binary("add", _ALPHA, values=_EXTREMES, promotes=FLOATS),
    _binary("sub", _ALPHA, promotes=FLOATS),
    _binary("mul", values=_EXTREMES, dtypes=NUMBERS, promotes=(*FLOATS, "i64", "i32", "bool")),
    _binary(
        "div",
        choice("rounding_mode", None, None, "floor", "trunc", default=None),
        values=("normal", "zeros", "subnormal"),
        others=("positive", "corners"),
        edges=_QUOTIENT,
        dtypes=NUMBERS,
        divides=True,
        entries=(*(f"div.{mode}" for mode in ("no_rounding_mode", "floor_rounding", "trunc_rounding")), "true_divide"),
    ),
    _binary(
        "pow",
        values=("positive", "nonnegative", "overflow"),
        others=("zeros", "integers", "normal"),
        domain=_POSITIVE,
        promotes=(*FLOATS, "i64"),
    ),
    _binary(
        "float_power",
        values=("positive", "nonnegative"),
        others=("zeros", "integers", "normal"),
        domain=_POSITIVE,
    ),
    _binary("remainder", others=("positive", "corners"), edges=_QUOTIENT),
    _binary("fmod", others=("positive", "corners"), edges=_QUOTIENT),
    _binary(
        "maximum",
        values=("ties", "integers", "signed_zeros"),
        others=("ties", "integers", "nonfinite"),
        dtypes=NUMBERS,
        promotes=FLOATS,
    ),
    _binary("minimum", values=("ties", "integers"), others=("ties", "integers"), dtypes=NUMBERS),
    _binary("fmax", values=("ties", "integers", "nonfinite"), others=("ties", "integers")),
    _binary("max_binary", source="torch.max", values=("ties",), others=("ties", "integers"), entries=("max.binary",)),
    _binary("min_binary", source="torch.min", values=("ties",), others=("ties", "integers"), entries=("min.binary",)),
    _binary("radd", source="torch.Tensor.__radd__", promotes=FLOATS),
    _binary("rsub_reflected", source="torch.Tensor.__rsub__", promotes=FLOATS),
    _binary("rmul", source="torch.Tensor.__rmul__", promotes=FLOATS),
    _binary("rdiv", source="torch.Tensor.__rdiv__", values=("positive",)),
    _binary("rmod", source="torch.Tensor.__rmod__", values=("positive", "corners")),
    _binary("rpow", source="torch.Tensor.__rpow__", others=("positive",)),
    _binary("nextafter", since="2.13"),
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
    _binary("fmin", values=("ties", "integers"), others=("ties", "integers")),
    _binary("atan2", values=("signed_zeros", "subnormal"), others=("signed_zeros", "subnormal")),
    _binary("hypot", values=("zeros", "subnormal", "overflow"), others=("zeros", "subnormal")),
    _binary("copysign", others=("signs", "zeros", "signed_zeros")),
    _binary("logaddexp", values=("ties", "normal"), others=("ties", "normal")),
    _binary("logaddexp2"),
    _binary("xlogy", values=("zeros",), others=("positive", "nonnegative"), others_domain=_POSITIVE),
    _binary(
        "xlog1py",
        source="torch.special.xlog1py",
        values=("zeros",),
        others=("positive", "unit"),
        others_domain=(-1.0, inf),
    ),
    OpSpec(
        "floor_divide",
        FAMILY,
        "torch.floor_divide",
        # its backward raises
        (
            Operand(dtypes=("i64", "i32", *FLOATS), fixed=True, values=("tenths",)),
            Operand("other", SAME, shape=broadcast, recipe=_divisors, fixed=True),
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
