"""Copies of the elements in another order, number or arrangement."""

from __future__ import annotations

from fuzzer.language.ops.spec import Attribute, Draw, Operand, OpSpec, computed, dim, dims, integer
from fuzzer.language.program import Value

FAMILY = "layout"


def _layout(name: str, *attributes: Attribute, source: str = "", rank: tuple[int, int] = (0, 5)) -> OpSpec:
    return OpSpec(name, FAMILY, source or f"torch.{name}", (Operand(rank=rank), *attributes))


def _shifts(d: Draw) -> Value:
    """As many shifts as rolled dimensions; also beyond a whole turn."""
    rolled: tuple[int, ...] = d.attrs["dims"]  # type: ignore[assignment]
    return tuple(d.rng.choice((0, 1, -1, d.x.shape[i], d.rng.randint(-70, 70))) for i in rolled)


def _plane(d: Draw) -> Value:
    return tuple(d.rng.sample(range(d.x.rank), 2))


def _repeats(d: Draw) -> Value:
    """Numbers of repetitions along each dimension, new leading dimensions included; the result keeps to
    limits.max_numel * 2."""
    room = max(1, 2 * d.limits.max_numel // max(d.x.numel, 1))
    counts: list[int] = []
    for _ in range(min(d.limits.max_rank, d.x.rank + d.rng.choice((0, 0, 1)))):
        counts.append(d.rng.randint(1, min(3, room)))
        room //= counts[-1]
    if counts and d.rng.random() < 0.03:
        counts[d.rng.randrange(len(counts))] = 0
    return (*[1] * (d.x.rank - len(counts)), *counts)


def _tiles(d: Draw) -> Value:
    """Like `_repeats`, sometimes with fewer numbers than dimensions."""
    counts: tuple[int, ...] = _repeats(d)  # type: ignore[assignment]
    return counts[d.rng.randint(0, len(counts)) :] if d.rng.random() < 0.3 else counts


def _new_dims() -> tuple[Attribute, Attribute]:
    """Two distinct dimensions of the result, which has one more dimension than x; the last ones by default."""

    def other(d: Draw) -> Value:
        rank = d.x.rank + 1
        taken = int(d.attrs["dim1"]) % rank  # type: ignore[arg-type]
        return d.rng.choice([-1 if i == rank - 1 else i for i in range(rank) if i != taken])

    return computed("dim1", "dim", lambda d: d.rng.choice((-2, 0, d.x.rank)), -2), computed("dim2", "dim", other, -1)


TABLE = (
    _layout("flip", dims("dims")),
    _layout("roll", dims("dims"), computed("shifts", "shape", _shifts), rank=(1, 5)),
    _layout("rot90", integer("k", -1, 4, 1), computed("dims", "dims", _plane, (0, 1)), rank=(2, 5)),
    _layout("repeat", computed("repeats", "shape", _repeats), source="torch.Tensor.repeat"),
    _layout("repeat_interleave", integer("repeats", 1, 3), dim(), rank=(1, 5)),
    _layout("contiguous", source="torch.Tensor.contiguous"),
    _layout("clone"),
    _layout("fliplr", rank=(2, 5)),
    _layout("flipud", rank=(1, 5)),
    _layout("tile", computed("dims", "shape", _tiles)),
    _layout("diagflat", integer("offset", -2, 2, 0), rank=(0, 1)),
    _layout("tril", integer("diagonal", -3, 3, 0), rank=(2, 5)),
    _layout("triu", integer("diagonal", -3, 3, 0), rank=(2, 5)),
    _layout("diag_embed", integer("offset", -2, 2, 0), *_new_dims(), rank=(1, 3)),
    _layout("diag", integer("diagonal", -2, 2, 0), rank=(1, 2)),
)
