"""Ops that split a tensor into several views."""

from __future__ import annotations

import math
from collections.abc import Callable

from fuzzer.language.ops.spec import Draw, Operand, OpSpec, computed, dim, extent_of, integer, nonempty
from fuzzer.language.program import Shape, Value

FAMILY = "split"


def _divided(d: Draw) -> Value:
    """A dimension of size 2 or more: a single piece would come as a tuple of one, which is unusual in programs."""
    chosen = d.rng.choice([i for i, size in enumerate(d.x.shape) if size > 1])
    return chosen - d.x.rank if d.rng.random() < 1 / 3 else chosen


def _count_of_pieces(d: Draw) -> int:
    return math.ceil(extent_of(d) / int(d.attrs["split_size_or_sections"]))  # type: ignore[arg-type]


def _count_of_chunks(d: Draw) -> int:
    """The number of pieces of torch.chunk, which may be smaller than requested: all but the last have ceil(size /
    chunks)."""
    chunks = int(d.attrs["chunks"])  # type: ignore[arg-type]
    return math.ceil(extent_of(d) / math.ceil(extent_of(d) / chunks))


def _sections(d: Draw) -> Value:
    """Sizes that add up to the size of dim, sometimes with a zero."""
    left = extent_of(d)
    parts = []
    for _ in range(d.rng.randint(1, 3)):
        parts.append(d.rng.randint(0, left))
        left -= parts[-1]
    return (*parts, left)


def _few(d: Draw) -> Value:
    """A dimension of size 2 to 4, so that unbind gives a handful of results."""
    return d.rng.choice([i for i, size in enumerate(d.x.shape) if 2 <= size <= 4])


def _with_few(d: Draw) -> Shape:
    shape = [d.size(1, 12) for _ in range(d.rng.randint(0, 3))]
    shape.insert(d.rng.randint(0, len(shape)), d.rng.randint(2, 4))
    return tuple(shape)


def _cut(d: Draw, size: int) -> Value:
    """Places to cut `size` at, in order; they may repeat or be beyond the end."""
    return tuple(sorted(d.rng.randint(0, size + 1) for _ in range(d.rng.randint(1, 3))))


def _cuts_along(at: int) -> Callable[[Draw], Value]:
    """Places along dimension `at` (hsplit cuts a vector along its only one)."""
    return lambda d: _cut(d, d.x.shape[min(at, d.x.rank - 1)])


def _count_of_cuts(d: Draw) -> int:
    return len(d.attrs["indices"]) + 1  # type: ignore[arg-type]


_SOME_EXTENT = Operand(rank=(1, 5), accepts=nonempty)
_DIVISIBLE = Operand(rank=(1, 5), accepts=lambda t: t.numel > 0 and max(t.shape) > 1)

TABLE = (
    OpSpec(
        "split",
        FAMILY,
        "torch.split",
        (
            _DIVISIBLE,
            computed("dim", "dim", _divided, 0),
            integer("split_size_or_sections", lambda d: math.ceil(extent_of(d) / 5), lambda d: extent_of(d) - 1),
        ),
        results=_count_of_pieces,
    ),
    OpSpec(
        "split_sections",
        FAMILY,
        "torch.split",
        (_DIVISIBLE, computed("dim", "dim", _divided, 0), computed("split_size_or_sections", "shape", _sections)),
        results=lambda d: len(d.attrs["split_size_or_sections"]),  # type: ignore[arg-type]
        entries=("split.list_args",),
    ),
    OpSpec(
        "split_with_sizes",
        FAMILY,
        "torch.split_with_sizes",
        (_DIVISIBLE, computed("dim", "dim", _divided, 0), computed("split_sizes", "shape", _sections)),
        results=lambda d: len(d.attrs["split_sizes"]),  # type: ignore[arg-type]
    ),
    OpSpec(
        "unsafe_split",
        FAMILY,
        "torch.unsafe_split",
        (
            _DIVISIBLE,
            computed("dim", "dim", _divided, 0),
            integer("split_size", lambda d: math.ceil(extent_of(d) / 5), lambda d: extent_of(d) - 1),
        ),
        results=lambda d: math.ceil(extent_of(d) / int(d.attrs["split_size"])),  # type: ignore[arg-type]
    ),
    OpSpec(
        "unsafe_chunk",
        FAMILY,
        "torch.unsafe_chunk",
        (_DIVISIBLE, computed("dim", "dim", _divided, 0), integer("chunks", 2, 5)),
        results=_count_of_chunks,
    ),
    OpSpec(
        "tensor_split",
        FAMILY,
        "torch.tensor_split",
        (_SOME_EXTENT, dim(default=0), computed("indices", "shape", lambda d: _cut(d, extent_of(d)))),
        results=_count_of_cuts,
    ),
    OpSpec(
        "tensor_split_even",
        FAMILY,
        "torch.tensor_split",
        # sometimes more pieces than elements
        (_SOME_EXTENT, dim(default=0), integer("sections", 2, 4)),
        results=lambda d: int(d.attrs["sections"]),  # type: ignore[arg-type]
    ),
    *(
        OpSpec(
            name,
            FAMILY,
            f"torch.{name}",
            (Operand(rank=(rank, 5), accepts=nonempty), computed("indices", "shape", _cuts_along(at))),
            results=_count_of_cuts,
        )
        for name, rank, at in (("hsplit", 1, 1), ("vsplit", 2, 0), ("dsplit", 3, 2))
    ),
    OpSpec(
        "chunk",
        FAMILY,
        "torch.chunk",
        (_DIVISIBLE, computed("dim", "dim", _divided, 0), integer("chunks", 2, 5)),
        results=_count_of_chunks,
    ),
    OpSpec(
        "unbind",
        FAMILY,
        "torch.unbind",
        (
            Operand(
                rank=(1, 4),
                accepts=lambda t: t.numel > 0 and any(2 <= size <= 4 for size in t.shape),
                fresh=_with_few,
            ),
            computed("dim", "dim", _few, 0),
        ),
        results=extent_of,
    ),
)
