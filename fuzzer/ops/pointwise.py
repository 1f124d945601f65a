"""Functions of one tensor, element by element."""

from __future__ import annotations

from fuzzer.ops.spec import FROM_SOURCE, WIDE, Attribute, Draw, Operand, OpSpec, choice, computed, integer, real
from fuzzer.program import FLOATS, Dtype, Value

FAMILY = "pointwise"


def unary(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = FLOATS,
    results: int = 1,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
) -> OpSpec:
    params: tuple[Operand | Attribute, ...] = (Operand(dtypes=dtypes, values=values), *attributes)
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


TABLE = (
    unary("exp"),
    unary("exp2"),
    unary("expm1", values=("tiny",)),
    unary("log", values=("positive",)),
    unary("log2", values=("positive",)),
    unary("log10", values=("positive",)),
    unary("log1p", values=("positive", "unit", "tiny")),
    unary("sqrt", values=("positive", "zeros")),
    unary("rsqrt", values=("positive",)),
    unary("reciprocal", values=("positive", "corners")),
    unary("neg"),
    unary("positive"),
    unary("abs", values=("zeros", "ties")),
    unary("sin"),
    unary("cos"),
    unary("tan", values=("unit",)),
    unary("asin", values=("unit",)),
    unary("acos", values=("unit",)),
    unary("atan"),
    unary("sinh"),
    unary("cosh"),
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
    unary("clamp_min", real("min", -2, 2, (0.0, 0.5, -1.0)), values=("corners",)),
    unary("clamp_max", real("max", -2, 2, (0.0, 0.5, -1.0)), values=("corners",)),
    unary("radd_scalar", real("other", -2, 2, (0.0, 1.0, -0.5)), source="torch.Tensor.__radd__"),
    unary("rmul_scalar", real("other", -2, 2, (0.0, 1.0, -1.0, 0.5)), source="torch.Tensor.__rmul__"),
    unary("rpow_scalar", real("other", 0.1, 3, (1.0, 2.0, 0.5)), source="torch.Tensor.__rpow__"),
    unary("rdiv_scalar", real("other", -2, 2, (1.0, 0.0)), source="torch.Tensor.__rdiv__", values=("positive",)),
    unary("i0e", source="torch.special.i0e"),
    unary("i1", source="torch.special.i1", dtypes=WIDE),
    unary("erfcx", source="torch.special.erfcx", dtypes=WIDE),
    unary("entr", source="torch.special.entr", values=("positive", "zeros")),
    unary("ndtr", source="torch.special.ndtr"),
    unary("log_ndtr", source="torch.special.log_ndtr", dtypes=WIDE),
    unary("sigmoid"),
    unary("logit", choice("eps", None, 1e-3, 0.1, 0.3, default=None), values=("probabilities",)),
    unary("square"),
    unary("sinc", values=("zeros", "unit")),
    unary("frac", values=("corners",)),
    unary("deg2rad"),
    unary("rad2deg"),
    unary(
        "nan_to_num",
        choice("nan", None, 0.0, 1.5, default=None),
        choice("posinf", None, 3.0, default=None),
        choice("neginf", None, -3.0, default=None),
    ),
    unary("clamp", computed("min", "real", lower, None), computed("max", "real", upper, None), values=("corners",)),
    unary("pow_scalar", computed("exponent", "real", exponent), source="torch.pow", values=("positive", "zeros")),
    unary("add_scalar", real("other", -2, 2, (0.0, 1.0, -0.5)), source="torch.add"),
    unary("mul_scalar", real("other", -2, 2, (0.0, 1.0, -1.0, 0.5)), source="torch.mul"),
    unary("rsub", real("other", -2, 2, (0.0, 1.0)), real("alpha", -2, 2, (1.0, 0.0, 0.5), 1.0)),
    unary("fmod_scalar", choice("other", 1.0, 0.5, -0.75, 2.0, 3.0), source="torch.fmod"),
    unary("remainder_scalar", choice("other", 1.0, 0.5, -0.75, 2.0, 3.0), source="torch.remainder"),
    unary("to", computed("dtype", "dtype", lambda d: Dtype(d.rng.choice(d.limits.dtypes))), source="torch.Tensor.to"),
    unary("sign", values=("zeros",), differentiable=False),
    unary("trunc", values=("corners",), differentiable=False),
    unary("floor", values=("corners",), differentiable=False),
    unary("ceil", values=("corners",), differentiable=False),
    unary(
        "round",
        integer("decimals", -3, 3, 0),
        values=("corners",),
        differentiable=False,
        entries=("round", "round.decimals_0", "round.decimals_3", "round.decimals_neg_3"),
    ),
)
