"""Softmax and its relatives, over each dimension."""

from __future__ import annotations

from fuzzer.ops.spec import Operand, OpSpec, cast, dim

FAMILY = "softmax"

TABLE = tuple(
    OpSpec(name, FAMILY, f"torch.nn.functional.{name}", (Operand(), dim(), cast()))
    for name in ("softmax", "log_softmax", "softmin")
)
