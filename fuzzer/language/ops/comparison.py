"""Comparisons and logic: boolean results, no gradient; they feed `where`, `masked_fill` and `mul`."""

from __future__ import annotations

from fuzzer.language.ops.spec import BOOL, SAME, Operand, OpSpec, at, broadcast, number
from fuzzer.language.program import FLOATS

FAMILY = "comparison"


def _comparison(name: str) -> OpSpec:
    first = Operand(values=("ties", "integers"))
    other = Operand("other", FLOATS, shape=broadcast, values=("ties", "integers"))
    return OpSpec(name, FAMILY, f"torch.{name}", (first, other), differentiable=False)


def _with_scalar(name: str) -> OpSpec:
    attribute = number("other", -2, 2, (0, 1.0, -0.5, 2))
    operand = Operand(edges=at("other"))
    return OpSpec(f"{name}_scalar", FAMILY, f"torch.{name}", (operand, attribute), differentiable=False)


def _logical(name: str) -> OpSpec:
    operands = (Operand(dtypes=BOOL), Operand("other", SAME, shape=broadcast))
    return OpSpec(name, FAMILY, f"torch.{name}", operands, differentiable=False)


def _predicate(name: str, dtypes: tuple[str, ...] = FLOATS) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.{name}", (Operand(dtypes=dtypes),), differentiable=False)


TABLE = (
    *map(_comparison, ("eq", "ne", "lt", "le", "gt", "ge")),
    *map(_with_scalar, ("gt", "le")),
    *map(_logical, ("logical_and", "logical_or", "logical_xor")),
    _predicate("logical_not", BOOL),
    *map(_predicate, ("isnan", "isfinite")),
)
