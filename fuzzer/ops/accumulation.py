"""Writes at indices that may repeat, and reductions of segments."""

from __future__ import annotations

from fuzzer.ops.scatter import any_rows, rows
from fuzzer.ops.spec import (
    BOOL,
    INDEX,
    SAME,
    Draw,
    Operand,
    OpSpec,
    below_extent,
    choice,
    dim,
    flag,
    nonempty,
)
from fuzzer.program import Recipe, Shape

FAMILY = "accumulation"

TIES = ("ties", "integers", "normal")


def places(d: Draw) -> Shape:
    """Distinct places where writes replace, any number of them where they accumulate."""
    return (d.size(1, 12) if d.attrs["accumulate"] else d.rng.randint(1, min(d.x.numel, 12)),)


def place(d: Draw) -> Recipe:
    return Recipe("below" if d.attrs["accumulate"] else "permutation", (d.x.numel,))


def like_mask(d: Draw) -> Shape:
    return d.operands[1].shape


def along(d: Draw) -> Shape:
    """Two index tensors that broadcast to the mask: (n, 1), then (1, m)."""
    n, m = d.operands[1].shape
    return (1, m) if d.operands[-1] else (n, 1)


def each_way(d: Draw) -> Recipe:
    return Recipe("below", (min(d.x.shape),))


MATRIX = Operand(rank=(2, 2), accepts=nonempty)
MASK = Operand("mask", BOOL, shape=lambda d: (d.size(1, 10), d.size(1, 10)))
INDICES = Operand("indices", INDEX, shape=along, recipe=each_way, count=(2, 2))

TABLE = (
    OpSpec(
        "index_reduce",
        FAMILY,
        "torch.index_reduce",
        (
            Operand(rank=(1, 5), accepts=nonempty, values=TIES),
            dim(),
            Operand("index", INDEX, shape=any_rows, recipe=below_extent, keyword="index"),
            Operand("source", SAME, shape=rows, keyword="source", values=TIES),
            choice("reduce", "prod", "mean", "amax", "amin"),
            flag("include_self", True),
        ),
        entries=tuple(f"index_reduce.{mode}" for mode in ("prod", "mean", "amax", "amin")),
    ),
    OpSpec(
        "put",
        FAMILY,
        "torch.put",
        (
            Operand(accepts=nonempty),
            flag("accumulate", False),
            Operand("index", INDEX, shape=places, recipe=place),
            Operand("source", SAME, shape=lambda d: d.operands[1].shape),
        ),
    ),
    OpSpec(
        "masked_index",
        FAMILY,
        "torch._unsafe_masked_index",
        (MATRIX, MASK, INDICES, choice("fill", 0.0, -2.5, 1.0)),
        entries=("_unsafe_masked_index",),
    ),
    OpSpec(
        "masked_index_put_accumulate",
        FAMILY,
        "torch._unsafe_masked_index_put_accumulate",
        (MATRIX, MASK, INDICES, Operand("values", SAME, shape=like_mask)),
        entries=("_unsafe_masked_index_put_accumulate",),
    ),
)
