"""Sizes of a node's result from those of its operands, by torch's plain rules; None where these do not say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fuzzer.language.ops import OPS
from fuzzer.language.program import Node, Shape

# Families whose results have the sizes of the first operand, and of all operands together.
LIKE_FIRST = frozenset("pointwise activation inplace dropout softmax scatter normalisation".split())
BROADCAST = frozenset("binary comparison ternary".split())
# Ops with a second result that says where the first came from.
WITH_INDICES = frozenset("max min median nanmedian mode kthvalue topk sort cummax cummin".split())
# Ops all of whose results have the sizes of the first.
ALIKE = WITH_INDICES | frozenset("var_mean std_mean aminmax frexp chunk unbind".split())
_OTHER_SIZES = frozenset("glu".split())
_LIKE_FIRST_TOO = frozenset(
    """cumsum cumprod logcumsumexp cummax cummin sort msort argsort clone contiguous flip roll fliplr flipud tril triu
    masked_fill masked_scatter zeros_like ones_like full_like""".split()
)
_REDUCTIONS = frozenset(
    """sum mean nansum nanmean amax amin max min prod var std var_mean std_mean logsumexp median nanmedian argmax argmin
    all any vector_norm norm quantile nanquantile mode kthvalue""".split()
)
_Rule = Callable[[Sequence[Shape], Mapping[str, Any]], Shape | None]


def product(shape: Shape) -> int:
    """The number of elements."""
    return math.prod(shape)


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The sizes that these have together; None where they do not fit."""
    rank = max(map(len, shapes), default=0)
    found: list[int] = []
    for at in range(-rank, 0):
        sizes = {shape[at] for shape in shapes if len(shape) >= -at} - {1}
        if len(sizes) > 1:
            return None
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int = 1, ceil_mode: bool = False) -> int:
    """How many windows a convolution or pooling has along a dimension, before any that starts outside is dropped."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    return (-(-room // stride) if ceil_mode else room // stride) + 1


def per_dim(value: Any, dims: int) -> tuple[Any, ...]:
    """A number or a tuple of them, one for each of so many dimensions."""
    return tuple(value) if isinstance(value, tuple) else (value,) * dims


def without(shape: Shape, dims: Any, keepdim: bool) -> Shape:
    """The sizes after a reduction over these dimensions; None or () means all."""
    gone = {d % len(shape) for d in per_dim(dims, 1)} if dims not in (None, ()) and shape else set(range(len(shape)))
    kept = [(1 if at in gone else size) for at, size in enumerate(shape) if keepdim or at not in gone]
    return tuple(kept)


def reduced(shape: Shape, dims: Any) -> int:
    """How many elements a reduction over these dimensions makes one of."""
    return product(shape) // max(product(without(shape, dims, False)), 1)


def _permuted(shape: Shape, dims: Sequence[int]) -> Shape:
    return tuple(shape[d] for d in dims)


def _exchanged(shape: Shape, a: int, b: int) -> Shape:
    order = list(range(len(shape)))
    if order:
        order[a], order[b] = order[b], order[a]
    return _permuted(shape, order)


def _changed(shape: Shape, dim: int, size: int | None) -> Shape:
    """The sizes with one replaced, or dropped."""
    at = dim % len(shape)
    return (*shape[:at], *(() if size is None else (size,)), *shape[at + 1 :])


def _reshaped(shape: Shape, wanted: Sequence[int]) -> Shape:
    known = product(tuple(size for size in wanted if size != -1))
    return tuple(product(shape) // max(known, 1) if size == -1 else size for size in wanted)


def _flattened(shape: Shape, start: int, end: int) -> Shape:
    if not shape:
        return (1,)
    low, high = start % len(shape), end % len(shape)
    return (*shape[:low], product(shape[low : high + 1]), *shape[high + 1 :])


def _sliced(shape: Shape, attrs: Mapping[str, Any]) -> Shape:
    dim = attrs.get("dim", 0)
    taken = range(shape[dim])[attrs.get("start") : attrs.get("end") : attrs.get("step", 1)]
    return _changed(shape, dim, len(taken))


def _expanded(shape: Shape, wanted: Sequence[int]) -> Shape:
    extra = len(wanted) - len(shape)
    return tuple(shape[at - extra] if size == -1 else size for at, size in enumerate(wanted))


def _matmul(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    a, b = shapes[:2]
    if len(a) < 2 or len(b) < 2:
        return None
    batch = broadcast((a[:-2], b[:-2]))
    return None if batch is None else (*batch, a[-2], b[-1])


def _chunked(shape: Shape, dim: int, chunks: int) -> Shape | None:
    """The sizes of each chunk, where they are equal."""
    return None if shape[dim] % chunks else _changed(shape, dim, shape[dim] // chunks)


def _joined(shapes: Sequence[Shape], dim: int) -> Shape | None:
    """The sizes of these in a row; None among tensors of other ranks, which torch passes over where they are empty."""
    if len({len(shape) for shape in shapes}) > 1:
        return None
    return _changed(shapes[0], dim, sum(shape[dim] for shape in shapes))


def _pooled(shapes: Sequence[Shape], attrs: Mapping[str, Any], dims: int) -> Shape | None:
    """The sizes after a pool that rounds down."""
    if attrs.get("ceil_mode") is True:
        return None
    kernel = per_dim(attrs["kernel_size"], dims)
    stride = per_dim(attrs.get("stride") or kernel, dims)
    padding, dilation = (per_dim(attrs.get(name, usual), dims) for name, usual in (("padding", 0), ("dilation", 1)))
    sizes = zip(shapes[0][-dims:], kernel, stride, padding, dilation, strict=True)
    return (*shapes[0][:-dims], *(windows(n, k, s, p, d) for n, k, s, p, d in sizes))


def _padded(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    sizes, pads = list(shapes[0]), attrs["pad"]
    for at in range(len(pads) // 2):
        sizes[-1 - at] += pads[2 * at] + pads[2 * at + 1]
    return tuple(sizes)


def _convolved(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape | None:
    x, weight = shapes[:2]
    dims = len(weight) - 2
    if len(x) != dims + 2 or isinstance(attrs.get("padding"), str):
        return None
    steps, pads, skips = (per_dim(attrs.get(k, d), dims) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    inner = [windows(x[2 + i], weight[2 + i], steps[i], pads[i], skips[i]) for i in range(dims)]
    return (x[0], weight[0], *inner)


def _interpolated(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    outer, inner = shapes[0][:2], shapes[0][2:]
    if (size := attrs.get("size")) is not None:
        return (*outer, *per_dim(size, len(inner)))
    factors = per_dim(attrs["scale_factor"], len(inner))
    return (*outer, *(int(n * f) for n, f in zip(inner, factors, strict=True)))


def _pooled_to(dims: int) -> _Rule:
    return lambda s, a: (*s[0][:-dims], *per_dim(a["output_size"], dims))


_RULES: dict[str, _Rule] = {
    **{name: lambda s, a: tuple(a["size"]) for name in ("new_zeros", "new_ones", "new_full")},
    "permute": lambda s, a: _permuted(s[0], a["dims"]),
    "transpose": lambda s, a: _exchanged(s[0], a["dim0"], a["dim1"]),
    "t": lambda s, a: s[0][::-1],
    "T": lambda s, a: s[0][::-1],
    "mT": lambda s, a: _exchanged(s[0], -1, -2),
    "mH": lambda s, a: _exchanged(s[0], -1, -2),
    "H": lambda s, a: s[0][::-1],
    "reshape": lambda s, a: _reshaped(s[0], a["shape"]),
    "view": lambda s, a: _reshaped(s[0], a["size"]),
    "flatten": lambda s, a: _flattened(s[0], a.get("start_dim", 0), a.get("end_dim", -1)),
    "ravel": lambda s, a: (product(s[0]),),
    "select": lambda s, a: _changed(s[0], a["dim"], None),
    "narrow": lambda s, a: _changed(s[0], a["dim"], a["length"]),
    "slice": lambda s, a: _sliced(s[0], a),
    "expand": lambda s, a: _expanded(s[0], a["size"]),
    "broadcast_to": lambda s, a: _expanded(s[0], a["size"]),
    "expand_as": lambda s, a: s[1],
    "as_strided": lambda s, a: tuple(a["size"]),
    "unsqueeze": lambda s, a: (*s[0][: a["dim"] % (len(s[0]) + 1)], 1, *s[0][a["dim"] % (len(s[0]) + 1) :]),
    "chunk": lambda s, a: _chunked(s[0], a.get("dim", 0), a["chunks"]),
    "unbind": lambda s, a: _changed(s[0], a.get("dim", 0), None),
    "scaled_dot_product_attention": lambda s, a: (*s[0][:-1], s[2][-1]),
    "embedding": lambda s, a: (*s[1], s[0][1]),
    "cat": lambda s, a: _joined(s, a.get("dim", 0)),
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "linear": lambda s, a: (*s[0][:-1], s[1][0]),
    "pad": _padded,
    "pad_reflect": _padded,
    "pad_replicate": _padded,
    "pad_circular": _padded,
    "conv1d": _convolved,
    "conv2d": _convolved,
    "conv3d": _convolved,
    "interpolate_nearest": _interpolated,
    "interpolate_bilinear": _interpolated,
    "adaptive_avg_pool1d": _pooled_to(1),
    "adaptive_avg_pool2d": _pooled_to(2),
    "adaptive_avg_pool3d": _pooled_to(3),
    "adaptive_max_pool3d": _pooled_to(3),
    **{f"{kind}_pool{n}d": partial(_pooled, dims=n) for kind in ("avg", "max") for n in (1, 2, 3)},
    "index_select": lambda s, a: _changed(s[0], a["dim"], product(s[1])),
    "gather": lambda s, a: s[1],
    "take": lambda s, a: s[1],
}


def result(node: Node, shapes: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Shape | None:
    """The sizes of the node's first result; None where they cannot be said."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    family = OPS[node.op].family if node.op in OPS else ""
    if node.op in _RULES:
        try:
            return _RULES[node.op](known, attrs)
        except (IndexError, KeyError, TypeError, ValueError):
            return None  # an attribute that the rule does not know
    if node.op in _REDUCTIONS:
        dims = attrs.get("dim", -1 if node.op in WITH_INDICES else None)
        return without(known[0], dims, attrs.get("keepdim", False))
    if node.op in _LIKE_FIRST_TOO or (family in LIKE_FIRST and node.op not in _OTHER_SIZES):
        return known[0]
    return broadcast(known) if family in BROADCAST else None
