"""Factorisations, solutions and functions of matrices.

Their gradients diverge where singular values or eigenvalues coincide, so leaves are mostly matrices with separated
ones. A factorisation that is unique only up to signs (eigh, svd) is compared up to signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzzer.language.ops.spec import (
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
from fuzzer.language.ops.view import two_dims
from fuzzer.language.program import Recipe, Shape, TensorType, Value

FAMILY = "linalg"

_UPPER = flag("upper", False)
_INF = math.inf


def _matrix(d: Draw, rows: int, columns: int) -> Shape:
    """A matrix, in one of four draws a batch of them."""
    return (*(d.size(1, 3) for _ in range(d.rng.choice((0, 0, 0, 1)))), rows, columns)


def square(d: Draw) -> Shape:
    size = d.size(1, 8)
    return _matrix(d, size, size)


def _oblong(d: Draw) -> Shape:
    return _matrix(d, d.size(1, 8), d.size(1, 8))


def _tall(d: Draw) -> Shape:
    """At least as many rows as columns."""
    columns = d.size(1, 6)
    return _matrix(d, columns + d.rng.choice((0, 0, 1, 3)), columns)


def is_square(t: TensorType) -> bool:
    return t.numel > 0 and t.shape[-1] == t.shape[-2] <= 16


def _is_small(t: TensorType) -> bool:
    return t.numel > 0 and max(t.shape[-2:]) <= 16


def _is_tall(t: TensorType) -> bool:
    return _is_small(t) and t.shape[-2] >= t.shape[-1]


def _separated(d: Draw) -> Recipe:
    return Recipe("separated")


def _regular(d: Draw) -> Recipe:
    """A regular matrix, in one of three draws nearly singular: then solutions show 64 times the rounding of the
    matrix."""
    return Recipe(d.rng.choice(("separated", "definite", "near_singular")))


def _definite(d: Draw) -> Recipe:
    return Recipe(d.rng.choice(("definite", "definite", "near_singular")))


def _operand(
    fresh: Callable[[Draw], Shape], accepts: Callable[[TensorType], bool], *values: str, name: str = "x"
) -> Operand:
    return Operand(name, WIDE, rank=(2, 4), accepts=accepts, fresh=fresh, values=values)


_SQUARE = _operand(square, is_square, "separated", "definite", "near_singular")
_SYMMETRIC = _operand(square, is_square, "definite", "near_singular")
_OBLONG = _operand(_oblong, _is_small, "separated", "near_singular")
_TALL = _operand(_tall, _is_tall, "separated", "near_singular")
# cholesky refuses matrices that are not positive definite, inv and solve singular ones; so these values alone are drawn
# for them, but not for inv_ex and solve_ex
_REGULAR = Operand("x", WIDE, shape=square, recipe=_regular)
_DEFINITE = Operand("x", WIDE, shape=square, recipe=_definite)
_LOWER_OR_UPPER = choice("UPLO", "L", "U", default="L")


def _function(
    name: str,
    of: Operand,
    *params: Operand | Attribute,
    results: Any = 1,
    source: str = "",
    entries: tuple[str, ...] = (),
) -> OpSpec:
    """A row for `name` (without prefix); its source is torch.linalg's function by default."""
    source = source or f"torch.linalg.{name}"
    return OpSpec(
        name if source == f"torch.linalg.{name}" else source.removeprefix("torch.").replace(".", "_"),
        FAMILY,
        source,
        (of, *params),
        results,
        entries=entries or (source.removeprefix("torch."),),
    )


def _outside(name: str, of: Operand, *params: Operand | Attribute, results: Any = 1) -> OpSpec:
    """A row for the older function of torch itself, whose name may also exist in torch.linalg."""
    spec = _function(name, of, *params, results=results, source=f"torch.{name}")
    return OpSpec(f"torch_{name}", spec.family, spec.source, spec.params, spec.results, entries=(name,))


def _sides(d: Draw) -> Shape:
    """Right-hand sides for the square x: as many rows as x; as many columns where x is on the right."""
    count = d.size(1, 5)
    rest = (d.x.shape[-1], count) if d.attrs.get("left", True) else (count, d.x.shape[-1])
    return (*d.x.shape[:-2], *rest)


def _factor_of(d: Draw) -> Shape:
    """The square matrix for a right-hand side x."""
    return (*d.x.shape[:-1], d.x.shape[-2])


def _pivots(d: Draw) -> Shape:
    return (d.operands[-1].shape[-1],)


def _counted(d: Draw) -> Recipe:
    """Pivots that swap no rows: 1, 2, 3, ..."""
    return Recipe("arange")


_PIVOTS = Operand("pivots", ("i32",), shape=_pivots, recipe=_counted)
_ALONE = Operand("x", WIDE, rank=(2, 2), accepts=is_square, fresh=lambda d: (d.size(1, 8),) * 2, values=("separated",))
_SIDE = Operand("x", WIDE, rank=(2, 2), accepts=_is_small, fresh=lambda d: (d.size(1, 8), d.size(1, 4)))


def _partner(name: str, shape: Callable[[Draw], Shape], *values: str) -> Operand:
    return Operand(name, SAME, shape=shape, values=values)


def _complete(d: Draw) -> Value:
    """The full Q where it is differentiable: for matrices with no more rows than columns."""
    return "complete" if d.x.shape[-2] <= d.x.shape[-1] and d.rng.random() < 0.3 else "reduced"


def _taus(d: Draw) -> Shape:
    return (*d.x.shape[:-2], d.x.shape[-1])


def _reflected(d: Draw) -> Shape:
    """A matrix that Q, with as many rows as x, can multiply from the chosen side."""
    rows, count = d.x.shape[-2], d.size(1, 4)
    return (*d.x.shape[:-2], *((rows, count) if d.attrs["left"] else (count, rows)))


def _norm_order(d: Draw) -> Value:
    """An order of a matrix norm; "nuc", 2 and -2 depend on singular values."""
    return d.rng.choice(("fro", "fro", "nuc", 1, -1, 2, -2, _INF, -_INF))


def _of_one_dim(d: Draw) -> Value:
    """A vector norm's order, along one dimension."""
    return d.rng.choice((None, 2, 1, 3, 0.5, _INF, -_INF))


def _last_two() -> tuple[Attribute, Attribute]:
    """Two distinct dimensions; the last ones by default."""
    first, second = two_dims("dim1", "dim2")
    return replace(first, default=-2), replace(second, default=-1)


def _one_dim(d: Draw) -> Value:
    """One dimension; sometimes None, if that also gives a vector norm."""
    if (d.attrs["ord"] is None or d.x.rank == 1) and d.rng.random() < 0.5:
        return None
    return d.rng.randrange(-d.x.rank, d.x.rank)


def _foldable(d: Draw) -> Shape:
    """(a, b, a * b): a matrix for tensorinv and tensorsolve."""
    a, b = d.size(1, 3), d.size(1, 3)
    return (a, b, a * b)


def _low_rank(name: str, least: int, *attributes: Attribute) -> OpSpec:
    """The `q` largest singular values and their vectors, from a random start; `q` leaves out at least `least` rows."""

    def kept(d: Draw) -> Value:
        return d.rng.randint(1, max(1, min(d.x.shape[-2] - least, d.x.shape[-1])))

    # matrices with orthogonal columns, such as other factorisations return, have equal singular values
    rows = Operand("x", WIDE, shape=lambda d: _matrix(d, d.size(1 + least, 8), d.size(1, 8)), recipe=_separated)
    kept_first = computed("q", "integer", kept)
    return OpSpec(
        name, FAMILY, f"torch.{name}", (rows, kept_first, *attributes, integer("niter", 0, 2, 2)), 3, random=True
    )


_FOLDABLE = Operand("x", WIDE, shape=_foldable, recipe=lambda d: Recipe("normal"))
_SOLVED = _partner("B", _sides)
_LEFT = flag("left", True)

TABLE = (
    _function("cholesky", _DEFINITE, _UPPER),
    _function("cholesky_ex", _SYMMETRIC, _UPPER, results=2),
    _outside("cholesky", _DEFINITE, _UPPER),
    _outside("cholesky_inverse", _SQUARE, _UPPER),
    _outside(
        "cholesky_solve", _operand(_oblong, _is_small), _partner("L", _factor_of, "separated", "near_singular"), _UPPER
    ),
    _function("inv", _REGULAR),
    _function("inv_ex", _SQUARE, results=2),
    _function(
        "pinv", _OBLONG, choice("rtol", None, 0.1, 1e-3, default=None), entries=("linalg.pinv", "linalg.pinv.singular")
    ),
    OpSpec(
        "pinv_hermitian",
        FAMILY,
        "torch.linalg.pinv",
        (_SYMMETRIC, choice("hermitian", True, default=False)),
        entries=("linalg.pinv.hermitian",),
    ),
    _outside("pinverse", _OBLONG, choice("rcond", 1e-15, 1e-3, 0.1, default=1e-15)),
    _function("det", _SQUARE),
    _function("slogdet", _SQUARE, results=2),
    _outside("logdet", _SYMMETRIC),
    _function("matrix_power", _SQUARE, integer("n", -2, 4)),
    _outside("matrix_exp", _operand(square, is_square, "unit", "tiny")),
    _function(
        "matrix_norm",
        _OBLONG,
        computed("ord", "norm", _norm_order, "fro"),
        flag("keepdim", False),
    ),
    OpSpec(
        "linalg_norm",
        FAMILY,
        "torch.linalg.norm",
        (
            Operand(rank=(1, 4), accepts=nonempty, values=("zeros", "normal", "ties")),
            computed("ord", "norm", _of_one_dim, None),
            computed("dim", "dim", _one_dim, None),
            flag("keepdim", False),
        ),
        entries=("linalg.norm", "linalg.norm.subgradients_at_zero"),
    ),
    # with the other norms eager's backward refuses ("modified by an inplace operation", torch 2.11 and 2.13)
    _function("cond", _SQUARE, choice("p", None, 2, -2, "nuc", default=None)),
    _function("qr", _TALL, results=2),
    OpSpec(
        "qr_of_wide",
        FAMILY,
        "torch.linalg.qr",
        (_OBLONG, computed("mode", "choice", _complete, "reduced")),
        results=2,
        entries=("linalg.qr",),
    ),
    _outside("qr", _TALL, results=2),
    _function("svd", _OBLONG, choice("full_matrices", False, default=True), results=3),
    _outside("svd", _OBLONG, results=3),
    _low_rank("svd_lowrank", 0),
    # centred columns span one dimension less
    _low_rank("pca_lowrank", 1, choice("center", True, default=True)),
    _function("svdvals", _OBLONG),
    # eigenvectors have any phase, so that only their absolute values have a gradient
    replace(_function("eig", _SQUARE, results=2), name="eig_abs", then=("torch.abs",)),
    _function("eigh", _SYMMETRIC, _LOWER_OR_UPPER, results=2),
    _function("eigvalsh", _SYMMETRIC, _LOWER_OR_UPPER),
    _function("lu", _OBLONG, results=3),
    _function("lu_factor", _OBLONG, results=2),
    _function("lu_factor_ex", _OBLONG, results=3),
    _outside("lu", _OBLONG, results=2),
    _function("lu_solve", _ALONE, _PIVOTS, _LEFT, _SOLVED, flag("adjoint", False)),
    _outside("lu_solve", _SIDE, _partner("LU", _factor_of, "separated", "near_singular"), _PIVOTS),
    _outside("lu_unpack", _ALONE, _PIVOTS, results=3),
    _function("solve", _REGULAR, _LEFT, _SOLVED),
    _function("solve_ex", _SQUARE, _LEFT, _SOLVED, results=2),
    _function(
        "solve_triangular",
        _operand(square, is_square, "separated", "near_singular"),
        _LEFT,
        _SOLVED,
        flag("upper"),
        flag("unitriangular", False),
    ),
    _outside(
        "triangular_solve",
        _operand(_oblong, _is_small),
        _partner("A", _factor_of, "separated", "near_singular"),
        flag("upper", True),
        flag("transpose", False),
        flag("unitriangular", False),
        results=2,
    ),
    _function("tensorinv", _FOLDABLE, choice("ind", 2, default=2)),
    _function("tensorsolve", _FOLDABLE, _partner("B", lambda d: d.x.shape[:2])),
    _function("householder_product", _TALL, _partner("tau", _taus, "uniform", "normal")),
    _outside(
        "ormqr",
        _TALL,
        flag("left", True),
        flag("transpose", False),
        _partner("tau", _taus, "uniform", "normal"),
        _partner("other", _reflected),
    ),
    _function("vander", Operand("x", WIDE, rank=(1, 2), accepts=nonempty, values=("unit",)), integer("N", 2, 5)),
    OpSpec(
        "linalg_diagonal",
        FAMILY,
        "torch.linalg.diagonal",
        (Operand("A", rank=(2, 5), keyword="A"), integer("offset", -2, 2, 0), *_last_two()),
        entries=("linalg.diagonal",),
    ),
)
