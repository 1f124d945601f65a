"""Functions of three tensors, element by element."""

from __future__ import annotations

from fuzzer.language.ops.spec import BOOL, SAME, Draw, Operand, OpSpec, broadcast, expandable, real
from fuzzer.language.program import FLOATS, Shape

FAMILY = "ternary"


def _bound(d: Draw) -> Shape:
    """A shape that expands to x. Where x itself expands, eager's backward breaks on two bounds ("output with shape ...
    doesn't match the broadcast shape", torch 2.11 and 2.13)."""
    return expandable(d, d.x.shape)


_VALUE = real("value", -2, 2, (1.0, 0.0, 0.5, -1.0), 1.0)

TABLE = (
    OpSpec(
        "addcmul",
        FAMILY,
        "torch.addcmul",
        (Operand(), Operand("tensor1", SAME, shape=broadcast), Operand("tensor2", SAME, shape=broadcast), _VALUE),
    ),
    OpSpec(
        "addcdiv",
        FAMILY,
        "torch.addcdiv",
        (
            Operand(),
            Operand("tensor1", SAME, shape=broadcast),
            Operand("tensor2", SAME, shape=broadcast, values=("positive",)),
            _VALUE,
        ),
    ),
    OpSpec(
        "lerp",
        FAMILY,
        "torch.lerp",
        (
            Operand(),
            Operand("end", SAME, shape=broadcast),
            Operand("weight", SAME, shape=broadcast, values=("uniform", "corners")),
        ),
    ),
    OpSpec(
        "lerp_scalar",
        FAMILY,
        "torch.lerp",
        (Operand(), Operand("end", SAME, shape=broadcast), real("weight", -1, 2, (0.0, 1.0, 0.5))),
    ),
    OpSpec(
        "where",
        FAMILY,
        "torch.where",
        (
            Operand("condition", BOOL),
            Operand("input", FLOATS, shape=broadcast),
            Operand("other", FLOATS, shape=broadcast),
        ),
    ),
    OpSpec(
        "clamp_tensor",
        FAMILY,
        "torch.clamp",
        (
            Operand(values=("ties", "integers")),
            Operand("min", SAME, shape=_bound, values=("ties", "integers")),
            Operand("max", SAME, shape=_bound, values=("ties", "integers"), absent=0.3),
        ),
    ),
)
