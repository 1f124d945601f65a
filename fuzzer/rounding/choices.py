"""Random choices where an algorithm leaves results open: order of equal elements, signs, phases, orders of values."""

from __future__ import annotations

import math

import torch

from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.kernels.row import Kernel
from fuzzer.rounding.trace import Step, is_rounded

# The least size of an infinity and of NaN while equal elements are separated; no sorted value comes near.
_INFINITE, _NAN = 1.0 * 2.0**1023, 1.5 * 2.0**1023
MANY = 16  # equal elements, all of which some 200 random orders put in any place but for one time in 400,000
_APART = 0.25  # the separation of equal integers: less than half of the difference between unequal ones


def untied(leaf: object, generator: torch.Generator, step: Step, order: int = 0) -> object:
    """Equal elements separated by far less than a unit of the step's operands, integers and flags by less than one.
    Infinities, and NaN where it counts as the largest, become finite numbers, which `tied` takes back.

    order  0: at random. 1, -1: in memory order, or the reverse, as many algorithms have them: random orders alone do
           not try all of a thousand equal elements. In float64 2**-48 leaves room for some 32 places.
    """
    if not isinstance(leaf, torch.Tensor) or leaf.is_complex():
        return leaf
    given = leaf.double()
    if order:
        places = torch.arange(given.numel(), dtype=given.dtype, device=given.device).reshape(given.shape)
        drawn = order * (2 * places / max(given.numel(), 1) - 1)
    else:
        drawn = torch.empty_like(given).uniform_(-1.0, 1.0, generator=generator)
    if not leaf.dtype.is_floating_point:
        return given + drawn * _APART
    wide = any(ref.dtype.to_real() == torch.float64 for ref in step.inputs if is_rounded(ref))
    told = given + drawn * (given.abs() * (2**-48 if wide else 2**-30) + 2**-1000)
    told = torch.where(torch.isinf(given), torch.sign(given) * _INFINITE * (1.25 + drawn / 8), told)
    return torch.where(torch.isnan(given), _NAN * (1.25 + drawn / 8), told) if kernel(step).nan_is_largest else told


def undecided(operand: torch.Tensor, gradient: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of a step that orders its operand along `dim`, both of one shape: NaN in each group of more than
    MANY equal elements whose gradients differ, since any of them may have any of these."""
    ordered, places = operand.sort(dim=dim, stable=True)
    last = operand.shape[dim] - 1
    new = ordered.narrow(dim, 1, last) != ordered.narrow(dim, 0, last)
    group = torch.cat([torch.zeros_like(ordered.narrow(dim, 0, 1), dtype=torch.bool), new], dim).cumsum(dim)
    told = gradient.gather(dim, places)
    differs = (told.narrow(dim, 1, last) != told.narrow(dim, 0, last)) & ~new
    counted = torch.zeros_like(told)
    changes = counted.scatter_add(dim, group.narrow(dim, 1, last), differs.to(told.dtype))
    sizes = counted.scatter_add(dim, group, torch.ones_like(told))
    open_ = ((changes > 0) & (sizes > MANY)).gather(dim, group)
    return gradient.masked_fill(torch.zeros_like(open_).scatter(dim, places, open_), math.nan)


def tied(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The results of this dtype as they would be if the operands had not been separated."""
    if not value.dtype.is_floating_point:
        return value
    if not dtype.is_floating_point:
        return value.round().to(dtype)
    infinite = torch.where(value.abs() >= _INFINITE, torch.sign(value) * math.inf, value)
    return torch.where(value >= _NAN, math.nan, infinite).to(dtype).to(value.dtype)


def shuffled(row: Kernel, values: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Eigenvalues in random order where no order is defined, with their vectors."""
    if not row.unsorted:
        return values
    order = torch.rand(values[0].shape[-1], generator=generator, device=values[0].device).argsort()
    return [value[..., order] for value in values]


def signed(row: Kernel, values: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Eigenvectors and singular vectors with random signs of columns, and of the rows that belong to them."""
    columns, rows = row.signs_of or (None, None)
    if columns is None or values[columns].numel() == 0:
        return values
    moved = list(values)
    count = values[columns].shape[-1] if rows is None else min(values[columns].shape[-1], values[rows].shape[-2])
    drawn = _factors(count, values[columns], generator)
    wide = torch.ones(values[columns].shape[-1], dtype=drawn.dtype, device=drawn.device)
    wide[:count] = drawn
    moved[columns] = values[columns] * wide
    if rows is not None:
        high = torch.ones(values[rows].shape[-2], dtype=drawn.dtype, device=drawn.device)
        high[:count] = drawn.conj()
        moved[rows] = values[rows] * high[:, None]
    return moved


def _factors(count: int, columns: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random signs; for complex columns random phases."""
    if columns.is_complex():
        angles = torch.rand(count, generator=generator, device=columns.device, dtype=torch.float64)
        return torch.polar(torch.ones_like(angles), 2 * math.pi * angles)
    return torch.randint(0, 2, (count,), generator=generator, device=columns.device) * 2.0 - 1
