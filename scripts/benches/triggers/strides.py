"""How a node's result lies in memory, from the sizes and strides of its operands, by torch's plain rules.

A geometry is sizes and strides together. What computes is taken to keep its first operand's order of dimensions where
the sizes are the same, and to give row-major results elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benches.triggers import shapes
from fuzzer.language.ops import OPS
from fuzzer.language.program import Node, Shape, contiguous, extent

Geometry = tuple[Shape, Shape]
# Families whose kernels write their result in the order in which their operand lies.
_KEEPING = frozenset("pointwise activation binary ternary dropout inplace".split())
_KEEPING_TOO = frozenset("clone cumsum cumprod logcumsumexp flip softmax log_softmax roll".split())


def layout(shape: Shape, stride: Shape) -> str:
    """How a tensor of this geometry lies in memory: plain (row-major), permuted, broadcast or gaps."""
    steps = [step for size, step in zip(shape, stride, strict=True) if size > 1]
    if any(step == 0 for step in steps):
        return "broadcast"
    if steps != sorted(steps, reverse=True):
        return "permuted"
    return "plain" if extent(shape, stride) <= shapes.product(shape) else "gaps"


def packed(shape: Shape, stride: Shape) -> Shape:
    """Strides of a dense tensor whose dimensions stand in the same order."""
    order = sorted(range(len(shape)), key=lambda d: (-stride[d], d))
    steps = contiguous(tuple(shape[d] for d in order))
    return tuple(steps[order.index(d)] for d in range(len(shape)))


def _order(node: Node, rank: int, attrs: Mapping[str, Any]) -> list[int] | None:
    """The dimensions of a transposition's operand in the order of its result's."""
    order = list(range(rank))
    if node.op == "permute":
        return [d % rank for d in attrs["dims"]] if rank else []
    if node.op in ("t", "T", "H"):
        return order[::-1]
    if node.op in ("mT", "mH", "transpose") and rank:
        a, b = (attrs["dim0"], attrs["dim1"]) if node.op == "transpose" else (-1, -2)
        order[a], order[b] = order[b], order[a]
        return order
    return None


def _part(node: Node, before: Geometry, attrs: Mapping[str, Any]) -> Shape:
    """Strides after select, narrow or slice."""
    stride, at = list(before[1]), attrs.get("dim", 0) % max(len(before[0]), 1)
    if node.op == "select":
        del stride[at]
    elif node.op == "slice":
        stride[at] *= attrs.get("step", 1)
    return tuple(stride)


def result(node: Node, before: Geometry | None, after: Shape | None, attrs: Mapping[str, Any]) -> Geometry | None:
    """The geometry of a node's first result, of that of its first operand and the result's sizes."""
    if before is not None and (order := _order(node, len(before[0]), attrs)) is not None:
        return tuple(before[0][d] for d in order), tuple(before[1][d] for d in order)
    if after is None:
        return None
    if before is not None and node.op in ("select", "narrow", "slice"):
        return after, _part(node, before, attrs)
    if node.op == "as_strided":
        return after, tuple(attrs["stride"])
    if before is not None and node.op in ("expand", "expand_as", "broadcast_to"):
        old = ((1,) * (len(after) - len(before[0])) + before[0], (0,) * (len(after) - len(before[0])) + before[1])
        return after, tuple(0 if a != b else step for a, b, step in zip(after, *old, strict=True))
    keeps = node.op in _KEEPING_TOO or (node.op in OPS and OPS[node.op].family in _KEEPING)
    if before is not None and keeps and before[0] == after and layout(*before) != "broadcast":
        return after, (before[1] if node.op.endswith("_") else packed(*before))
    return after, contiguous(after)
