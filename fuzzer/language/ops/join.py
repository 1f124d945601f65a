"""Ops that join several tensors."""

from __future__ import annotations

from collections.abc import Callable

from fuzzer.language.ops.spec import SAME, Attribute, Draw, Operand, OpSpec, choice, computed, dim, replaced
from fuzzer.language.program import FLOATS, Shape, TensorType, Value

FAMILY = "join"


def _first_of(d: Draw) -> TensorType | None:
    """The first tensor of the list being drawn, None before there is one."""
    return d.operands[-1][0] if d.operands[-1] else None


def _small(d: Draw, rank: tuple[int, int]) -> Shape:
    """A shape of which four copies stay small."""
    return tuple(d.size(1, 10) for _ in range(d.rng.randint(*rank)))


def _alike(low: int, high: int) -> Callable[[Draw], Shape]:
    """The first tensor's shape, for all."""

    def shape(d: Draw) -> Shape:
        first = _first_of(d)
        return _small(d, (low, high)) if first is None else first.shape

    return shape


def _differing(at: Callable[[int], int | None], low: int, high: int) -> Callable[[Draw], Shape]:
    """The first one's shape, but any size (0 among them) in the joined dimension `at(rank)`."""

    def shape(d: Draw) -> Shape:
        first = _first_of(d)
        if first is None:
            return _small(d, (low, high))
        where = at(len(first.shape))
        if where is None or d.rng.random() < 0.3:
            return first.shape
        return replaced(first.shape, where, d.size(0, 10))

    return shape


def _joined(d: Draw) -> Value:
    """A dimension along which the drawn tensors can be joined: the last if their sizes differ there, else any."""
    shapes = {t.shape for t in d.operands[0]}
    rank = d.x.rank
    options = [i for i in range(rank) if len({replaced(shape, i) for shape in shapes}) == 1]
    chosen = d.rng.choice(options)
    return chosen - rank if d.rng.random() < 1 / 3 else chosen


def _join(name: str, shape: Callable[[Draw], Shape], *attributes: Attribute, least: int = 2) -> OpSpec:
    """An op of `least` to four tensors."""
    operand = Operand("tensors", FLOATS, shape=shape, count=(least, 4))
    return OpSpec(name, FAMILY, f"torch.{name}", (operand, *attributes))


def _cat_shape(d: Draw) -> Shape:
    """The second tensor's shape decides the dimension in which they differ; later ones follow."""
    drawn = d.operands[-1]
    if not drawn:
        return _small(d, (1, 4))
    first = drawn[0].shape
    odd = [i for t in drawn for i in range(len(first)) if t.shape[i] != first[i]]
    where = odd[0] if odd else d.rng.randrange(len(first))
    return first if d.rng.random() < 0.25 else replaced(first, where, d.size(0, 12))


def _short(d: Draw) -> Shape:
    return (d.size(1, 12),)


_VECTOR = Operand(rank=(1, 1), fresh=_short, accepts=lambda t: 0 < t.numel <= 64)

TABLE = (
    _join("cat", _cat_shape, computed("dim", "dim", _joined, 0), least=1),
    _join("stack", _alike(0, 4), dim(default=0, extra=1), least=1),
    _join("hstack", _differing(lambda rank: 1 if rank > 1 else 0 if rank else None, 0, 3)),
    _join("vstack", _differing(lambda rank: 0 if rank > 1 else None, 0, 3)),
    _join("dstack", _differing(lambda rank: 2 if rank > 2 else None, 0, 4)),
    _join("column_stack", _differing(lambda rank: 1 if rank > 1 else None, 0, 3)),
    *(
        OpSpec(
            "meshgrid" + suffix,
            FAMILY,
            "torch.meshgrid",
            (*operands, choice("indexing", "ij", "xy", default="ij")),
            results=2,
            entries=(f"meshgrid.{entry}",),
        )
        for suffix, entry, operands in (
            ("", "variadic_tensors", (_VECTOR, Operand("other", SAME, shape=_short))),
            ("_of_list", "list_of_tensors", (Operand("tensors", SAME, shape=_short, count=(2, 2)),)),
        )
    ),
    OpSpec("cartesian_prod", FAMILY, "torch.cartesian_prod", (_VECTOR, Operand("other", SAME, shape=_short))),
    OpSpec(
        "block_diag",
        FAMILY,
        "torch.block_diag",
        (Operand(rank=(0, 2)), Operand("other", FLOATS, shape=lambda d: _small(d, (0, 2)))),
    ),
)
