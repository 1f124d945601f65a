"""Random shapes and layouts: sizes, strides, offsets."""

from __future__ import annotations

import random
from math import prod

from fuzzer.generation.wish import can_lie
from fuzzer.language.classes import (
    AT_OFFSET,
    BROADCAST,
    CHANNELS_LAST,
    GAPS,
    OVERLAPPING,
    PERMUTED,
    channels_last,
    layout_classes,
)
from fuzzer.language.ops.spec import Limits, log_uniform
from fuzzer.language.program import (
    Shape,
    contiguous,
)


def draw_shape(rng: random.Random, limits: Limits, rank: tuple[int, int]) -> Shape:
    """A shape of a rank in `rank`: sizes log-uniform, 1 and 0 among them, at most limits.max_numel elements."""
    lowest, highest = rank[0], min(rank[1], limits.max_rank)
    ranks = list(range(lowest, max(lowest, highest) + 1))
    dims = rng.choices(ranks, [{0: 1, 1: 3, 2: 6, 3: 5, 4: 2, 5: 0.7}.get(r, 0.2) for r in ranks])[0]
    sizes: list[int] = []
    room = limits.max_numel
    for _ in range(dims):
        size = min(_draw_size(rng, limits, sizes), max(room, 1))
        sizes.append(size)
        room //= max(size, 1)
    if sizes and rng.random() < 0.006:
        sizes[rng.randrange(dims)] = 0
    rng.shuffle(sizes)
    return tuple(sizes)


def _draw_size(rng: random.Random, limits: Limits, others: list[int]) -> int:
    """Log-uniform; sometimes the size of another dimension, or a multiple of a vector's length, one more or one
    less."""
    kind = rng.random()
    if kind < 0.1 and others:
        return rng.choice(others)
    if kind < 0.2:
        return min(rng.choice((8, 16, 32)) + rng.choice((-1, 0, 0, 1)), limits.max_size)
    return log_uniform(rng, 1, limits.max_size)


def draw_long_shape(rng: random.Random, limits: Limits, rank: tuple[int, int]) -> Shape:
    """A shape of up to three dimensions, one of them long: as many elements as all limits allow."""
    room = limits.max_numel * limits.long
    dims = rng.choices((1, 2, 3), (3, 3, 1))[0]
    dims = min(max(dims, rank[0], 1), rank[1], limits.max_rank)
    long = log_uniform(rng, min(limits.max_numel, room), room - 1)
    long = long // 16 * 16 + rng.choice((-1, 0, 1)) if long > 32 else long
    sizes = [max(long, 1)]
    for _ in range(dims - 1):
        sizes.append(log_uniform(rng, 1, max(room // prod(sizes), 1)))
    rng.shuffle(sizes)
    return tuple(sizes)


_DENSE = 0.6  # the share of leaves whose elements follow each other in memory


def draw_layout(rng: random.Random, shape: Shape) -> tuple[Shape, int]:
    """A stride and an offset: dense, permuted, with gaps, broadcast (stride 0), or overlapping."""
    kinds = ("dense", "permuted", "gaps", "broadcast", "overlapping")
    kind = rng.choices(kinds, (_DENSE, *((1 - _DENSE) * share for share in (0.45, 0.35, 0.15, 0.05))))[0]
    return _layout(rng, shape, kind)


def wished_layout(rng: random.Random, shape: Shape, wanted: str, tries: int) -> tuple[Shape, int]:
    """A stride and an offset of this class of `classes.LAYOUTS`, if one of so many draws has it."""
    if wanted == CHANNELS_LAST and can_lie(shape, wanted):
        return channels_last(shape), 0
    kind = wanted if wanted in (PERMUTED, GAPS, BROADCAST, OVERLAPPING) else "dense"
    for _ in range(tries):
        stride, offset = _layout(rng, shape, kind)
        offset = rng.choice((1, 3, 8)) if wanted == AT_OFFSET else offset
        if wanted in layout_classes(shape, stride, offset):
            break
    return stride, offset


def _layout(rng: random.Random, shape: Shape, kind: str) -> tuple[Shape, int]:
    if not shape or kind == "dense":
        return contiguous(shape), 0
    if kind == "permuted":
        order = list(range(len(shape)))
        if len(shape) in (4, 5) and rng.random() < 0.5:
            order.append(order.pop(1))  # channels_last, of two or three spatial dimensions
        else:
            rng.shuffle(order)
        steps = contiguous(tuple(shape[i] for i in order))
        return tuple(steps[order.index(i)] for i in range(len(shape))), 0
    if kind == "gaps":
        step = rng.choice((1, 2, 3))
        padded = tuple(size + rng.choice((0, 0, 1, 3)) for size in shape)
        return tuple(s * step for s in contiguous(padded)), rng.choice((0, 1, 5))
    return _overlapping_strides(rng, shape) if kind == "overlapping" else broadcast_strides(rng, shape), 0


def _overlapping_strides(rng: random.Random, shape: Shape) -> Shape:
    """Strides of windows into a shorter tensor: one dimension steps less far than the dimensions inside it extend."""
    dense = contiguous(shape)
    wide = [i for i, size in enumerate(shape) if size > 1 and dense[i] > 1]
    if not wide:
        return dense
    at = rng.choice(wide)
    return (*dense[:at], rng.randint(1, dense[at] - 1), *dense[at + 1 :])


def broadcast_strides(rng: random.Random, shape: Shape) -> Shape:
    """Strides of a tensor that was expanded along some of its dimensions: stride 0 there, dense elsewhere."""
    expanded = set(rng.sample(range(len(shape)), rng.randint(1, len(shape))))
    dense = contiguous(tuple(1 if i in expanded else size for i, size in enumerate(shape)))
    return tuple(0 if i in expanded else step for i, step in enumerate(dense))
