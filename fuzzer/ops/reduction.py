"""Reductions over some or all dimensions."""

from __future__ import annotations

from fuzzer.ops.spec import (
    BOOL,
    FROM_SOURCE,
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
from fuzzer.program import FLOATS, Dtype, Value

FAMILY = "reduction"

KEEPDIM = flag("keepdim", False)
TIES = ("ties", "integers")
ZEROS = ("zeros", "lone_zero", "signs", "ties", "overflow")
INF = float("inf")


def some(name: str = "dim", default: Value = None) -> Attribute:
    """None (all dimensions, also the default), one dimension or several, also negative ones."""

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


def keep_if_dim(d: Draw) -> Value:
    """keepdim, False where all dimensions are reduced at once: some signatures have it only together with dim."""
    return d.attrs["dim"] is not None and d.rng.random() < 0.5


def reduction(
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
    """`full`: at least one element is needed."""
    operand = Operand(dtypes=dtypes, rank=rank, accepts=nonempty if full else None, values=values)
    source = source or f"torch.{name}"
    return OpSpec(name, FAMILY, source, (operand, *attributes), results, differentiable, entries=entries, since=since)


def wider(d: Draw) -> Value:
    """None, or a dtype that holds x's: vector_norm refuses to narrow."""
    return Dtype("f64" if d.x.dtype == "f64" else d.rng.choice(WIDE)) if d.rng.random() < 0.25 else None


def order(d: Draw) -> Value:
    """The Frobenius norm of all elements or of some dimensions, or an order of a vector norm."""
    return d.rng.choice(("fro", "fro", 2, 1, 0, 3, 0.5, INF, -INF))


def some_for_norm(d: Draw) -> Value:
    """Any dimensions; one or two for "fro"."""
    if d.x.rank == 0 or d.rng.random() < 0.3:
        return None
    most = min(2, d.x.rank) if d.attrs["p"] == "fro" else d.x.rank
    return tuple(sorted(d.rng.sample(range(d.x.rank), d.rng.randint(1, most))))


def reduced(d: Draw) -> Value:
    """A shape that expands to x's."""
    return expandable(d, d.x.shape)


NORMED = ("zeros", "ties", "subnormal", "overflow")
KEEPDIM_WITH_DIM = computed("keepdim", "flag", keep_if_dim, False)
CORRECTION = choice("correction", 1, 0, 2, default=1)

TABLE = (
    reduction("sum", some(), KEEPDIM_WITH_DIM, cast(), values=("overflow", "normal"), full=False),
    reduction("mean", some(), KEEPDIM_WITH_DIM, cast(), full=False),
    reduction("sum_to_size", computed("size", "shape", reduced), source="torch.Tensor.sum_to_size", full=False),
    reduction("nansum", some(), KEEPDIM, full=False),
    reduction("nanmean", some(), KEEPDIM, full=False),
    reduction("amax", some(default=()), KEEPDIM, values=TIES),
    reduction("amin", some(default=()), KEEPDIM, values=TIES),
    reduction("max", dim(), KEEPDIM, values=TIES, results=2, entries=("max.reduction_with_dim",)),
    reduction("min", dim(), KEEPDIM, values=TIES, results=2, entries=("min.reduction_with_dim",)),
    reduction("max_all", source="torch.max", values=TIES, entries=("max.reduction_no_dim",)),
    reduction("min_all", source="torch.min", values=TIES, entries=("min.reduction_no_dim",)),
    reduction("aminmax", computed("dim", "dim", maybe_dim, None), KEEPDIM, values=TIES, results=2, since="2.13"),
    reduction("prod", dim(), KEEPDIM, cast(), values=ZEROS, full=False),
    reduction("prod_all", cast(), source="torch.prod", values=ZEROS, full=False),
    reduction("var", some(), CORRECTION, KEEPDIM),
    reduction("std", some(), CORRECTION, KEEPDIM),
    reduction("var_mean", some(), CORRECTION, KEEPDIM, results=2),
    reduction("std_mean", some(), CORRECTION, KEEPDIM, results=2),
    *(
        reduction(
            f"{name}_unbiased", flag("unbiased"), source=f"torch.{name}", results=n, entries=(f"{name}.unbiased",)
        )
        for name, n in (("var", 1), ("std", 1), ("var_mean", 2), ("std_mean", 2))
    ),
    *(
        reduction(
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
    reduction(
        "norm",
        computed("p", "norm", order, "fro"),
        computed("dim", "dims", some_for_norm, None),
        KEEPDIM,
        values=NORMED,
        entries=("norm", "norm.fro", "norm.inf"),
    ),
    reduction(
        "norm_nuclear",
        choice("p", "nuc", default="fro"),
        KEEPDIM,
        source="torch.norm",
        values=("separated", "near_singular"),
        rank=(2, 2),
        dtypes=WIDE,
        entries=("norm.nuc",),
    ),
    reduction(
        "vector_norm",
        choice("ord", 2, 2, 1, 0, 3, 0.5, INF, -INF, default=2),
        some(),
        KEEPDIM,
        computed("dtype", "dtype", wider, None),
        source="torch.linalg.vector_norm",
        values=NORMED,
    ),
    reduction("logsumexp", dims(), KEEPDIM, values=("ties", "normal", "overflow"), rank=(1, 5)),
    reduction("median", dim(), KEEPDIM, values=TIES, results=2),
    reduction("median_all", source="torch.median", values=TIES),
    reduction("nanmedian", dim(), KEEPDIM, values=TIES, results=2),
    reduction("trace", rank=(2, 2), dtypes=WIDE),
    reduction(
        "argmax",
        computed("dim", "dim", maybe_dim, None),
        KEEPDIM_WITH_DIM,
        values=TIES,
        differentiable=False,
    ),
    reduction(
        "argmin",
        computed("dim", "dim", maybe_dim, None),
        KEEPDIM_WITH_DIM,
        values=TIES,
        differentiable=False,
    ),
    reduction("all", dim(), KEEPDIM, dtypes=BOOL, differentiable=False),
    reduction("any", dim(), KEEPDIM, dtypes=BOOL, differentiable=False),
)
