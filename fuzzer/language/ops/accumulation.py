"""Writes at indices that may repeat, and reductions of segments."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from fuzzer.language.ops.scatter import any_rows, rows
from fuzzer.language.ops.spec import (
    BOOL,
    INDEX,
    SAME,
    Draw,
    Operand,
    OpSpec,
    below_extent,
    choice,
    computed,
    dim,
    flag,
    nonempty,
)
from fuzzer.language.program import Recipe, Shape, Value

FAMILY = "accumulation"

_TIES = ("ties", "integers", "normal")


def _places(d: Draw) -> Shape:
    """Distinct indices where writes replace, any number of indices where they accumulate."""
    return (d.size(1, 12) if d.attrs["accumulate"] else d.rng.randint(1, min(d.x.numel, 12)),)


def _place(d: Draw) -> Recipe:
    return Recipe("below" if d.attrs["accumulate"] else "permutation", (d.x.numel,))


def _like_mask(d: Draw) -> Shape:
    return d.operands[1].shape


def _along(d: Draw) -> Shape:
    """Two index tensors that broadcast to the mask: (n, 1), then (1, m)."""
    n, m = d.operands[1].shape
    return (1, m) if d.operands[-1] else (n, 1)


def _each_way(d: Draw) -> Recipe:
    return Recipe("below", (min(d.x.shape),))


def _small(d: Draw) -> Shape:
    return tuple(d.size(1, 8) for _ in range(d.rng.randint(1, 3)))


def _corner(d: Draw) -> Value:
    """Some of the first elements along each dimension."""
    return tuple(d.rng.randint(1, size) for size in d.x.shape)


_SEGMENTS = 3


def _many(extra: int) -> Callable[[Draw], Shape]:
    return lambda d: (_SEGMENTS + extra,)


def _offsets(d: Draw) -> Recipe:
    """From 0 to the number of rows, in order; a segment may be empty."""
    rows = d.x.shape[0]
    return Recipe("data", (0, *sorted(d.rng.randint(0, rows) for _ in range(_SEGMENTS - 1)), rows))


def _lengths(d: Draw) -> Recipe:
    """Lengths that add up to the number of rows."""
    ends: tuple[int, ...] = _offsets(d).args  # type: ignore[assignment]
    return Recipe("data", tuple(end - start for start, end in itertools.pairwise(ends)))


_MATRIX = Operand(rank=(2, 2), accepts=nonempty)
_MASK = Operand("mask", BOOL, shape=lambda d: (d.size(1, 10), d.size(1, 10)))
_INDICES = Operand("indices", INDEX, shape=_along, recipe=_each_way, count=(2, 2))

TABLE = (
    OpSpec(
        "index_reduce",
        FAMILY,
        "torch.index_reduce",
        (
            Operand(rank=(1, 5), accepts=nonempty, values=_TIES),
            dim(),
            Operand("index", INDEX, shape=any_rows, recipe=below_extent, keyword="index"),
            Operand("source", SAME, shape=rows, keyword="source", values=_TIES),
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
            Operand("index", INDEX, shape=_places, recipe=_place),
            Operand("source", SAME, shape=lambda d: d.operands[1].shape),
        ),
    ),
    OpSpec(
        "as_strided_scatter",
        FAMILY,
        "torch.as_strided_scatter",
        (
            # eager refuses other layouts where they require grad (an internal assertion, torch 2.11 and 2.13)
            Operand(shape=_small, recipe=lambda d: Recipe("normal")),
            computed("size", "shape", _corner),
            computed("stride", "shape", lambda d: d.x.stride),
            Operand("src", SAME, shape=lambda d: d.attrs["size"], keyword="src"),  # type: ignore[arg-type,return-value]
        ),
    ),
    *(
        OpSpec(
            f"segment_reduce_{name}",
            FAMILY,
            "torch.segment_reduce",
            (
                Operand(rank=(1, 3), accepts=nonempty, values=_TIES),
                Operand(name, INDEX, shape=_many(extra), recipe=cut, keyword=name),
                choice("reduce", "sum", "mean", "max", "min", "prod"),
                choice("initial", None, 1, 2, default=None),
                flag("unsafe", False),
            ),
            entries=(f"_segment_reduce.{name}",),
        )
        for name, extra, cut in (("lengths", 0, _lengths), ("offsets", 1, _offsets))
    ),
    OpSpec(
        "masked_index",
        FAMILY,
        "torch._unsafe_masked_index",
        (_MATRIX, _MASK, _INDICES, choice("fill", 0.0, -2.5, 1.0)),
        entries=("_unsafe_masked_index",),
    ),
    OpSpec(
        "masked_index_put_accumulate",
        FAMILY,
        "torch._unsafe_masked_index_put_accumulate",
        (_MATRIX, _MASK, _INDICES, Operand("values", SAME, shape=_like_mask)),
        entries=("_unsafe_masked_index_put_accumulate",),
    ),
)
