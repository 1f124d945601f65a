"""Tensors of one number everywhere, with the dtype and the device of another tensor: passes fold such constants."""

from __future__ import annotations

from math import inf

from fuzzer.language.ops.spec import Attribute, Draw, Operand, OpSpec, cast, choice, computed, expandable
from fuzzer.language.program import Value

FAMILY = "constant"


def _size(d: Draw) -> Value:
    """The operand's sizes, none, sizes that expand to the operand's, or others."""
    kind = d.rng.choice(("like", "0-dim", "part", "other"))
    if kind == "like":
        return d.x.shape
    if kind == "other":
        return tuple(d.size(1, 8) for _ in range(d.rng.randint(1, min(3, d.limits.max_rank))))
    return () if kind == "0-dim" else expandable(d, d.x.shape)


def _number(name: str) -> Attribute:
    """Numbers that every floating dtype holds exactly, so that they are not rounded."""
    return choice(name, 0.0, 1.0, -1.0, 0.5, 3, -0.0, inf)


def _constant(name: str, *attributes: Attribute) -> OpSpec:
    source = f"torch.{name}" if name.endswith("_like") else f"torch.Tensor.{name}"
    return OpSpec(name, FAMILY, source, (Operand(), *attributes, cast()), differentiable=False)


_SIZE = computed("size", "shape", _size)

TABLE = (
    _constant("zeros_like"),
    _constant("ones_like"),
    _constant("full_like", _number("fill_value")),
    _constant("new_zeros", _SIZE),
    _constant("new_ones", _SIZE),
    _constant("new_full", _SIZE, _number("fill_value")),
)
