"""Reductions over some or all dimensions."""

from __future__ import annotations

import math

from fuzzer.language.ops.spec import (
    ANY,
    BOOL,
    FROM_SOURCE,
    NUMBERS,
    WIDE,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    cast,
    choice,
    computed,
    dim,
    dims,
    expandable,
    flag,
    nonempty,
    real,
)
from fuzzer.language.program import FLOATS, Dtype, Value

FAMILY = "reduction"

KEEPDIM = flag("keepdim", False)
TIES = ("ties", "integers")
_ZEROS = ("zeros", "lone_zero", "signs", "ties", "overflow")
_INF = float("inf")


def some(name: str = "dim", default: Value = None) -> Attribute:
    """None (all dimensions, the default), one dimension or several, sometimes negative."""

    def draw(d: Draw) -> Value:
        if d.x.rank == 0 or d.rng.random() < 0.25:
            return default
        chosen = d.rng.sample(range(d.x.rank), d.rng.randint(1, d.x.rank))
        return tuple(i - d.x.rank if d.rng.random() < 0.3 else i for i in sorted(chosen))

    return computed(name, "dims", draw, default)


def maybe_dim(d: Draw) -> Value:
    """None or one dimension."""
    if d.x.rank == 0 or d.rng.random() < 0.3:
        return None
    return d.rng.randrange(-d.x.rank, d.x.rank)


def _keep_if_dim(d: Draw) -> Value:
    """keepdim, False if all dimensions are reduced at once: some signatures have it only together with dim."""
    return d.attrs["dim"] is not None and d.rng.random() < 0.5


def _reduction(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = FLOATS,
    full: bool = True,
    rank: tuple[int, int] = (0, 5),
    results: int = 1,
    differentiable: bool = True,
    entries: tuple[str, ...] = FROM_SOURCE,
    since: str = "",
) -> OpSpec:
    """`full`: at least one element is required."""
    operand = Operand(dtypes=dtypes, rank=rank, accepts=nonempty if full else None, values=values)
    source = source or f"torch.{name}"
    return OpSpec(name, FAMILY, source, (operand, *attributes), results, differentiable, entries=entries, since=since)


def _wider(d: Draw) -> Value:
    """None, or a dtype at least as wide as x's: vector_norm refuses to narrow."""
    return Dtype("f64" if d.x.dtype == "f64" else d.rng.choice(WIDE)) if d.rng.random() < 0.25 else None


def _order(d: Draw) -> Value:
    """The Frobenius norm of all elements or of some dimensions, or an order of a vector norm."""
    return d.rng.choice(("fro", "fro", 2, 1, 0, 3, 0.5, _INF, -_INF))


def _some_for_norm(d: Draw) -> Value:
    """Any dimensions; one or two for "fro"."""
    if d.x.rank == 0 or d.rng.random() < 0.3:
        return None
    most = min(2, d.x.rank) if d.attrs["p"] == "fro" else d.x.rank
    return tuple(sorted(d.rng.sample(range(d.x.rank), d.rng.randint(1, most))))


def _reduced(d: Draw) -> Value:
    """A shape that expands to x's."""
    return expandable(d, d.x.shape)


_NORMED = ("zeros", "ties", "subnormal", "overflow")
_KEEPDIM_WITH_DIM = computed("keepdim", "flag", _keep_if_dim, False)
_SCALES = ("normal", "normal", "integers", "huge", "subnormal")


def _correction(d: Draw) -> Value:
    """Mostly small; else the number of elements or one more, at which the divisor is 0."""
    if d.rng.random() < 0.75:
        return d.rng.choice((1, 1, 0, 2, 5))
    dims = d.attrs["dim"]
    over = [i % d.x.rank for i in dims if isinstance(i, int)] if isinstance(dims, tuple) else range(d.x.rank)
    return math.prod(d.x.shape[i] for i in over) + d.rng.choice((0, 1))


_CORRECTION = computed("correction", "integer", _correction, 1)

TABLE = (
    _reduction("sum", some(), _KEEPDIM_WITH_DIM, cast(), values=("overflow", "normal"), dtypes=ANY, full=False),
    _reduction("mean", some(), _KEEPDIM_WITH_DIM, cast(), full=False),
    _reduction("sum_to_size", computed("size", "shape", _reduced), source="torch.Tensor.sum_to_size", full=False),
    _reduction("nansum", some(), KEEPDIM, values=("normal", "nonfinite"), full=False),
    _reduction("nanmean", some(), KEEPDIM, values=("normal", "nonfinite"), full=False),
    _reduction("amax", some(default=()), KEEPDIM, values=TIES, dtypes=ANY),
    _reduction("amin", some(default=()), KEEPDIM, values=TIES, dtypes=ANY),
    _reduction("max", dim(), KEEPDIM, values=TIES, dtypes=ANY, results=2, entries=("max.reduction_with_dim",)),
    _reduction("min", dim(), KEEPDIM, values=TIES, dtypes=ANY, results=2, entries=("min.reduction_with_dim",)),
    _reduction("max_all", source="torch.max", values=TIES, dtypes=ANY, entries=("max.reduction_no_dim",)),
    _reduction("min_all", source="torch.min", values=TIES, dtypes=ANY, entries=("min.reduction_no_dim",)),
    _reduction(
        "aminmax",
        computed("dim", "dim", maybe_dim, None),
        KEEPDIM,
        values=TIES,
        dtypes=NUMBERS,
        results=2,
        since="2.13",
    ),
    _reduction("prod", dim(), KEEPDIM, cast(), values=_ZEROS, dtypes=NUMBERS, full=False),
    _reduction("prod_all", cast(), source="torch.prod", values=_ZEROS, full=False),
    _reduction("var", some(), _CORRECTION, KEEPDIM, values=_SCALES),
    _reduction("std", some(), _CORRECTION, KEEPDIM, values=_SCALES),
    _reduction("var_mean", some(), _CORRECTION, KEEPDIM, values=_SCALES, results=2),
    _reduction("std_mean", some(), _CORRECTION, KEEPDIM, values=_SCALES, results=2),
    *(
        _reduction(
            f"{name}_unbiased", flag("unbiased"), source=f"torch.{name}", results=n, entries=(f"{name}.unbiased",)
        )
        for name, n in (("var", 1), ("std", 1), ("var_mean", 2), ("std_mean", 2))
    ),
    *(
        _reduction(
            name,
            real("q", 0, 1, (0.0, 0.5, 1.0)),
            computed("dim", "dim", maybe_dim, None),
            KEEPDIM,
            choice("interpolation", "linear", "lower", "higher", "midpoint", "nearest", default="linear"),
            values=(*TIES, "normal"),
            dtypes=WIDE,
        )
        for name in ("quantile", "nanquantile")
    ),
    _reduction(
        "norm",
        computed("p", "norm", _order, "fro"),
        computed("dim", "dims", _some_for_norm, None),
        KEEPDIM,
        values=_NORMED,
        entries=("norm", "norm.fro", "norm.inf"),
    ),
    _reduction(
        "norm_nuclear",
        choice("p", "nuc", default="fro"),
        KEEPDIM,
        source="torch.norm",
        values=("separated", "near_singular"),
        rank=(2, 2),
        dtypes=WIDE,
        entries=("norm.nuc",),
    ),
    _reduction(
        "vector_norm",
        choice("ord", 2, 2, 1, 0, 3, 0.5, _INF, -_INF, default=2),
        some(),
        KEEPDIM,
        computed("dtype", "dtype", _wider, None),
        source="torch.linalg.vector_norm",
        values=_NORMED,
    ),
    _reduction("logsumexp", dims(), KEEPDIM, values=("ties", "normal", "overflow"), rank=(1, 5)),
    _reduction("median", dim(), KEEPDIM, values=TIES, results=2),
    _reduction("median_all", source="torch.median", values=TIES),
    _reduction("nanmedian", dim(), KEEPDIM, values=(*TIES, "nonfinite"), results=2),
    _reduction("trace", rank=(2, 2), dtypes=WIDE),
    _reduction(
        "argmax",
        computed("dim", "dim", maybe_dim, None),
        _KEEPDIM_WITH_DIM,
        values=TIES,
        dtypes=NUMBERS,
        differentiable=False,
    ),
    _reduction(
        "argmin",
        computed("dim", "dim", maybe_dim, None),
        _KEEPDIM_WITH_DIM,
        values=TIES,
        dtypes=NUMBERS,
        differentiable=False,
    ),
    _reduction("all", dim(), KEEPDIM, dtypes=BOOL, differentiable=False),
    _reduction("any", dim(), KEEPDIM, dtypes=BOOL, differentiable=False),
)
