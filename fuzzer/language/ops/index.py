"""Reading elements by index or mask."""

from __future__ import annotations

from fuzzer.language.ops.spec import (
    BOOL,
    INDEX,
    SAME,
    Draw,
    Operand,
    OpSpec,
    below_extent,
    broadcast,
    choice,
    dim,
    expandable,
    like,
    nonempty,
    replaced,
)
from fuzzer.language.program import Recipe, Shape

FAMILY = "index"


def _gathered(d: Draw) -> Shape:
    """A shape of at most x's sizes, except along dim, where any size is allowed."""
    if not d.x.rank:
        return ()
    shape = tuple(d.rng.choice((size, d.rng.randint(1, size))) for size in d.x.shape)
    return replaced(shape, d.dim(), d.size(0, 12))


def _along(d: Draw) -> Shape:
    """x's sizes, except along dim; 1 broadcasts."""
    shape = tuple(1 if d.rng.random() < 0.15 else size for size in d.x.shape)
    return replaced(shape, d.dim(), d.size(1, 12))


def _positions(d: Draw) -> Shape:
    """Any small shape."""
    return tuple(d.size(1, 6) for _ in range(d.rng.choice((0, *[1, 2] * 12))))


def _list_of_indices(d: Draw) -> Shape:
    """(n,): one index after another."""
    return (d.size(0, 12),)


def _together(d: Draw) -> Shape:
    """One shape for several index tensors, or size 1 for one of them."""
    drawn = d.operands[-1]
    if not drawn:
        return _positions(d)
    return drawn[0].shape if d.rng.random() < 0.8 else (1,) * drawn[0].rank


def _both_ways(d: Draw) -> Recipe:
    """Indices valid in each of the (at most two) leading dimensions, also counted from the end."""
    least = min(d.x.shape[:2])
    return Recipe("between", (-least, least - 1)) if d.rng.random() < 0.5 else Recipe("below", (least,))


def _first_dimension(d: Draw) -> Recipe:
    """Indices valid along the first dimension, also counted from the end."""
    size = d.x.shape[0]
    return Recipe("between", (-size, size - 1))


TABLE = (
    OpSpec(
        "gather",
        FAMILY,
        "torch.gather",
        (
            Operand(accepts=nonempty),
            dim(),
            Operand("index", INDEX, shape=_gathered, recipe=below_extent, keyword="index"),
        ),
    ),
    OpSpec(
        "index_select",
        FAMILY,
        "torch.index_select",
        (
            Operand(rank=(1, 5), accepts=nonempty),
            dim(),
            Operand("index", ("i64", "i32"), shape=_list_of_indices, recipe=below_extent, keyword="index"),
        ),
    ),
    OpSpec(
        "take",
        FAMILY,
        "torch.take",
        (
            Operand(accepts=nonempty),
            Operand("index", INDEX, shape=_positions, recipe=lambda d: Recipe("below", (d.x.numel,))),
        ),
    ),
    OpSpec(
        "take_along_dim",
        FAMILY,
        "torch.take_along_dim",
        (
            Operand(rank=(1, 5), accepts=nonempty),
            dim(),
            Operand("indices", INDEX, shape=_along, recipe=below_extent, keyword="indices"),
        ),
    ),
    OpSpec(
        "getitem",
        FAMILY,
        "torch.Tensor.__getitem__",
        (Operand(rank=(1, 5), accepts=nonempty), Operand("index", INDEX, shape=_positions, recipe=_first_dimension)),
        entries=("__getitem__",),
    ),
    OpSpec(
        "index",
        FAMILY,
        "torch.ops.aten.index.Tensor",
        (
            Operand(rank=(2, 5), accepts=nonempty),
            Operand("indices", INDEX, shape=_together, recipe=_both_ways, count=(1, 2)),
        ),
    ),
    OpSpec(
        "masked_fill",
        FAMILY,
        "torch.masked_fill",
        (
            Operand(),
            Operand("mask", BOOL, shape=broadcast),
            choice("value", 0, 0.0, 1.0, -2.5, float("-inf")),
        ),
    ),
    OpSpec(
        "masked_scatter",
        FAMILY,
        "torch.masked_scatter",
        # the source has as many elements as x, so it suffices for any mask
        (
            Operand(),
            Operand("mask", BOOL, shape=lambda d: expandable(d, d.x.shape)),
            Operand("source", SAME, shape=like),
        ),
    ),
)
