"""Factorisations, solutions and functions of matrices.

Their gradients blow up where singular values or eigenvalues meet, so leaves are mostly matrices that keep them apart.
A factorisation that is unique only up to signs (eigh, svd) is judged up to signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzzer.ops.spec import (
    SAME,
    WIDE,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    flag,
    integer,
    nonempty,
)
from fuzzer.ops.view import two_dims
from fuzzer.program import Recipe, Shape, TensorType, Value

FAMILY = "linalg"

UPPER = flag("upper", False)
INF = math.inf


def matrix(d: Draw, rows: int, columns: int) -> Shape:
    """A matrix, in one of four draws a batch of them."""
    return (*(d.size(1, 3) for _ in range(d.rng.choice((0, 0, 0, 1)))), rows, columns)


def square(d: Draw) -> Shape:
    size = d.size(1, 8)
    return matrix(d, size, size)


def oblong(d: Draw) -> Shape:
    return matrix(d, d.size(1, 8), d.size(1, 8))


def tall(d: Draw) -> Shape:
    """At least as many rows as columns."""
    columns = d.size(1, 6)
    return matrix(d, columns + d.rng.choice((0, 0, 1, 3)), columns)


def is_square(t: TensorType) -> bool:
    return t.numel > 0 and t.shape[-1] == t.shape[-2] <= 16


def is_small(t: TensorType) -> bool:
    return t.numel > 0 and max(t.shape[-2:]) <= 16


def is_tall(t: TensorType) -> bool:
    return is_small(t) and t.shape[-2] >= t.shape[-1]


def separated(d: Draw) -> Recipe:
    return Recipe("separated")


def regular(d: Draw) -> Recipe:
    """Regular, in one of three draws almost not: a solution then shows 64 times the rounding of what it solves."""
    return Recipe(d.rng.choice(("separated", "definite", "near_singular")))


def definite(d: Draw) -> Recipe:
    return Recipe(d.rng.choice(("definite", "definite", "near_singular")))


def operand(
    fresh: Callable[[Draw], Shape], accepts: Callable[[TensorType], bool], *values: str, name: str = "x"
) -> Operand:
    return Operand(name, WIDE, rank=(2, 4), accepts=accepts, fresh=fresh, values=values)


SQUARE = operand(square, is_square, "separated", "definite", "near_singular")
SYMMETRIC = operand(square, is_square, "definite", "near_singular")
OBLONG = operand(oblong, is_small, "separated", "near_singular")
TALL = operand(tall, is_tall, "separated", "near_singular")
# cholesky refuses what is not positive definite, so it takes no other value
# nor do inv and solve take a singular one; inv_ex and solve_ex do
REGULAR = Operand("x", WIDE, shape=square, recipe=regular)
DEFINITE = Operand("x", WIDE, shape=square, recipe=definite)
LOWER_OR_UPPER = choice("UPLO", "L", "U", default="L")


def function(
    name: str,
    of: Operand,
    *params: Operand | Attribute,
    results: Any = 1,
    source: str = "",
    entries: tuple[str, ...] = (),
) -> OpSpec:
    """`name` without a prefix; its source is torch.linalg's unless said."""
    source = source or f"torch.linalg.{name}"
    return OpSpec(
        name if source == f"torch.linalg.{name}" else source.removeprefix("torch.").replace(".", "_"),
        FAMILY,
        source,
        (of, *params),
        results,
        entries=entries or (source.removeprefix("torch."),),
    )


def outside(name: str, of: Operand, *params: Operand | Attribute, results: Any = 1) -> OpSpec:
    """The older function of torch itself, apart from torch.linalg's of the same name."""
    spec = function(name, of, *params, results=results, source=f"torch.{name}")
    return OpSpec(f"torch_{name}", spec.family, spec.source, spec.params, spec.results, entries=(name,))


def sides(d: Draw) -> Shape:
    """As many rows as the square x has, some columns; columns first where it stands on the left."""
    count = d.size(1, 5)
    rest = (d.x.shape[-1], count) if d.attrs.get("left", True) else (count, d.x.shape[-1])
    return (*d.x.shape[:-2], *rest)


def factor_of(d: Draw) -> Shape:
    """The square matrix that goes with a right-hand side x."""
    return (*d.x.shape[:-1], d.x.shape[-2])


def pivots(d: Draw) -> Shape:
    return (d.operands[-1].shape[-1],)


def counted(d: Draw) -> Recipe:
    """Pivots that swap nothing: 1, 2, 3, ..."""
    return Recipe("arange")


PIVOTS = Operand("pivots", ("i32",), shape=pivots, recipe=counted)
ALONE = Operand("x", WIDE, rank=(2, 2), accepts=is_square, fresh=lambda d: (d.size(1, 8),) * 2, values=("separated",))
SIDE = Operand("x", WIDE, rank=(2, 2), accepts=is_small, fresh=lambda d: (d.size(1, 8), d.size(1, 4)))


def partner(name: str, shape: Callable[[Draw], Shape], *values: str) -> Operand:
    return Operand(name, SAME, shape=shape, values=values)


def complete(d: Draw) -> Value:
    """The full Q where it has a derivative: with no more rows than columns."""
    return "complete" if d.x.shape[-2] <= d.x.shape[-1] and d.rng.random() < 0.3 else "reduced"


def taus(d: Draw) -> Shape:
    return (*d.x.shape[:-2], d.x.shape[-1])


def reflected(d: Draw) -> Shape:
    """What Q, with as many rows as x, multiplies from the chosen side."""
    rows, count = d.x.shape[-2], d.size(1, 4)
    return (*d.x.shape[:-2], *((rows, count) if d.attrs["left"] else (count, rows)))


def norm_order(d: Draw) -> Value:
    """Orders that matrices know; "nuc", 2 and -2 look at singular values."""
    return d.rng.choice(("fro", "fro", "nuc", 1, -1, 2, -2, INF, -INF))


def of_one_dim(d: Draw) -> Value:
    """A vector norm of any order along one dimension."""
    return d.rng.choice((None, 2, 1, 3, 0.5, INF, -INF))


def last_two() -> tuple[Attribute, Attribute]:
    """Two distinct dimensions; the last ones by default."""
    first, second = two_dims("dim1", "dim2")
    return replace(first, default=-2), replace(second, default=-1)


def one_dim(d: Draw) -> Value:
    """One dimension; None now and then, where that means a vector norm too."""
    if (d.attrs["ord"] is None or d.x.rank == 1) and d.rng.random() < 0.5:
        return None
    return d.rng.randrange(-d.x.rank, d.x.rank)


def foldable(d: Draw) -> Shape:
    """(a, b, a * b): a matrix for tensorinv and tensorsolve."""
    a, b = d.size(1, 3), d.size(1, 3)
    return (a, b, a * b)


def low_rank(name: str, least: int, *attributes: Attribute) -> OpSpec:
    """The `q` largest singular values and their vectors, from a random start; `least` of the rows are left out."""

    def kept(d: Draw) -> Value:
        return d.rng.randint(1, max(1, min(d.x.shape[-2] - least, d.x.shape[-1])))

    # of orthogonal columns, which other factorisations return, all singular values are equal
    rows = Operand("x", WIDE, shape=lambda d: matrix(d, d.size(1 + least, 8), d.size(1, 8)), recipe=separated)
    kept_first = computed("q", "integer", kept)
    return OpSpec(
        name, FAMILY, f"torch.{name}", (rows, kept_first, *attributes, integer("niter", 0, 2, 2)), 3, random=True
    )


FOLDABLE = Operand("x", WIDE, shape=foldable, recipe=lambda d: Recipe("normal"))
SOLVED = partner("B", sides)
LEFT = flag("left", True)

TABLE = (
    function("cholesky", DEFINITE, UPPER),
    function("cholesky_ex", SYMMETRIC, UPPER, results=2),
    outside("cholesky", DEFINITE, UPPER),
    outside("cholesky_inverse", SQUARE, UPPER),
    outside("cholesky_solve", operand(oblong, is_small), partner("L", factor_of, "separated", "near_singular"), UPPER),
    function("inv", REGULAR),
    function("inv_ex", SQUARE, results=2),
    function(
        "pinv", OBLONG, choice("rtol", None, 0.1, 1e-3, default=None), entries=("linalg.pinv", "linalg.pinv.singular")
    ),
    OpSpec(
        "pinv_hermitian",
        FAMILY,
        "torch.linalg.pinv",
        (SYMMETRIC, choice("hermitian", True, default=False)),
        entries=("linalg.pinv.hermitian",),
    ),
    outside("pinverse", OBLONG, choice("rcond", 1e-15, 1e-3, 0.1, default=1e-15)),
    function("det", SQUARE),
    function("slogdet", SQUARE, results=2),
    outside("logdet", SYMMETRIC),
    function("matrix_power", SQUARE, integer("n", -2, 4)),
    outside("matrix_exp", operand(square, is_square, "unit", "tiny")),
    function(
        "matrix_norm",
        OBLONG,
        computed("ord", "norm", norm_order, "fro"),
        flag("keepdim", False),
    ),
    OpSpec(
        "linalg_norm",
        FAMILY,
        "torch.linalg.norm",
        (
            Operand(rank=(1, 4), accepts=nonempty, values=("zeros", "normal", "ties")),
            computed("ord", "norm", of_one_dim, None),
            computed("dim", "dim", one_dim, None),
            flag("keepdim", False),
        ),
        entries=("linalg.norm", "linalg.norm.subgradients_at_zero"),
    ),
    # with the other norms eager's backward refuses ("modified by an inplace operation", torch 2.11 and 2.13)
    function("cond", SQUARE, choice("p", None, 2, -2, "nuc", default=None)),
    function("qr", TALL, results=2),
    OpSpec(
        "qr_of_wide",
        FAMILY,
        "torch.linalg.qr",
        (OBLONG, computed("mode", "choice", complete, "reduced")),
        results=2,
        entries=("linalg.qr",),
    ),
    outside("qr", TALL, results=2),
    function("svd", OBLONG, choice("full_matrices", False, default=True), results=3),
    outside("svd", OBLONG, results=3),
    low_rank("svd_lowrank", 0),
    # centred columns span one dimension less
    low_rank("pca_lowrank", 1, choice("center", True, default=True)),
    function("svdvals", OBLONG),
    # eigenvectors have any phase, so that only their absolute values have a gradient
    replace(function("eig", SQUARE, results=2), name="eig_abs", then=("torch.abs",)),
    function("eigh", SYMMETRIC, LOWER_OR_UPPER, results=2),
    function("eigvalsh", SYMMETRIC, LOWER_OR_UPPER),
    function("lu", OBLONG, results=3),
    function("lu_factor", OBLONG, results=2),
    function("lu_factor_ex", OBLONG, results=3),
    outside("lu", OBLONG, results=2),
    function("lu_solve", ALONE, PIVOTS, LEFT, SOLVED, flag("adjoint", False)),
    outside("lu_solve", SIDE, partner("LU", factor_of, "separated", "near_singular"), PIVOTS),
    outside("lu_unpack", ALONE, PIVOTS, results=3),
    function("solve", REGULAR, LEFT, SOLVED),
    function("solve_ex", SQUARE, LEFT, SOLVED, results=2),
    function(
        "solve_triangular",
        operand(square, is_square, "separated", "near_singular"),
        LEFT,
        SOLVED,
        flag("upper"),
        flag("unitriangular", False),
    ),
    outside(
        "triangular_solve",
        operand(oblong, is_small),
        partner("A", factor_of, "separated", "near_singular"),
        flag("upper", True),
        flag("transpose", False),
        flag("unitriangular", False),
        results=2,
    ),
    function("tensorinv", FOLDABLE, choice("ind", 2, default=2)),
    function("tensorsolve", FOLDABLE, partner("B", lambda d: d.x.shape[:2])),
    function("householder_product", TALL, partner("tau", taus, "uniform", "normal")),
    outside(
        "ormqr",
        TALL,
        flag("left", True),
        flag("transpose", False),
        partner("tau", taus, "uniform", "normal"),
        partner("other", reflected),
    ),
    function("vander", Operand("x", WIDE, rank=(1, 2), accepts=nonempty, values=("unit",)), integer("N", 2, 5)),
    OpSpec(
        "linalg_diagonal",
        FAMILY,
        "torch.linalg.diagonal",
        (Operand("A", rank=(2, 5), keyword="A"), integer("offset", -2, 2, 0), *last_two()),
        entries=("linalg.diagonal",),
    ),
)
