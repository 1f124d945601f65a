"""Ops that write one tensor into a part of another.

If torch does not define which of several writes to one place wins, indices are distinct; where writes accumulate they
may repeat.
"""

from __future__ import annotations

from typing import Any

from fuzzer.language.ops.spec import (
    INDEX,
    SAME,
    Draw,
    Operand,
    OpSpec,
    below_extent,
    choice,
    computed,
    dim,
    distinct_extent,
    expandable,
    extent_of,
    flag,
    integer,
    nonempty,
    real,
    replaced,
)
from fuzzer.language.ops.view import slice_end, slice_start, two_dims
from fuzzer.language.program import Recipe, Shape

FAMILY = "scatter"


def _sliced(d: Draw) -> Shape:
    """The shape of x[start:end:step] along dim."""
    bounds: tuple[Any, ...] = (d.attrs["start"], d.attrs["end"], d.attrs["step"])
    kept = len(range(extent_of(d))[slice(*bounds)])
    return replaced(d.x.shape, d.dim(), kept)


def _selected(d: Draw) -> Shape:
    """The shape of x without dim."""
    return replaced(d.x.shape, d.dim())


def _on_diagonal(d: Draw) -> Shape:
    """The shape of x.diagonal(offset, dim1, dim2)."""
    rank = d.x.rank
    first, second = int(d.attrs["dim1"]) % rank, int(d.attrs["dim2"]) % rank  # type: ignore[arg-type]
    offset = int(d.attrs["offset"])  # type: ignore[arg-type]
    length = min(d.x.shape[first] + min(offset, 0), d.x.shape[second] - max(offset, 0))
    return (*(size for i, size in enumerate(d.x.shape) if i not in (first, second)), max(length, 0))


def _part(d: Draw) -> Shape:
    """An index for scatter: at most x's sizes, except along dim, where it may be longer."""
    if not d.x.rank:
        return ()
    shape = tuple(d.rng.choice((size, d.rng.randint(1, size))) for size in d.x.shape)
    return replaced(shape, d.dim(), d.size(1, 12))


def _distinct_part(d: Draw) -> Shape:
    """An index for scatter whose entries can be distinct along dim: dim is the last, or has one entry."""
    if not d.x.rank:
        return ()
    shape = tuple(d.rng.choice((size, d.rng.randint(1, size))) for size in d.x.shape)
    return shape if d.dim() == d.x.rank - 1 else replaced(shape, d.dim(), 1)


def _distinct_part_recipe(d: Draw) -> Recipe:
    last = d.x.rank > 0 and d.dim() == d.x.rank - 1
    return distinct_extent(d) if last else below_extent(d)


def _like_index(d: Draw) -> Shape:
    """The shape of the index (the operand before it): forward takes larger sources too, backward does not."""
    return d.operands[1].shape


def _some_rows(d: Draw) -> Shape:
    """(n,), n at most the size of dim."""
    return (d.rng.randint(0, min(extent_of(d), 16)),)


def any_rows(d: Draw) -> Shape:
    """(n,), n sometimes larger than the size of dim."""
    return (d.size(0, 16),)


def rows(d: Draw) -> Shape:
    """x's shape with the index's length along dim."""
    return replaced(d.x.shape, d.dim(), d.operands[1].shape[0])


def _put_index(d: Draw) -> Shape:
    """One shape for all index tensors; a vector no longer than the indexed sizes where they must be distinct."""
    drawn = d.operands[-1]
    if drawn:
        return drawn[0].shape
    if d.attrs["accumulate"]:
        return tuple(d.size(1, 8) for _ in range(d.rng.randint(1, 2)))
    return (d.rng.randint(1, min(d.x.shape[:2])),)


def _put_recipe(d: Draw) -> Recipe:
    least = min(d.x.shape[:2])
    if not d.attrs["accumulate"]:
        return Recipe("permutation", (least,))
    return Recipe("between", (-least, least - 1)) if d.rng.random() < 0.4 else Recipe("below", (least,))


def _put_values(d: Draw) -> Shape:
    indices = d.operands[1]
    return expandable(d, (*indices[0].shape, *d.x.shape[len(indices) :]))


_INPUT = Operand(accepts=nonempty)
_ROWS = Operand(rank=(1, 5), accepts=nonempty)

TABLE = (
    OpSpec(
        "slice_scatter",
        FAMILY,
        "torch.slice_scatter",
        (
            Operand(rank=(1, 5)),
            dim(default=0),
            computed("start", "integer", slice_start, None),
            computed("end", "integer", slice_end, None),
            integer("step", 1, 3, default=1),
            Operand("src", SAME, shape=_sliced),
        ),
    ),
    OpSpec(
        "select_scatter",
        FAMILY,
        "torch.select_scatter",
        (
            _ROWS,
            dim(),
            integer("index", lambda d: -extent_of(d), lambda d: extent_of(d) - 1),
            Operand("src", SAME, shape=_selected),
        ),
    ),
    OpSpec(
        "diagonal_scatter",
        FAMILY,
        "torch.diagonal_scatter",
        (
            Operand(rank=(2, 5)),
            integer("offset", -2, 2, 0),
            *two_dims("dim1", "dim2"),
            Operand("src", SAME, shape=_on_diagonal),
        ),
    ),
    OpSpec(
        "scatter",
        FAMILY,
        "torch.scatter",
        (
            _INPUT,
            dim(),
            Operand("index", INDEX, shape=_distinct_part, recipe=_distinct_part_recipe, keyword="index"),
            Operand("src", SAME, shape=_like_index, keyword="src"),
        ),
    ),
    OpSpec(
        "scatter_add",
        FAMILY,
        "torch.scatter_add",
        (
            _INPUT,
            dim(),
            Operand("index", INDEX, shape=_part, recipe=below_extent, keyword="index"),
            Operand("src", SAME, shape=_like_index, keyword="src"),
        ),
    ),
    OpSpec(
        "scatter_reduce",
        FAMILY,
        "torch.scatter_reduce",
        (
            Operand(accepts=nonempty, values=("ties", "integers", "normal")),
            dim(),
            Operand("index", INDEX, shape=_part, recipe=below_extent, keyword="index"),
            Operand("src", SAME, shape=_like_index, keyword="src", values=("ties", "integers")),
            choice("reduce", "sum", "prod", "mean", "amax", "amin"),
            flag("include_self", True),
        ),
        entries=tuple(f"scatter_reduce.{mode}" for mode in ("sum", "prod", "mean", "amax", "amin")),
    ),
    OpSpec(
        "index_add",
        FAMILY,
        "torch.index_add",
        (
            _ROWS,
            dim(),
            Operand("index", INDEX, shape=any_rows, recipe=below_extent, keyword="index"),
            Operand("source", SAME, shape=rows, keyword="source"),
            real("alpha", -2, 2, (1.0, 0.0, 0.5), 1.0),
        ),
    ),
    OpSpec(
        "index_copy",
        FAMILY,
        "torch.index_copy",
        (
            _ROWS,
            dim(),
            Operand("index", INDEX, shape=_some_rows, recipe=distinct_extent, keyword="index"),
            Operand("source", SAME, shape=rows, keyword="source"),
        ),
    ),
    OpSpec(
        "index_fill",
        FAMILY,
        "torch.index_fill",
        (
            _ROWS,
            dim(),
            Operand("index", INDEX, shape=any_rows, recipe=below_extent, keyword="index"),
            choice("value", 0.0, 1.0, -2.5),
        ),
    ),
    OpSpec(
        "index_put",
        FAMILY,
        "torch.index_put",
        (
            Operand(rank=(2, 5), accepts=nonempty),
            flag("accumulate", False),
            Operand("indices", INDEX, shape=_put_index, recipe=_put_recipe, count=(1, 2)),
            Operand("values", SAME, shape=_put_values),
        ),
    ),
)
