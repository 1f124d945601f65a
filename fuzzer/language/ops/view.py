"""Other views of the same elements, some with several results."""

from __future__ import annotations

import math

from fuzzer.language.ops.spec import (
    FROM_SOURCE,
    SAME,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    broadcast,
    computed,
    dense,
    dim,
    extent_of,
    integer,
    nonempty,
)
from fuzzer.language.program import FLOATS, Shape, Value

FAMILY = "view"


def _factors(d: Draw, number: int) -> Shape:
    """Sizes whose product is `number`, sometimes with a 1."""
    sizes: list[int] = []
    while number > 1 and len(sizes) < d.limits.max_rank - 1:
        divisors = [k for k in range(1, min(number, 128) + 1) if number % k == 0]
        sizes.append(d.rng.choice(divisors))
        number //= sizes[-1]
        if d.rng.random() < 0.3:
            break
    if number != 1 or not sizes or d.rng.random() < 0.1:
        sizes.append(number)
    d.rng.shuffle(sizes)
    return tuple(sizes)


def _reshaped(d: Draw) -> Value:
    """Another shape with as many elements; sometimes a -1 stands for one size."""
    if d.x.numel == 0:
        return d.x.shape[::-1]
    if d.x.numel == 1:
        return (1,) * d.rng.randint(0, 3)
    sizes = list(_factors(d, d.x.numel))
    if d.rng.random() < 0.25:
        sizes[d.rng.randrange(len(sizes))] = -1
    return tuple(sizes)


def _viewed(d: Draw) -> Value:
    """A shape that `_view` can have whatever the strides: any dimension splits, neighbours merge if they are one run of
    memory."""
    runs: list[int] = []
    for i, size in enumerate(d.x.shape):
        follows = i > 0 and d.x.stride[i - 1] == d.x.stride[i] * size
        if follows and d.rng.random() < 0.6:
            runs[-1] *= size
        else:
            runs.append(size)
    sizes = [part for run in runs for part in (_factors(d, run) if d.rng.random() < 0.4 and run > 1 else (run,))]
    if len(sizes) > d.limits.max_rank:
        return d.x.shape
    if sizes and d.x.numel > 1 and d.rng.random() < 0.2:
        sizes[d.rng.randrange(len(sizes))] = -1
    return tuple(sizes)


def _order(d: Draw) -> Value:
    """A permutation of all dimensions, some negative."""
    rank = d.x.rank
    return tuple(i - rank if d.rng.random() < 0.2 else i for i in d.rng.sample(range(rank), rank))


def _expanded(d: Draw) -> Value:
    """Sizes of 1 grow or stay (also written -1), and leading dimensions appear."""
    room = max(1, d.limits.max_numel // max(d.x.numel, 1))
    sizes: list[int] = []
    for size in d.x.shape:
        if size == 1 and d.rng.random() < 0.8:
            size = d.size(1, min(room, 16))
            room //= size
        elif d.rng.random() < 0.3:
            size = -1
        sizes.append(size)
    if len(sizes) < d.limits.max_rank and d.rng.random() < 0.4:
        sizes.insert(0, d.size(1, max(1, min(room, 8))))
    return tuple(sizes)


def _with_ones(d: Draw) -> Shape:
    """A shape with a dimension or two of size 1, on which expand and squeeze act."""
    shape = [d.size(1, 16) for _ in range(d.rng.randint(0, 3))]
    for _ in range(d.rng.randint(1, 2)):
        shape.insert(d.rng.randint(0, len(shape)), 1)
    return tuple(shape)


def _later(d: Draw) -> Value:
    """A dimension at or after start_dim."""
    rank = max(d.x.rank, 1)
    chosen = d.rng.randint(int(d.attrs["start_dim"]) % rank, rank - 1)  # type: ignore[arg-type]
    return chosen - rank if d.rng.random() < 0.5 else chosen


def _unflattened(d: Draw) -> Value:
    size = extent_of(d)
    return _factors(d, size) if size > 1 else (size, 1) if d.rng.random() < 0.5 else (1, size)


def _pieces(d: Draw) -> Value:
    """One or several dimensions for squeeze; torch ignores those of sizes other than 1."""
    if d.x.rank == 0:
        return 0
    if d.rng.random() < 0.6:
        return d.rng.randrange(-d.x.rank, d.x.rank)
    return tuple(sorted(d.rng.sample(range(d.x.rank), d.rng.randint(1, d.x.rank))))


def two_dims(first: str, second: str) -> tuple[Attribute, Attribute]:
    """Two distinct dimensions, defaults 0 and 1."""

    def other(d: Draw) -> Value:
        taken = int(d.attrs[first]) % d.x.rank  # type: ignore[arg-type]
        return d.rng.choice([i - shift for i in range(d.x.rank) if i != taken for shift in (0, d.x.rank)])

    return dim(first, 0), computed(second, "dim", other, 1)


def _sizes_inside(d: Draw) -> Value:
    """A shape for as_strided, small enough to leave room for strides; x's own where x has gaps."""
    if not dense(d.x):
        return d.x.shape
    room = d.x.numel
    sizes = []
    for _ in range(d.rng.randint(0, 3)):
        sizes.append(d.size(1, min(8, max(room, 1))))
        room //= sizes[-1]
    return tuple(sizes)


def _strides_inside(d: Draw) -> Value:
    """Strides that stay inside the elements of x; overlaps and strides of 0 are legal and useful."""
    if not dense(d.x):
        return d.x.stride
    sizes: Shape = d.attrs["size"]  # type: ignore[assignment]
    room = d.x.numel - 1
    strides = []
    for size in sizes:
        strides.append(d.rng.randint(0, min(room // (size - 1), 16)) if size > 1 else d.rng.randint(0, 3))
        room -= (size - 1) * strides[-1]
    return tuple(strides)


def _offset_inside(d: Draw) -> Value:
    """None (x's own), or an offset for which the drawn sizes and strides leave room."""
    if not dense(d.x) or d.rng.random() < 0.5:
        return None
    sizes: Shape = d.attrs["size"]  # type: ignore[assignment]
    strides: Shape = d.attrs["stride"]  # type: ignore[assignment]
    reach = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    return d.rng.randint(0, d.x.numel - 1 - reach)


def slice_start(d: Draw) -> Value:
    size = extent_of(d)
    return d.rng.choice((None, 0, d.rng.randint(0, size), d.rng.randint(0, size), -d.rng.randint(0, size)))


def slice_end(d: Draw) -> Value:
    size = extent_of(d)
    return d.rng.choice((None, size, d.rng.randint(0, size), d.rng.randint(0, size), -d.rng.randint(1, size + 1)))


def _as_reshaped(d: Draw) -> Shape:
    """The shape that `_reshaped` requests."""
    return d.x.shape[::-1] if d.x.numel == 0 else _solved(_reshaped(d), d.x.numel)


def _as_viewed(d: Draw) -> Shape:
    return _solved(_viewed(d), d.x.numel)


def _as_expanded(d: Draw) -> Shape:
    """The shape that `_expanded` requests, its -1 replaced by x's own sizes."""
    sizes: Shape = _expanded(d)  # type: ignore[assignment]
    own = (1,) * (len(sizes) - d.x.rank) + d.x.shape
    return tuple(mine if size == -1 else size for size, mine in zip(sizes, own, strict=True))


def _solved(shape: Value, number: int) -> Shape:
    """A shape of `number` elements with its -1, if any, replaced by the size."""
    sizes: Shape = shape  # type: ignore[assignment]
    known = math.prod(size for size in sizes if size != -1)
    return tuple(number // known if size == -1 else size for size in sizes)


def _view(
    name: str,
    *attributes: Attribute,
    source: str = "",
    rank: tuple[int, int] = (0, 5),
    entries: tuple[str, ...] = FROM_SOURCE,
) -> OpSpec:
    return OpSpec(name, FAMILY, source or f"torch.{name}", (Operand(rank=rank), *attributes), entries=entries)


# for expand: a 0-dim tensor, or sizes of 1
_SMALL = Operand(accepts=lambda t: 1 in t.shape or not t.shape, fresh=_with_ones)


_SOME_EXTENT = Operand(rank=(1, 5), accepts=nonempty)

TABLE = (
    _view("reshape", computed("shape", "shape", _reshaped)),
    _view("view", computed("size", "shape", _viewed), source="torch.Tensor.view"),
    _view("transpose", dim("dim0"), dim("dim1")),
    _view("t", rank=(0, 2)),
    _view("T", source="torch.Tensor.T", rank=(2, 2)),
    _view("H", source="torch.Tensor.H", rank=(2, 2)),
    _view("mT", source="torch.Tensor.mT", rank=(2, 5)),
    _view("mH", source="torch.Tensor.mH", rank=(2, 5)),
    _view("ravel"),
    *(_view(f"atleast_{rank}d", rank=(0, 4)) for rank in (1, 2, 3)),
    OpSpec("reshape_as", FAMILY, "torch.Tensor.reshape_as", (Operand(), Operand("other", SAME, shape=_as_reshaped))),
    OpSpec("view_as", FAMILY, "torch.Tensor.view_as", (Operand(), Operand("other", SAME, shape=_as_viewed))),
    OpSpec("expand_as", FAMILY, "torch.Tensor.expand_as", (_SMALL, Operand("other", SAME, shape=_as_expanded))),
    OpSpec("broadcast_to", FAMILY, "torch.broadcast_to", (_SMALL, computed("size", "shape", _expanded))),
    OpSpec(
        "broadcast_tensors",
        FAMILY,
        "torch.broadcast_tensors",
        (_SMALL, Operand("other", FLOATS, shape=broadcast)),
        results=2,
    ),
    _view("permute", computed("dims", "dims", _order)),
    OpSpec("expand", FAMILY, "torch.Tensor.expand", (_SMALL, computed("size", "shape", _expanded))),
    _view(
        "narrow",
        dim(),
        integer("start", 0, extent_of),
        integer("length", 0, lambda d: extent_of(d) - int(d.attrs["start"])),  # type: ignore[arg-type]
        rank=(1, 5),
    ),
    _view(
        "slice",
        dim(default=0),
        computed("start", "integer", slice_start, None),
        computed("end", "integer", slice_end, None),
        integer("step", 1, 3, 1),
        source="torch.ops.aten.slice.Tensor",
        rank=(1, 5),
        entries=("slice",),
    ),
    OpSpec(
        "select",
        FAMILY,
        "torch.select",
        (_SOME_EXTENT, dim(), integer("index", lambda d: -extent_of(d), lambda d: extent_of(d) - 1)),
    ),
    _view("unsqueeze", dim(extra=1), rank=(0, 4)),
    OpSpec(
        "squeeze",
        FAMILY,
        "torch.squeeze",
        (Operand(fresh=_with_ones), computed("dim", "dims", _pieces)),
        entries=("squeeze", "squeeze.multiple"),
    ),
    _view("flatten", dim("start_dim", 0), computed("end_dim", "dim", _later, -1)),
    _view("unflatten", dim(), computed("sizes", "shape", _unflattened), rank=(1, 4)),
    _view("movedim", dim("source"), dim("destination"), rank=(1, 5)),
    _view("diagonal", integer("offset", -2, 2, 0), *two_dims("dim1", "dim2"), rank=(2, 5)),
    OpSpec("detach", FAMILY, "torch.detach", (Operand(),), 1, differentiable=False, entries=(), tells=True),
    OpSpec(
        "unfold",
        FAMILY,
        "torch.Tensor.unfold",
        (
            Operand(rank=(1, 4), accepts=nonempty),
            dim("dimension"),
            integer(
                "size",
                1,
                lambda d: min(d.x.shape[int(d.attrs["dimension"])], 6),  # type: ignore[arg-type]
                beyond=lambda d: 0,
            ),
            integer("step", 1, 4),
        ),
    ),
    OpSpec(
        "as_strided",
        FAMILY,
        "torch.as_strided",
        (
            Operand(accepts=nonempty),
            computed("size", "shape", _sizes_inside),
            computed("stride", "shape", _strides_inside),
            computed("storage_offset", "integer", _offset_inside, None),
        ),
        entries=("as_strided", "as_strided.partial_views"),
    ),
)
