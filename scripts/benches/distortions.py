"""What rare faults do: calls in a backward graph, formulas of gradients and arguments of lowerings made wrong.

Those for graphs take a call and the same call before it (`right`), and return what stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benches.conditions import summed, two_equal_dims, value
from fuzzer.judgement.planted.passes import insert_call

_aten, _prims = torch.ops.aten, torch.ops.prims

_Right = Callable[..., Any]


# ---------------------------------------------------------------- calls in a graph


def forgotten(node: Any, right: Any) -> Any:
    """Its first operand instead."""
    return node.args[0]


def without_last_row(node: Any, right: Any, dim: int = 0) -> Any:
    """Zeros at the end of a dimension: a loop that stops one step early."""
    shape = value(right).shape
    rest = insert_call(node, _aten.slice.Tensor, right, dim, 0, shape[dim] - 1)
    return insert_call(node, _aten.constant_pad_nd.default, rest, [0, 0] * (len(shape) - 1 - dim) + [0, 1])


def of_one_row_less(node: Any, right: Any) -> Any:
    """A sum that leaves the last element out, along the first of its dimensions."""
    x, dim = node.args[0], summed(node)[0]
    rest = insert_call(node, _aten.slice.Tensor, x, dim, 0, value(x).shape[dim] - 1)
    return insert_call(node, node.target, rest, *node.args[1:])


def along_the_other_dim(node: Any, right: Any) -> Any:
    """An expand along the wrong one of two dimensions of one size."""
    a, b = two_equal_dims(node) or (0, 0)
    order = list(range(value(right).dim()))
    order[a], order[b] = b, a
    return insert_call(node, _aten.permute.default, right, order)


def without_inner_summand(node: Any, right: Any) -> Any:
    """a + b + c without b."""
    inner = next(n for n in node.args[:2] if getattr(n, "target", None) is _aten.add.Tensor)
    other = next(n for n in node.args[:2] if n is not inner)
    kept = next(n for n in inner.args[:2] if value(n).shape == value(node).shape)
    return insert_call(node, _aten.add.Tensor, kept, other)


def inverted(node: Any, right: Any) -> Any:
    """The branches of a `where` exchanged."""
    mask, yes, no = node.args
    return insert_call(node, node.target, mask, no, yes)


def undivided(node: Any, right: Any) -> Any:
    """The numerator of the quotient that it reads."""
    args = [n.args[0] if getattr(n, "target", None) is _aten.div.Tensor else n for n in node.args]
    return insert_call(node, node.target, *args)


def overwriting(node: Any, right: Any) -> Any:
    """Where an index repeats, the last one wins instead of adding."""
    if node.target is _aten.scatter_add.default:
        return insert_call(node, _aten.scatter.src, *node.args)
    return insert_call(node, node.target, *node.args[:3], False)


def without_last_column(node: Any, right: Any) -> Any:
    return without_last_row(node, right, value(right).dim() - 1)


def without_last_channel(node: Any, right: Any) -> Any:
    """A convolution's backward whose incoming gradient lost its last channel."""
    grad = node.args[0]
    return insert_call(node, node.target, without_last_row(node, grad, 1), *node.args[1:])


# ---------------------------------------------------------------- formulas of gradients


def tanh_linear(right: _Right, grad: torch.Tensor, y: torch.Tensor) -> Any:
    return grad * (1 - y)


def softmax_along_last(right: _Right, grad: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> Any:
    product = grad * y
    return (product - y * product.sum(-1, keepdim=True)).to(dtype)


def without_variance(right: _Right, grad: Any, x: Any, shape: Any, mean: Any, *rest: Any) -> Any:
    """The gradient through a layer norm's variance is lost."""
    return right(grad, mean.expand_as(x).to(x.dtype), shape, mean, *rest)


def one_before(right: _Right, grad: Any, sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    """A slice's gradient, written one element too early."""
    return right(grad, sizes, dim, start - 1, end - 1, step)


def at_the_start(right: _Right, grad: Any, sizes: Any, dim: int, index: int) -> Any:
    """A selection's gradient, written at index 0."""
    return right(grad, sizes, dim, 0)


def without_delta(right: _Right, grad: Any, x: Any, target: Any, reduction: int, delta: float) -> Any:
    """A Huber or smooth l1 loss as if its bend were at 1."""
    return right(grad, x, target, reduction, 1.0)


def as_if_not_approximate(right: _Right, grad: Any, x: Any, *, approximate: str = "none") -> Any:
    """gelu's derivative without what its tanh is of."""
    return right(grad, x, approximate="none") * 0.5


def of_half_the_slope(right: _Right, grad: Any, x: Any, *rest: Any) -> Any:
    return torch.where(x > 0, right(grad, x, *rest), right(grad * 0.5, x, *rest))


# ---------------------------------------------------------------- arguments of lowerings


def last_two_exchanged(parts: Any, dim: int = 0) -> tuple[Any, ...] | None:
    """Three or more joined: the last two in the wrong order, where they are of one shape."""
    *others, a, b = parts
    if not others or list(a.get_size()) != list(b.get_size()):
        return None
    return [*others, b, a], dim


def sides_exchanged(x: Any, pads: Any, fill: Any = 0) -> tuple[Any, ...] | None:
    """Padding of both ends of the last dimension that differs left and right."""
    if not all(isinstance(n, int) for n in pads) or pads[0] == pads[1] or 0 in pads[:2]:
        return None
    return x, [pads[1], pads[0], *pads[2:]], fill


def one_step_back(x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """A window with a stride, written one element before its place."""
    if not isinstance(start, int) or not isinstance(end, int) or step == 1 or start < 1:
        return None
    return x, source, dim, start - 1, end - 1, step
