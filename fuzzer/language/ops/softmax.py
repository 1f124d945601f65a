"""Softmax and its relatives, over each dimension."""

from __future__ import annotations

from fuzzer.language.ops.spec import Operand, OpSpec, cast, dim

FAMILY = "softmax"

TABLE = tuple(
    OpSpec(name, FAMILY, f"torch.nn.functional.{name}", (Operand(), dim(), cast()), entries=entries)
    for name, entries in (
        ("softmax", ("softmax", "softmax.with_dtype")),
        ("log_softmax", ("log_softmax", "log_softmax.with_dtype")),
        ("softmin", ("nn.functional.softmin", "nn.functional.softmin.with_dtype")),
    )
)
