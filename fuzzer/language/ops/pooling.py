"""Pooling: windows of the last one, two or three dimensions become one element each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fuzzer.language.ops.spec import (
    BEYOND,
    INDEX,
    SAME,
    SELDOM,
    WIDE,
    ZERO,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    flag,
    has_spatial,
    images,
    like,
    per_dimension,
    scalar_or_tuple,
    spatial_rank,
)
from fuzzer.language.program import FLOATS, Recipe, Shape, Value

FAMILY = "pooling"


def extents(d: Draw, spatial: int) -> tuple[int, ...]:
    return d.x.shape[-spatial:]


def each(spatial: int, size: Callable[[Draw, int], int]) -> Callable[[Draw], Value]:
    """A value for each spatial dimension, `size(d, its index)`; written as one int where they are equal."""
    return lambda d: scalar_or_tuple([size(d, i) for i in range(spatial)])


def _kernel(spatial: int, padded: bool = True) -> Attribute:
    """A window that fits into the input without padding, under the dilation drawn before it, if any.

    padded: seldom one that is larger than the input by one and fits with padding only.
    """

    def size(d: Draw, i: int) -> int:
        dilation = per_dimension(d.attrs.get("dilation", 1), spatial)[i]
        most = max(1, min((extents(d, spatial)[i] - 1) // dilation + 1, 5))
        return d.rng.choice((most, d.rng.randint(1, most)))

    def draw(d: Draw) -> Value:
        if padded and d.attrs.get("dilation", 1) == 1 and d.rng.random() < SELDOM:
            return max(extents(d, spatial)) + 1
        return each(spatial, size)(d)

    return computed("kernel_size", "size", draw, classes=(BEYOND,) if padded else ())


def _stride(spatial: int) -> Attribute:
    """None (the window itself), or 1 to one more than the window: overlapping windows, touching ones, gaps."""

    def draw(d: Draw) -> Value:
        if d.rng.random() < 0.3:
            return None
        sizes = per_dimension(d.attrs["kernel_size"], spatial)
        return scalar_or_tuple([d.rng.randint(1, size + 1) for size in sizes])

    return computed("stride", "size", draw, None)


def _padding(spatial: int) -> Attribute:
    """At most half of the window, as torch requires; enough that the window fits."""

    def size(d: Draw, i: int) -> int:
        window = per_dimension(d.attrs["kernel_size"], spatial)[i]
        return d.rng.randint(max(0, -((extents(d, spatial)[i] - window) // 2)), window // 2)

    return computed("padding", "size", each(spatial, size), 0)


def _dilation(spatial: int) -> Attribute:
    return computed("dilation", "size", each(spatial, lambda d, i: d.rng.choice((1, 1, 2))), 1)


def _target(spatial: int) -> Attribute:
    """An output size that may or may not divide the input, 1 and more than the input among them."""

    def size(d: Draw, i: int) -> int:
        extent = extents(d, spatial)[i]
        return d.rng.choice((1, extent, d.rng.randint(1, extent), min(extent + 1, 12), 2))

    return computed("output_size", "size", each(spatial, size))


def _pool(name: str, spatial: int, *attributes: Attribute, dtypes: tuple[str, ...] = FLOATS) -> OpSpec:
    operand = Operand(
        dtypes=dtypes,
        rank=spatial_rank(spatial),
        accepts=has_spatial(spatial),
        fresh=images(spatial, most=16 if spatial < 3 else 8),
        values=("ties", "integers") if "max" in name else (),
    )
    return OpSpec(f"{name}{spatial}d", FAMILY, f"torch.nn.functional.{name}{spatial}d", (operand, *attributes))


def _max_pool(spatial: int) -> OpSpec:
    ceil = flag("ceil_mode", False)
    return _pool("max_pool", spatial, _dilation(spatial), _kernel(spatial), _stride(spatial), _padding(spatial), ceil)


def _with_indices(spec: OpSpec) -> OpSpec:
    """The same pooling with the positions of the maxima as a second result."""
    asked = choice("return_indices", True, default=False)
    return replace(spec, name=f"{spec.name}_with_indices", params=(*spec.params, asked), results=2)


def _avg_pool(spatial: int) -> OpSpec:
    # in three dimensions torch refuses a window larger than the input before it pads
    attributes = [_kernel(spatial, padded=spatial < 3), _stride(spatial), _padding(spatial), flag("ceil_mode", False)]
    attributes.append(flag("count_include_pad", True))
    if spatial > 1:
        attributes.append(choice("divisor_override", None, None, 1, 3, -2, default=None))
    return _pool("avg_pool", spatial, *attributes, dtypes=WIDE if spatial == 3 else FLOATS)


def _lp_pool(spatial: int) -> OpSpec:
    norm = choice("norm_type", 1, 2, 3, 2.0)
    return _pool("lp_pool", spatial, norm, _kernel(spatial, padded=False), _stride(spatial), flag("ceil_mode", False))


def _fractional_window(spatial: int) -> Attribute:
    """A window smaller than the input: in three dimensions torch refuses one as large.

    Seldom one without elements; only where no gradient is wanted, since torch's backward refuses it.
    """

    def draw(d: Draw) -> Value:
        if not d.tracked and d.rng.random() < SELDOM:
            return (0,) * spatial
        return scalar_or_tuple([d.rng.randint(1, min(size - 1, 4)) for size in extents(d, spatial)])

    return computed("kernel_size", "size", draw, classes=(ZERO,))


def _fractional_target(spatial: int) -> Attribute:
    """An output size small enough for windows of the drawn size."""

    def size(d: Draw, i: int) -> int:
        window = per_dimension(d.attrs["kernel_size"], spatial)[i]
        return d.rng.randint(1, extents(d, spatial)[i] - window)

    return computed("output_size", "size", each(spatial, size))


def _fractional(spatial: int) -> OpSpec:
    """Its random samples are an operand, so that the op itself draws none."""
    operand = Operand(
        rank=(spatial + 2,) * 2,
        accepts=has_spatial(spatial, 2),
        fresh=images(spatial, 2, 12 if spatial < 3 else 6),
        values=("ties", "integers", "normal"),
    )
    samples = Operand(
        "_random_samples",
        SAME,
        shape=lambda d: (*d.x.shape[:2], spatial),
        recipe=lambda d: Recipe("uniform"),
        keyword="_random_samples",
        fixed=True,
        within=True,
    )
    name = f"fractional_max_pool{spatial}d"
    params = (operand, _fractional_window(spatial), _fractional_target(spatial), samples)
    return OpSpec(name, FAMILY, f"torch.nn.functional.{name}", params)


def _pooled(spatial: int) -> Callable[[Draw], Shape]:
    """One row of pooled elements for each channel: then distinct indices give distinct places."""
    return lambda d: (d.size(1, 2), d.size(1, 3), *(1,) * (spatial - 1), d.size(1, 6))


def _unpool(spatial: int) -> OpSpec:
    """Windows that do not overlap, as large as the output allows."""

    def places(d: Draw) -> Recipe:
        window = per_dimension(d.attrs["kernel_size"], spatial)
        return Recipe("permutation", (math.prod(window) * d.x.shape[-1],))

    name = f"max_unpool{spatial}d"
    rank = spatial + 2
    return OpSpec(
        name,
        FAMILY,
        f"torch.nn.functional.{name}",
        (
            Operand(
                rank=(rank, rank),
                accepts=lambda t: t.numel > 0 and t.shape[2:-1] == (1,) * (spatial - 1),
                fresh=_pooled(spatial),
            ),
            computed("kernel_size", "size", each(spatial, lambda d, i: d.rng.randint(1, 3))),
            Operand("indices", INDEX, shape=like, recipe=places),
        ),
        entries=(f"nn.functional.{name}", f"nn.functional.{name}.grad"),
    )


TABLE = (
    *map(_fractional, (2, 3)),
    *map(_unpool, (1, 2, 3)),
    *map(_max_pool, (1, 2, 3)),
    *(_with_indices(_max_pool(spatial)) for spatial in (1, 2, 3)),
    *map(_avg_pool, (1, 2, 3)),
    *(_pool("adaptive_avg_pool", spatial, _target(spatial)) for spatial in (1, 2, 3)),
    *(_pool("adaptive_max_pool", spatial, _target(spatial)) for spatial in (1, 2, 3)),
    *map(_lp_pool, (1, 2)),
)
