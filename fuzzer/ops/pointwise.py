"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from fuzzer.ops.spec import (
    FROM_SOURCE,
    WIDE,
    Attribute,
    Draw,
    Edges,
    Operand,
    OpSpec,
    at,
    choice,
    computed,
    integer,
    real,
)
from fuzzer.program import FLOATS, Dtype, Value

FAMILY = "pointwise"


def unary(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    edges: Edges = None,
    dtypes: tuple[str, ...] = FLOATS,
    results: int = 1,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
) -> OpSpec:
    params: tuple[Operand | Attribute, ...] = (Operand(dtypes=dtypes, values=values, edges=edges), *attributes)
    return OpSpec(name, FAMILY, source or f"torch.{name}", params, results, differentiable, entries=entries)


def lower(d: Draw) -> Value:
    return None if d.rng.random() < 0.3 else d.rng.choice((0.0, -1.0, -0.5, 0.1, -2.0))


def upper(d: Draw) -> Value:
    """Required where there is no lower bound; may lie below it, which torch defines as the upper bound winning."""
    if d.attrs["min"] is not None and d.rng.random() < 0.3:
        return None
    return d.rng.choice((0.0, 1.0, 0.5, 2.0, -1.0))


def exponent(d: Draw) -> Value:
    return d.rng.choice((0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 2.0, 0.0, 1.0, 2.5, 1 / 3))


def inside(d: Draw) -> Sequence[Value]:
    """What logit's eps limits its operand to; nothing where it has none."""
    eps = d.attrs["eps"]
    return [] if eps is None else [float(eps), 1 - float(eps)]  # type: ignore[arg-type]


def multiples(d: Draw) -> Sequence[Value]:
    other = float(d.attrs["other"])  # type: ignore[arg-type]
    return [0.0, other, -other, 2 * other]


WHOLE = (0.0, 1.0, -1.0, 2.0)
# both sides of where they leave float16's range
GROWING = ("normal", "overflow", "subnormal")

TABLE = (
    unary("exp", values=GROWING),
    unary("exp2", values=GROWING),
    unary("expm1", values=("tiny", "overflow")),
    unary("log", values=("positive",)),
    unary("log2", values=("positive",)),
    unary("log10", values=("positive",)),
    unary("log1p", values=("positive", "unit", "tiny")),
    unary("sqrt", values=("positive", "nonnegative")),
    unary("rsqrt", values=("positive",)),
    unary("reciprocal", values=("positive", "corners")),
    unary("neg", values=("normal", "subnormal")),
    unary("positive"),
    unary("abs", values=("zeros", "ties", "subnormal")),
    unary("sin"),
    unary("cos"),
    unary("tan", values=("unit",)),
    unary("asin", values=("unit",)),
    unary("acos", values=("unit",)),
    unary("atan"),
    unary("sinh", values=GROWING),
    unary("cosh", values=GROWING),
    unary("asinh"),
    # acosh is real above 1 only; a "positive" leaf covers both sides of that edge
    unary("acosh", values=("positive",)),
    unary("atanh", values=("unit",)),
    unary("erf"),
    unary("erfc"),
    unary("erfinv", values=("unit",)),
    unary("lgamma", values=("positive",)),
    unary("digamma", values=("positive",)),
    unary(
        "polygamma",
        integer("n", 0, 4),
        source="torch.Tensor.polygamma",
        values=("positive",),
        entries=tuple(f"polygamma.polygamma_n_{n}" for n in range(5)),
    ),
    unary(
        "polygamma_special",
        Attribute("n", "integer", lambda d: d.rng.choice((0, 0, 1, 2, 3)), leads=True),
        source="torch.special.polygamma",
        values=("positive",),
        entries=("special.polygamma.special_polygamma_n_0",),
    ),
    unary(
        "mvlgamma",
        integer("p", 1, 5),
        # above (p - 1) / 2
        values=("above_two",),
        entries=tuple(f"mvlgamma.mvlgamma_p_{p}" for p in (1, 3, 5)),
    ),
    unary("i0", source="torch.special.i0", entries=("i0",)),
    unary("i1e", source="torch.special.i1e", dtypes=WIDE),
    unary("ndtri", source="torch.special.ndtri", values=("probabilities",), dtypes=WIDE),
    unary("sgn", values=("zeros",), differentiable=False),
    unary("angle", values=("zeros",), differentiable=False),
    unary("real", source="torch.real"),
    unary("conj", source="torch.conj"),
    unary("conj_physical"),
    unary("resolve_conj"),
    unary("resolve_neg"),
    unary("fill", choice("value", 0.0, 1.0, -2.5, True), differentiable=False),
    unary("frexp", results=2),
    *(unary(name, source=f"torch.Tensor.{name}") for name in ("double", "float", "half", "bfloat16")),
    unary("clamp_min", real("min", -2, 2, (0.0, 0.5, -1.0)), values=("corners",), edges=at("min")),
    unary("clamp_max", real("max", -2, 2, (0.0, 0.5, -1.0)), values=("corners",), edges=at("max")),
    unary("radd_scalar", real("other", -2, 2, (0.0, 1.0, -0.5)), source="torch.Tensor.__radd__"),
    unary("rmul_scalar", real("other", -2, 2, (0.0, 1.0, -1.0, 0.5)), source="torch.Tensor.__rmul__"),
    unary("rpow_scalar", real("other", 0.1, 3, (1.0, 2.0, 0.5)), source="torch.Tensor.__rpow__"),
    unary("rdiv_scalar", real("other", -2, 2, (1.0, 0.0)), source="torch.Tensor.__rdiv__", values=("positive",)),
    unary("i0e", source="torch.special.i0e"),
    unary("i1", source="torch.special.i1", dtypes=WIDE),
    unary("erfcx", source="torch.special.erfcx", dtypes=WIDE),
    unary("entr", source="torch.special.entr", values=("positive", "nonnegative")),
    unary("ndtr", source="torch.special.ndtr"),
    unary("log_ndtr", source="torch.special.log_ndtr", dtypes=WIDE),
    unary("sigmoid"),
    unary("logit", choice("eps", None, 1e-3, 0.1, 0.3, default=None), values=("probabilities",), edges=inside),
    unary("square", values=GROWING),
    unary("sinc", values=("zeros", "unit")),
    unary("frac", values=("corners",), edges=at(*WHOLE)),
    unary("deg2rad"),
    unary("rad2deg"),
    unary(
        "nan_to_num",
        choice("nan", None, 0.0, 1.5, default=None),
        choice("posinf", None, 3.0, default=None),
        choice("neginf", None, -3.0, default=None),
    ),
    unary(
        "clamp",
        computed("min", "real", lower, None),
        computed("max", "real", upper, None),
        values=("corners",),
        edges=at("min", "max"),
    ),
    unary(
        "pow_scalar",
        computed("exponent", "real", exponent),
        source="torch.pow",
        values=("positive", "nonnegative", "zeros", "overflow"),
    ),
    unary("add_scalar", real("other", -2, 2, (0.0, 1.0, -0.5)), source="torch.add"),
    unary("mul_scalar", real("other", -2, 2, (0.0, 1.0, -1.0, 0.5)), source="torch.mul", values=GROWING),
    unary("rsub", real("other", -2, 2, (0.0, 1.0)), real("alpha", -2, 2, (1.0, 0.0, 0.5), 1.0)),
    unary("fmod_scalar", choice("other", 1.0, 0.5, -0.75, 2.0, 3.0), source="torch.fmod", edges=multiples),
    unary("remainder_scalar", choice("other", 1.0, 0.5, -0.75, 2.0, 3.0), source="torch.remainder", edges=multiples),
    unary("to", computed("dtype", "dtype", lambda d: Dtype(d.rng.choice(d.limits.dtypes))), source="torch.Tensor.to"),
    unary("sign", values=("zeros", "subnormal"), differentiable=False),
    unary("trunc", values=("corners",), edges=at(*WHOLE), differentiable=False),
    unary("floor", values=("corners",), edges=at(*WHOLE), differentiable=False),
    unary("ceil", values=("corners",), edges=at(*WHOLE), differentiable=False),
    unary(
        "round",
        integer("decimals", -3, 3, 0),
        values=("corners",),
        edges=at(0.5, 1.5, -0.5, 2.5),
        differentiable=False,
        entries=("round", "round.decimals_0", "round.decimals_3", "round.decimals_neg_3"),
    ),
)
