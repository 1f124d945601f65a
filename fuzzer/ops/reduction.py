"""Reductions over some or all dimensions."""

from __future__ import annotations

from fuzzer.ops.spec import (
    BOOL,
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
    flag,
    nonempty,
)
from fuzzer.program import FLOATS, Dtype, Value

FAMILY = "reduction"

KEEPDIM = flag("keepdim", False)
TIES = ("ties", "integers")
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
) -> OpSpec:
    """`full`: at least one element is needed."""
    operand = Operand(dtypes=dtypes, rank=rank, accepts=nonempty if full else None, values=values)
    return OpSpec(name, FAMILY, source or f"torch.{name}", (operand, *attributes), results, differentiable)


def wider(d: Draw) -> Value:
    """None, or a dtype that holds x's: vector_norm refuses to narrow."""
    return Dtype("f64" if d.x.dtype == "f64" else d.rng.choice(WIDE)) if d.rng.random() < 0.25 else None


KEEPDIM_WITH_DIM = computed("keepdim", "flag", keep_if_dim, False)
CORRECTION = choice("correction", 1, 0, 2, default=1)

TABLE = (
    reduction("sum", some(), KEEPDIM_WITH_DIM, cast(), full=False),
    reduction("mean", some(), KEEPDIM_WITH_DIM, cast(), full=False),
    reduction("nansum", some(), KEEPDIM, full=False),
    reduction("nanmean", some(), KEEPDIM, full=False),
    reduction("amax", some(default=()), KEEPDIM, values=TIES),
    reduction("amin", some(default=()), KEEPDIM, values=TIES),
    reduction("max", dim(), KEEPDIM, values=TIES, results=2),
    reduction("min", dim(), KEEPDIM, values=TIES, results=2),
    reduction("max_all", source="torch.max", values=TIES),
    reduction("min_all", source="torch.min", values=TIES),
    reduction("prod", dim(), KEEPDIM, cast(), values=("zeros", "signs"), full=False),
    reduction("prod_all", cast(), source="torch.prod", values=("zeros", "signs"), full=False),
    reduction("var", some(), CORRECTION, KEEPDIM),
    reduction("std", some(), CORRECTION, KEEPDIM),
    reduction("var_mean", some(), CORRECTION, KEEPDIM, results=2),
    reduction("std_mean", some(), CORRECTION, KEEPDIM, results=2),
    reduction(
        "vector_norm",
        choice("ord", 2, 2, 1, 0, 3, 0.5, INF, -INF, default=2),
        some(),
        KEEPDIM,
        computed("dtype", "dtype", wider, None),
        source="torch.linalg.vector_norm",
        values=("zeros", "ties"),
    ),
    reduction("logsumexp", dims(), KEEPDIM, rank=(1, 5)),
    reduction("median", dim(), KEEPDIM, results=2),
    reduction("median_all", source="torch.median"),
    reduction("nanmedian", dim(), KEEPDIM, results=2),
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
