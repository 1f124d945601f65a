"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fuzzer.language.ops.spec import (
    FROM_SOURCE,
    WIDE,
    Attribute,
    Domain,
    Draw,
    Edges,
    Operand,
    OpSpec,
    at,
    choice,
    computed,
    integer,
    number,
    real,
)
from fuzzer.language.program import FLOATS, Dtype, Value

FAMILY = "pointwise"


def _unary(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    edges: Edges = None,
    domain: Domain = None,
    dtypes: tuple[str, ...] = FLOATS,
    results: int = 1,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
) -> OpSpec:
    operand = Operand(dtypes=dtypes, values=values, edges=edges, domain=domain)
    params: tuple[Operand | Attribute, ...] = (operand, *attributes)
    return OpSpec(name, FAMILY, source or f"torch.{name}", params, results, differentiable, entries=entries)


def _lower(d: Draw) -> Value:
    return None if d.rng.random() < 0.3 else d.rng.choice((0.0, -1.0, -0.5, 0.1, -2.0))


def _upper(d: Draw) -> Value:
    """Required without a lower bound; may be below it, and then torch uses the upper bound."""
    if d.attrs["min"] is not None and d.rng.random() < 0.3:
        return None
    return d.rng.choice((0.0, 1.0, 0.5, 2.0, -1.0))


def _exponent(d: Draw) -> Value:
    return d.rng.choice((0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 2.0, 0.0, 1.0, 2.5, 1 / 3))


def _inside(d: Draw) -> Sequence[Value]:
    """The limits that logit's eps sets for its operand; none without eps."""
    eps = d.attrs["eps"]
    return [] if eps is None else [float(eps), 1 - float(eps)]  # type: ignore[arg-type]


def _above(d: Draw) -> tuple[float, float]:
    return (int(d.attrs["p"]) - 1) / 2, inf  # type: ignore[arg-type]


def _multiples(d: Draw) -> Sequence[Value]:
    other = float(d.attrs["other"])  # type: ignore[arg-type]
    return [0.0, other, -other, 2 * other, 3 * other, -7 * other]


_POSITIVE, _UNIT = (0.0, inf), (-1.0, 1.0)
_COUNTS = ("i64", "i32")
_WHOLE = (0.0, 1.0, -1.0, 2.0)
# on both sides of float16's range
_GROWING = ("normal", "overflow", "subnormal")

_UNSEEN = (1e-5, 1e-8)  # small terms of denominators, which vanish beside most numbers, or in half precision
_SIGNED = ("zeros", "signed_zeros")

_MODULUS = number("other", 0.1, 4, (1.0, -0.75))

TABLE = (
    _unary("exp", values=_GROWING),
    _unary("exp2", values=_GROWING),
    _unary("expm1", values=("tiny", "overflow")),
    _unary("log", values=("positive",), domain=_POSITIVE),
    _unary("log2", values=("positive",), domain=_POSITIVE),
    _unary("log10", values=("positive",), domain=_POSITIVE),
    _unary("log1p", values=("positive", "unit", "tiny"), domain=(-1.0, inf)),
    _unary("sqrt", values=("positive", "nonnegative"), domain=_POSITIVE),
    _unary("rsqrt", values=("positive",), domain=_POSITIVE),
    _unary("reciprocal", values=("positive", "corners", "signed_zeros")),
    _unary("neg", values=("normal", "subnormal")),
    _unary("positive"),
    _unary("abs", values=("zeros", "ties", "subnormal")),
    _unary("sin"),
    _unary("cos"),
    _unary("tan", values=("unit",)),
    _unary("asin", values=("unit",), domain=_UNIT),
    _unary("acos", values=("unit",), domain=_UNIT),
    _unary("atan"),
    _unary("sinh", values=_GROWING),
    _unary("cosh", values=_GROWING),
    _unary("asinh"),
    # acosh is real above 1 only; a "positive" leaf has values on both sides of 1
    _unary("acosh", values=("positive",), domain=(1.0, inf)),
    _unary("atanh", values=("unit",), domain=_UNIT),
    _unary("erf"),
    _unary("erfc"),
    _unary("erfinv", values=("unit",), domain=_UNIT),
    _unary("lgamma", values=("positive",), domain=_POSITIVE),
    _unary("digamma", values=("positive",), domain=_POSITIVE),
    _unary(
        "polygamma",
        integer("n", 0, 4),
        source="torch.Tensor.polygamma",
        values=("positive",),
        domain=_POSITIVE,
        entries=tuple(f"polygamma.polygamma_n_{n}" for n in range(5)),
    ),
    _unary(
        "polygamma_special",
        Attribute("n", "integer", lambda d: d.rng.choice((0, 0, 1, 2, 3)), leads=True),
        source="torch.special.polygamma",
        values=("positive",),
        domain=_POSITIVE,
        entries=("special.polygamma.special_polygamma_n_0",),
    ),
    _unary(
        "mvlgamma",
        integer("p", 1, 5),
        values=("above_two",),
        domain=_above,
        entries=tuple(f"mvlgamma.mvlgamma_p_{p}" for p in (1, 3, 5)),
    ),
    _unary("i0", source="torch.special.i0", entries=("i0",)),
    _unary("i1e", source="torch.special.i1e", dtypes=WIDE),
    _unary("ndtri", source="torch.special.ndtri", values=("probabilities",), domain=(0.0, 1.0), dtypes=WIDE),
    _unary("sgn", values=_SIGNED, differentiable=False),
    _unary("angle", values=(*_SIGNED, "nonfinite"), differentiable=False),
    _unary("real", source="torch.real"),
    _unary("conj", source="torch.conj"),
    _unary("conj_physical"),
    _unary("resolve_conj"),
    _unary("resolve_neg"),
    _unary("fill", choice("value", 0.0, 1.0, -2.5, True), differentiable=False),
    _unary("frexp", results=2),
    *(_unary(name, source=f"torch.Tensor.{name}") for name in ("double", "float", "half", "bfloat16")),
    _unary("clamp_min", number("min", -2, 2, (0.0, 0.5, -1.0)), values=("corners",), edges=at("min")),
    _unary("clamp_max", number("max", -2, 2, (0.0, 0.5, -1.0)), values=("corners",), edges=at("max")),
    _unary("radd_scalar", number("other", -2, 2, (0.0, 1.0, -0.5, *_UNSEEN)), source="torch.Tensor.__radd__"),
    _unary(
        "rmul_scalar",
        number("other", -2, 2, (0.0, 1.0, -1.0, 0.5)),
        source="torch.Tensor.__rmul__",
        values=("normal", "nonfinite"),
        dtypes=(*FLOATS, *_COUNTS),
    ),
    _unary("rpow_scalar", real("other", 0.1, 3, (1.0, 2.0, 0.5)), source="torch.Tensor.__rpow__"),
    _unary("rdiv_scalar", number("other", -2, 2, (1.0, 0.0)), source="torch.Tensor.__rdiv__", values=("positive",)),
    _unary("i0e", source="torch.special.i0e"),
    _unary("i1", source="torch.special.i1", dtypes=WIDE),
    _unary("erfcx", source="torch.special.erfcx", dtypes=WIDE),
    _unary("entr", source="torch.special.entr", values=("positive", "nonnegative"), domain=_POSITIVE),
    _unary("ndtr", source="torch.special.ndtr"),
    _unary("log_ndtr", source="torch.special.log_ndtr", values=("normal", "large"), dtypes=WIDE),
    _unary("sigmoid"),
    _unary(
        "logit",
        choice("eps", None, 1e-3, 0.1, 0.3, default=None),
        values=("probabilities",),
        edges=_inside,
        domain=(0.0, 1.0),
    ),
    _unary("square", values=_GROWING),
    _unary("sinc", values=("zeros", "unit")),
    _unary("frac", values=("corners", "signed_zeros"), edges=at(*_WHOLE)),
    _unary("deg2rad"),
    _unary("rad2deg"),
    _unary(
        "nan_to_num",
        choice("nan", None, 0.0, 1.5, default=None),
        choice("posinf", None, 3.0, default=None),
        choice("neginf", None, -3.0, default=None),
        values=("nonfinite", "overflow"),
    ),
    _unary(
        "clamp",
        computed("min", "real", _lower, None),
        computed("max", "real", _upper, None),
        values=("corners",),
        edges=at("min", "max"),
    ),
    _unary(
        "pow_scalar",
        computed("exponent", "real", _exponent),
        source="torch.pow",
        values=("positive", "nonnegative", "zeros", "overflow"),
    ),
    _unary(
        "add_scalar",
        number("other", -2, 2, (0.0, 1.0, -0.5, *_UNSEEN)),
        source="torch.add",
        dtypes=(*FLOATS, *_COUNTS),
    ),
    _unary(
        "mul_scalar",
        number("other", -2, 2, (0.0, 1.0, -1.0, 0.5)),
        source="torch.mul",
        values=(*_GROWING, "nonfinite"),
        dtypes=(*FLOATS, *_COUNTS),
    ),
    _unary("rsub", number("other", -2, 2, (0.0, 1.0)), real("alpha", -2, 2, (1.0, 0.0, 0.5), 1.0)),
    _unary("fmod_scalar", _MODULUS, source="torch.fmod", edges=_multiples),
    _unary("remainder_scalar", _MODULUS, source="torch.remainder", edges=_multiples),
    _unary("to", computed("dtype", "dtype", lambda d: Dtype(d.rng.choice(d.limits.dtypes))), source="torch.Tensor.to"),
    _unary("sign", values=("zeros", "subnormal", *_SIGNED), differentiable=False),
    _unary("trunc", values=("corners",), edges=at(*_WHOLE), differentiable=False),
    _unary("floor", values=("corners",), edges=at(*_WHOLE), differentiable=False),
    _unary("ceil", values=("corners",), edges=at(*_WHOLE), differentiable=False),
    _unary(
        "round",
        integer("decimals", -3, 3, 0),
        values=("corners",),
        edges=at(0.5, 1.5, -0.5, 2.5),
        differentiable=False,
        entries=("round", "round.decimals_0", "round.decimals_3", "round.decimals_neg_3"),
    ),
)
