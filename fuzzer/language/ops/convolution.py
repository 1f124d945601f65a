"""Convolutions, and the window copies beneath them."""

from __future__ import annotations

from collections.abc import Callable

from fuzzer.language.ops.pooling import each, extents
from fuzzer.language.ops.spec import (
    SAME,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    computed,
    has_spatial,
    images,
    per_dimension,
    spatial_rank,
)
from fuzzer.language.program import FLOATS, Shape, Value

FAMILY = "convolution"


def _channels(d: Draw, spatial: int) -> int:
    return d.x.shape[-spatial - 1]


def _groups(spatial: int) -> Attribute:
    """A divisor of the channels; 1 and all of them (depthwise) most often."""

    def draw(d: Draw) -> Value:
        count = _channels(d, spatial)
        return d.rng.choice((1, 1, count, *(k for k in range(1, count + 1) if count % k == 0)))

    return computed("groups", "integer", draw, 1)


def _number(name: str, spatial: int, low: int, high: int, default: int) -> Attribute:
    """A number for each spatial dimension: the default, or low..high."""
    return computed(
        name, "size", each(spatial, lambda d, i: d.rng.choice((default, d.rng.randint(low, high)))), default
    )


def _attribute_of(d: Draw, name: str, spatial: int) -> tuple[int, ...]:
    return per_dimension(d.attrs[name], spatial)


def _padding(spatial: int) -> Attribute:
    """Numbers, or "same" (with a stride of 1 only) or "valid"."""
    numbers = each(spatial, lambda d, i: d.rng.choice((0, 0, 1, 2, 3)))

    def draw(d: Draw) -> Value:
        if d.rng.random() < 0.2:
            return "same" if d.attrs["stride"] == 1 else "valid"
        return numbers(d)

    return computed("padding", "size", draw, 0)


def _weight(spatial: int) -> Callable[[Draw], Shape]:
    """(out channels, channels / groups, *window); the dilated window fits into the padded input."""

    def draw(d: Draw) -> Shape:
        pads = d.attrs["padding"]
        pads = (0,) * spatial if isinstance(pads, str) else per_dimension(pads, spatial)
        window = []
        for size, pad, step in zip(extents(d, spatial), pads, _attribute_of(d, "dilation", spatial), strict=True):
            most = min((size + 2 * pad - 1) // step + 1, 5 if spatial < 3 else 3)
            window.append(d.rng.choice((most, d.rng.randint(1, most))))
        split: int = d.attrs["groups"]  # type: ignore[assignment]
        return (split * d.rng.randint(1, max(1, 8 // split)), _channels(d, spatial) // split, *window)

    return draw


def _output_padding(spatial: int) -> Attribute:
    """Smaller than the stride or the dilation, as torch demands."""

    def size(d: Draw, i: int) -> int:
        steps = (_attribute_of(d, name, spatial)[i] for name in ("stride", "dilation"))
        return d.rng.choice((0, d.rng.randint(0, max(steps) - 1)))

    return computed("output_padding", "size", each(spatial, size), 0)


def _transposed_weight(spatial: int) -> Callable[[Draw], Shape]:
    """(channels, out channels / groups, *window); the window is wide enough to leave an output of size 1 or more."""

    def draw(d: Draw) -> Shape:
        names = ("stride", "padding", "output_padding", "dilation")
        window = []
        for i, size in enumerate(extents(d, spatial)):
            step, pad, extra, spread = (_attribute_of(d, name, spatial)[i] for name in names)
            missing = 2 * pad - (size - 1) * step - extra
            least = max(1, -(-missing // spread) + 1)
            window.append(d.rng.randint(least, max(least, 4 if spatial < 3 else 3)))
        split: int = d.attrs["groups"]  # type: ignore[assignment]
        return (_channels(d, spatial), d.rng.randint(1, max(1, 6 // split)), *window)

    return draw


def _image(spatial: int, dtypes: tuple[str, ...]) -> Operand:
    return Operand(
        dtypes=dtypes,
        rank=spatial_rank(spatial),
        accepts=has_spatial(spatial),
        fresh=images(spatial, most=16 if spatial < 3 else 6),
    )


def _conv(spatial: int, dtypes: tuple[str, ...] = FLOATS) -> OpSpec:
    return OpSpec(
        f"conv{spatial}d",
        FAMILY,
        f"torch.nn.functional.conv{spatial}d",
        (
            _image(spatial, dtypes),
            _number("stride", spatial, 1, 3, 1),
            _padding(spatial),
            _number("dilation", spatial, 1, 2, 1),
            _groups(spatial),
            Operand("weight", SAME, shape=_weight(spatial)),
            Operand("bias", SAME, shape=lambda d: d.operands[1].shape[:1], absent=0.4),
        ),
    )


def _conv_transpose(spatial: int, dtypes: tuple[str, ...] = FLOATS) -> OpSpec:
    return OpSpec(
        f"conv_transpose{spatial}d",
        FAMILY,
        f"torch.nn.functional.conv_transpose{spatial}d",
        (
            _image(spatial, dtypes),
            _number("stride", spatial, 1, 3, 1),
            _number("dilation", spatial, 1, 2, 1),
            _number("padding", spatial, 0, 2, 0),
            _output_padding(spatial),
            _groups(spatial),
            Operand("weight", SAME, shape=_transposed_weight(spatial)),
            Operand("bias", SAME, shape=lambda d: (d.operands[1].shape[1] * d.attrs["groups"],), absent=0.4),
        ),
    )


def _window(d: Draw, i: int) -> int:
    """A window that fits into the padded input under the dilation."""
    pad, spread = _attribute_of(d, "padding", 2)[i], _attribute_of(d, "dilation", 2)[i]
    return d.rng.randint(1, min((extents(d, 2)[i] + 2 * pad - 1) // spread + 1, 4))


TABLE = (
    *map(_conv, (1, 2, 3)),
    *map(_conv_transpose, (1, 2, 3)),
    OpSpec(
        "im2col",
        FAMILY,
        "torch.nn.functional.unfold",
        (
            _image(2, FLOATS),
            _number("padding", 2, 0, 2, 0),
            _number("dilation", 2, 1, 2, 1),
            _number("stride", 2, 1, 3, 1),
            computed("kernel_size", "size", each(2, _window)),
        ),
    ),
)
