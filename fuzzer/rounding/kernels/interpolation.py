"""Interpolation, on the input's own grid or on a given one: weights that sum to 1, from rounded coordinates."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from fuzzer.rounding.kernels.bounds import by_largest_operands, in_units
from fuzzer.rounding.kernels.row import ACCUMULATION, EXACT, Evaluation, Hidden, Kernel, Noise, each
from fuzzer.rounding.precision import epsilon, float_tensors, growth, largest_of, own_unit, real_dtypes
from fuzzer.rounding.trace import Step

# ---------------------------------------------------------------- upsample


def _rounded_coordinates(step: Step, unit: float, adding: float, units: float) -> float:
    """Coordinates, as large as the sizes, are at least float32, and rounded before their fraction becomes a weight."""
    coordinate = min(unit, epsilon(torch.float32))
    sizes = (size for ref in (*step.inputs, *step.results) for size in ref.shape[2:])
    return unit + 4 * coordinate * max(sizes, default=1) + adding * units


def _nearby(e: Evaluation) -> list[torch.Tensor]:
    """The largest value in reach of a tap: it multiplies the error of a weight in a linear interpolation."""
    return [e.step.op(_dilated(_sizes(e.args[0])), *e.args[1:])]


def _nearby_backward(e: Evaluation) -> list[torch.Tensor]:
    return [_dilated(e.step.op(_sizes(e.args[0]), *e.args[1:]))]


def _sizes(field: torch.Tensor) -> torch.Tensor:
    return field.abs().nan_to_num(0, 0, 0)


def _reached(step: Step, args: Any, odd: torch.Tensor) -> torch.Tensor:
    """The neighbours of elements that are not finite: a kernel may add such an element with a weight of 0."""
    return step.op(_dilated(odd), *args[1:]) != 0  # type: ignore[no-any-return]


def _reached_backward(step: Step, args: Any, odd: torch.Tensor) -> torch.Tensor:
    reached = step.op(odd, *args[1:]) != 0
    return _dilated(reached.double()) > 0


def _dilated(field: torch.Tensor) -> torch.Tensor:
    """Nonnegative numbers; over the dims after the first two each becomes the largest of its neighbours."""
    for dim in range(2, field.dim()):
        wide = torch.nn.functional.pad(field.movedim(dim, -1), (1, 1))
        field = wide.unfold(-1, 3, 1).amax(-1).movedim(-1, dim)
    return field


_FORWARD: dict[str, Any] = {"inner": _rounded_coordinates, "reached": _reached, "scalars_in_double": True}
_BACKWARD: dict[str, Any] = _FORWARD | {"reached": _reached_backward}

# ---------------------------------------------------------------- grid_sample

# Modes are numbered. The cubic's coefficients ((a x - 5a) x + 8a) x - 4a with a = -3/4 pass through numbers up to 8 *
# 3/4 before they end below 1 (Keys 1981). Padding by reflection also divides.
_BICUBIC, _CUBIC_INNER = 2, 6.0
_NEAREST = 1  # GridSamplerInterpolation
_REFLECTION = 2


def _mode(step: Step) -> int:
    """The interpolation mode: the first integer."""
    return next((a for a in step.args if isinstance(a, int) and not isinstance(a, bool)), 0)


def _taps(step: Step, field: Any) -> int:
    """The number of taps in one result element."""
    taps: int = (4 if _mode(step) == _BICUBIC else 2) ** (len(field.shape) - 2)
    return taps


def _sampled(step: Step, unit: float, adding: float, units: float) -> float:
    """Errors of the taps; those of coordinates are separate (`_regridded`)."""
    return 2 * unit + adding * growth(float(_taps(step, step.args[0])), adding)


def _sampled_backward(step: Step, unit: float, adding: float, units: float) -> float:
    """The grid's gradient adds up taps of every channel."""
    return 2 * unit + adding * growth(_terms_of_grid(step), adding)


def _terms_of_grid(step: Step) -> float:
    return float(_taps(step, step.args[1]) * step.args[1].shape[1])


def _coordinate_unit(step: Step) -> float:
    """The error of weights: a unit of 1 for those between 0 and 1, more for cubic ones."""
    return own_unit(step) * (_CUBIC_INNER if _mode(step) == _BICUBIC else 1.0)


def _interpolated(e: Evaluation) -> Hidden:
    return [2 * _coordinate_unit(e.step) * _largest(e)[0]]


def _interpolated_backward(e: Evaluation) -> Hidden:
    """The grid's gradient sums, over channels and taps, a cotangent times differences of the input, times half of the
    input's size for a step of 1 in the grid; partial sums are as large as the root of the sum of squares."""
    unit, largest = _coordinate_unit(e.step), _largest(e)
    if e.step.args[3] == _NEAREST:  # the grid's gradient is 0
        return [2 * unit * largest[0], 0.0]
    cotangent, field = list(float_tensors(e.args))[:2]
    along = torch.tensor([size / 2 for size in reversed(field.shape[2:])], dtype=cotangent.dtype).to(cotangent.device)
    sums = cotangent.nan_to_num(0, 0, 0).square().sum(1).sqrt()[..., None] * along
    adding = e.adding * growth(_terms_of_grid(e.step), e.adding)
    return [2 * unit * largest[0], (4 * unit + 2 * adding) * largest[1] * sums]


def _largest(e: Evaluation) -> list[float]:
    return [largest_of([t.abs().nan_to_num(0, 0, 0)]) for t in float_tensors(e.args)]


def _regridded(at: int, step: Step, args: Any, noise: Noise, scale: float) -> Any:
    """A coordinate is computed as ((1 + x) * size - 1) / 2: three roundings of about 1 + x. at: the grid's place."""
    error = 3 * scale * own_unit(step) * (1 + args[at].abs())
    return (*args[:at], args[at] + noise(args[at]) * error, *args[at + 1 :])


def _exact_coordinates(at: int, step: Step, given: Any, moved: Any) -> Any:
    """Keep the original grid where no coordinate is rounded: on an edge, rounding cannot move it to either side."""
    if step.args[at + 2] == _REFLECTION:
        return moved
    kept = torch.where(_is_exact(step, step.args[at - 1], given[at]), given[at], moved[at])
    return (*moved[:at], kept, *moved[at + 1 :])


def _is_exact(step: Step, field: Any, grid: torch.Tensor) -> torch.Tensor:
    """Where a coordinate is computed without rounding, in any order: numbers with so few bits that (1 + x) * size and a
    quarter of its last bit fit the coarsest dtype."""
    bits = 1 - math.log2(torch.finfo(max(real_dtypes(step.inputs), key=epsilon)).eps)
    largest = (1 + grid.abs()) * max(field.shape[2:])
    scaled = torch.ldexp(grid, bits - 2 - largest.log2().ceil())
    return scaled == scaled.round()


TABLE = (
    *each(
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_lanczos2d_aa",
        cancels=in_units(_nearby),
        **_FORWARD,
    ),
    *each(
        """
        upsample_linear1d_backward upsample_bilinear2d_backward upsample_trilinear3d_backward
        _upsample_bilinear2d_aa_backward
        """,
        narrow=True,
        cancels=in_units(_nearby_backward),
        **_BACKWARD,
    ),
    Kernel("_upsample_lanczos2d_aa_backward", cancels=in_units(_nearby_backward), **_BACKWARD),
    *each("upsample_bicubic2d _upsample_bicubic2d_aa", cancels=by_largest_operands, **_FORWARD),
    *each(
        "upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward",
        narrow=True,
        cancels=by_largest_operands,
        **_BACKWARD,
    ),
    *each(
        """
        upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d
        """,
        EXACT,
        scalars_in_double=True,
    ),
    *each(
        """
        upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
        _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
        """,
        ACCUMULATION,
        narrow=True,
        cancels=by_largest_operands,
        scalars_in_double=True,
    ),
    *each(
        "grid_sampler_2d grid_sampler_3d",
        inner=_sampled,
        cancels=_interpolated,
        rounds_first=partial(_regridded, 1),
        kept=partial(_exact_coordinates, 1),
    ),
    *each(
        "grid_sampler_2d_backward grid_sampler_3d_backward",
        narrow=True,
        inner=_sampled_backward,
        cancels=_interpolated_backward,
        rounds_first=partial(_regridded, 2),
        kept=partial(_exact_coordinates, 2),
    ),
    *each("cudnn_grid_sampler _grid_sampler_2d_cpu_fallback", inner=_sampled, cancels=by_largest_operands),
    *each(
        "cudnn_grid_sampler_backward _grid_sampler_2d_cpu_fallback_backward",
        inner=_sampled_backward,
        cancels=by_largest_operands,
    ),
    Kernel("affine_grid_generator", cancels=by_largest_operands, calls_products=True),
    *each(
        "affine_grid_generator_backward cudnn_affine_grid_generator cudnn_affine_grid_generator_backward",
        cancels=by_largest_operands,
    ),
)
