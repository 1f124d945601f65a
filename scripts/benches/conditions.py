"""What rare faults wait for: tests on tensors (fake ones) and on calls in a graph, whose first operand they look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Condition = Callable[[Any], bool]

HALF = (torch.float16, torch.bfloat16)
DOUBLE = (torch.float64,)


def value(node: Any) -> torch.Tensor:
    """The fake tensor that a call gives (the first, of several)."""
    found = node.meta["val"]
    return found[0] if isinstance(found, tuple | list) else found


def known(t: Any) -> bool:
    """Whether it is a tensor of known sizes and strides, with elements: asking a symbolic one would add guards."""
    if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
        return False
    return all(type(n) is int for n in (*t.shape, *t.stride())) and 0 not in t.shape


def settled(node: Any) -> bool:
    """Whether all tensors of a call are of known sizes."""
    values = [value(node), *(value(n) for n in node.all_input_nodes if "val" in n.meta)]
    return all(known(t) for t in values if isinstance(t, torch.Tensor))


def broadcast(t: torch.Tensor) -> bool:
    """Whether elements along some dimension are one and the same in memory."""
    return any(step == 0 and size > 1 for size, step in zip(t.shape, t.stride(), strict=True))


def permuted(t: torch.Tensor) -> bool:
    """Dense, in another order than row by row."""
    steps = [step for size, step in zip(t.shape, t.stride(), strict=True) if size > 1]
    return 0 not in steps and steps != sorted(steps, reverse=True)


def first(test: Callable[[torch.Tensor], bool]) -> _Condition:
    """The test of a call's first operand."""
    return lambda node: test(value(node.args[0]))


def both(*conditions: _Condition) -> _Condition:
    return lambda node: all(condition(node) for condition in conditions)


def dtype_in(*dtypes: torch.dtype) -> _Condition:
    return lambda node: value(node).dtype in dtypes


def rank_from(lowest: int) -> _Condition:
    return lambda node: value(node).dim() >= lowest


def fed_by(target: Any) -> _Condition:
    """One of the operands is a call of this overload."""
    return lambda node: any(n.target is target for n in node.all_input_nodes)


def read_twice(node: Any) -> bool:
    """Its first operand is read elsewhere too."""
    return len(node.args[0].users) > 1


def summed(node: Any) -> list[int]:
    """The dimensions that a sum is over, none of them negative; none where it is over all without naming them."""
    rank = value(node.args[0]).dim()
    return [dim % rank for dim in node.args[1] or ()] if rank else []


def names_dims(node: Any) -> bool:
    return bool(summed(node))


def odd_length_beyond(least: int) -> _Condition:
    """A sum over one dimension of more elements than this, which is no multiple of two."""

    def condition(node: Any) -> bool:
        lengths = [value(node.args[0]).shape[dim] for dim in summed(node)]
        return len(lengths) == 1 and lengths[0] > least and lengths[0] % 2 == 1

    return condition


def two_equal_dims(node: Any) -> tuple[int, int] | None:
    """Of an expand: a dimension that grows from 1, and another that has this size already."""
    before, after = value(node.args[0]).shape, value(node).shape
    if len(before) != len(after):
        return None
    grown = [dim for dim, size in enumerate(before) if size == 1 and after[dim] > 1]
    return next(((a, b) for a in grown for b, size in enumerate(before) if size == after[a]), None)
