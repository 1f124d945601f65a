"""Resampling of images."""

from __future__ import annotations

from fuzzer.language.ops.pooling import each, extents
from fuzzer.language.ops.spec import (
    SAME,
    WIDE,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    has_spatial,
    images,
    nonempty,
    spatial_rank,
)
from fuzzer.language.program import FLOATS, Shape, Value

FAMILY = "interpolate"


def _target(d: Draw) -> Value:
    """None (then a scale is given), or a size for each spatial dimension: smaller, equal or larger."""
    if d.rng.random() < 0.5:
        return None
    spatial = d.x.rank - 2
    size = each(spatial, lambda d, i: d.rng.choice((1, extents(d, spatial)[i], d.rng.randint(1, 12))))
    return size(d)


def _scale(d: Draw) -> Value:
    """A factor that leaves at least one element in each dimension, where no size is given. 1.1 and 2.2 give small sizes
    themselves and their doubles."""
    if d.attrs["size"] is not None:
        return None
    least = 1 / min(extents(d, d.x.rank - 2))
    most = (4 * d.limits.max_numel / d.x.numel) ** (1 / (d.x.rank - 2))
    factors = [f for f in (0.37, 0.5, 0.75, 1.0, 1.1, 1.5, 2.0, 2.2, 3.0) if least <= f <= max(most, 1.0)]
    if d.rng.random() < 0.3:
        return tuple(d.rng.choice(factors) for _ in range(d.x.rank - 2))
    return d.rng.choice(factors)


def _recompute(d: Draw) -> Value:
    """True only with a scale, from which the size can be recomputed."""
    return d.rng.choice((None, None, True, False)) if d.attrs["size"] is None else None


def _antialias(d: Draw) -> Value:
    """False on half precision, for which the CPU has no antialiasing."""
    return d.x.dtype in WIDE and d.rng.random() < 0.5


def _interpolate(mode: str, *ranks: int, aligned: bool = False, smooth: bool = False) -> OpSpec:
    """`ranks` of the input; `aligned`: has align_corners; `smooth`: has antialias."""

    def fresh(d: Draw) -> Shape:
        return images(d.rng.choice(ranks) - 2, most=10)(d)

    attributes: list[Attribute] = [
        computed("size", "size", _target, None),
        computed("scale_factor", "real", _scale, None),
        choice("mode", mode, default="nearest"),
        computed("recompute_scale_factor", "flag", _recompute, None),
    ]
    if aligned:
        attributes.append(choice("align_corners", None, True, False, default=None))
    if smooth:
        attributes.append(computed("antialias", "flag", _antialias, False))
    operand = Operand(rank=(min(ranks), max(ranks)), accepts=nonempty, fresh=fresh)
    name = f"interpolate_{mode.replace('-', '_')}"
    entry = f"nn.functional.interpolate.{mode}"
    return OpSpec(name, FAMILY, "torch.nn.functional.interpolate", (operand, *attributes), entries=(entry,))


def _many_channels(d: Draw) -> Shape:
    return (
        *(d.size(1, 3) for _ in range(d.rng.randint(0, 2))),
        d.rng.choice((1, 4, 8, 9, 18)),
        d.size(1, 8),
        d.size(1, 8),
    )


def _square_divisor(d: Draw) -> Value:
    return d.rng.choice(
        [k for k in (1, 2, 3) if d.x.shape[-3] % (k * k) == 0 and (k > 1 or d.rng.random() < 0.3)] or [1]
    )


def _common_divisor(d: Draw) -> Value:
    return d.rng.choice([k for k in (1, 2, 3) if d.x.shape[-2] % k == 0 == d.x.shape[-1] % k])


def _divisor_of_channels(d: Draw) -> Value:
    return d.rng.choice([k for k in range(1, d.x.shape[1] + 1) if d.x.shape[1] % k == 0])


def _grid(d: Draw) -> Shape:
    """(batch, *output, spatial) coordinates."""
    spatial = d.x.rank - 2
    return (d.x.shape[0], *(d.size(1, 6) for _ in range(spatial)), spatial)


def _grid_sample(spatial: int, *modes: str) -> OpSpec:
    return OpSpec(
        f"grid_sample{spatial}d",
        FAMILY,
        "torch.nn.functional.grid_sample",
        (
            Operand(
                dtypes=FLOATS,
                rank=(spatial + 2, spatial + 2),
                accepts=has_spatial(spatial),
                fresh=images(spatial, most=8),
            ),
            # coordinates in -1..1 are inside the image; the corners are on the border and outside
            Operand("grid", SAME, shape=_grid, values=("unit", "corners", "normal")),
            choice("mode", *modes, default="bilinear"),
            choice("padding_mode", "zeros", "border", "reflection", default="zeros"),
            choice("align_corners", None, True, False, default=None),
        ),
    )


def _grid_size(d: Draw) -> int:
    """Mostly above 1: with size 1 the first compile raises (torch 2.11 and 2.13), which hides everything else."""
    return d.size(2, 8) if d.rng.random() < 0.97 else 1


TABLE = (
    _interpolate("nearest", 3, 4, 5),
    _interpolate("nearest-exact", 3, 4, 5),
    _interpolate("linear", 3, aligned=True),
    _interpolate("bilinear", 4, aligned=True, smooth=True),
    _interpolate("bicubic", 4, aligned=True, smooth=True),
    _interpolate("trilinear", 5, aligned=True),
    _interpolate("area", 3, 4, 5),
    OpSpec(
        "pixel_shuffle",
        FAMILY,
        "torch.nn.functional.pixel_shuffle",
        (
            Operand(rank=spatial_rank(2), accepts=nonempty, fresh=_many_channels),
            computed("upscale_factor", "integer", _square_divisor),
        ),
    ),
    OpSpec(
        "pixel_unshuffle",
        FAMILY,
        "torch.nn.functional.pixel_unshuffle",
        (
            Operand(
                rank=spatial_rank(2),
                accepts=nonempty,
                fresh=lambda d: (d.size(1, 3), d.size(1, 3), 6 * d.size(1, 2), 6 * d.size(1, 2)),
            ),
            computed("downscale_factor", "integer", _common_divisor),
        ),
    ),
    OpSpec(
        "channel_shuffle",
        FAMILY,
        "torch.channel_shuffle",
        (
            Operand(rank=(3, 5), accepts=nonempty, fresh=images(2, most=6)),
            computed("groups", "integer", _divisor_of_channels),
        ),
        entries=("nn.functional.channel_shuffle",),
    ),
    *(
        OpSpec(
            name,
            FAMILY,
            f"torch.nn.functional.{name}",
            (
                Operand(rank=(4, 4), accepts=nonempty, fresh=images(2, most=10)),
                computed("size", "size", _target, None),
                computed("scale_factor", "real", _scale, None),
            ),
        )
        for name in ("upsample_nearest", "upsample_bilinear")
    ),
    _grid_sample(2, "bilinear", "nearest", "bicubic"),
    _grid_sample(3, "bilinear", "nearest"),
    OpSpec(
        "affine_grid",
        FAMILY,
        "torch.nn.functional.affine_grid",
        (
            Operand(
                "theta",
                WIDE,
                rank=(3, 3),
                accepts=lambda t: t.shape[0] > 0 and t.shape[1:] == (2, 3),
                fresh=lambda d: (d.size(1, 4), 2, 3),
            ),
            computed("size", "shape", lambda d: (d.x.shape[0], 1, _grid_size(d), _grid_size(d))),
            choice("align_corners", None, True, False, default=None),
        ),
    ),
)
