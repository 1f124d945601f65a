"""The precision of floating dtypes: units and ranges, also of those that a step takes and returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from fuzzer.language.values import real_parts
from fuzzer.rounding.trace import Ref, Step, is_rounded, once

# Deviation allowed to one rounding, in units of the last place (see `perturb`).
ULPS = {torch.float64: 1.0, torch.float32: 1.0, torch.bfloat16: 0.5, torch.float16: 0.5}


def epsilon(dtype: torch.dtype) -> float:
    """The distance from 1 to the next number of the dtype."""
    return torch.finfo(dtype).eps


def real_dtypes(refs: Sequence[Ref]) -> list[torch.dtype]:
    """The dtypes of the floating refs, and of complex ones' parts."""
    return [r.dtype.to_real() for r in refs if is_rounded(r)]


def own_unit(step: Step) -> float:
    """The unit of the coarsest dtype that the step takes or returns."""
    coarsest = max(real_dtypes((*step.inputs, *step.results)), key=epsilon)
    return epsilon(coarsest) * ULPS[coarsest]


@once
def narrows(step: Step) -> bool:
    """Whether the step returns a coarser dtype than it takes: then it may have rounded its operands first.

    A dtype of smaller range is coarser too: bfloat16's small numbers underflow in float16, whose unit is finer.
    """
    taken, given = real_dtypes(step.inputs), real_dtypes(step.results)
    if not taken or not given:
        return False
    coarser = max(map(epsilon, given)) > min(map(epsilon, taken))
    return coarser or min(torch.finfo(d).max for d in given) < max(torch.finfo(d).max for d in taken)


def growth(terms: float, unit: float) -> float:
    """The error of a sum of so many terms, in units: sqrt(n), for independent roundings.

    Where the partial sums grow so large that their unit exceeds whole summands, all may be lost: 1 / unit at most.
    Before that, the small summands are lost: a share of the sum that grows as the square of its unit.
    """
    return min(terms, 1 / unit) if terms * unit >= 0.5 else math.sqrt(terms) + terms * terms * unit / 16


def underflow(dtype: torch.dtype, gradual: bool = False) -> float:
    """Smallest absolute error of a nonzero result: gradual underflow for float16, flush to zero for the others.

    Compiled CPU code links with -ffast-math, which switches the whole process to flush-to-zero; CUDA's approximate
    functions flush too. float16 values are computed as float32, in which they are normal.
    """
    info = torch.finfo(dtype)
    return float(info.smallest_normal) * (float(info.eps) if gradual or dtype == torch.float16 else 1.0)


def representable(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where a float64 value is exactly a number of `dtype`, where a complex one is in both parts.

    For float64 itself every value is; there a value counts whose last 29 bits are zero (a float32 number), which a
    rounded result has with probability 2**-29.
    """
    if value.is_complex():
        return representable(torch.view_as_real(value), dtype.to_real()).all(-1)
    narrow = torch.float32 if dtype == torch.float64 else dtype
    return value.to(narrow).double() == value


def float_tensors(tree: object) -> Iterator[torch.Tensor]:
    """The floating tensors in nested lists, tuples and dicts; complex ones by their parts."""
    if isinstance(tree, torch.Tensor):
        if tree.dtype.is_floating_point:
            yield tree
        elif tree.dtype.is_complex:
            yield real_parts(tree)
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from float_tensors(item)
    elif isinstance(tree, dict):
        yield from float_tensors(list(tree.values()))


def largest_of(tensors: Sequence[torch.Tensor]) -> float:
    """The largest element of any of them that is a number, at least 0."""
    return max((float(t.nan_to_num(0.0, math.inf, -math.inf).max()) for t in tensors if t.numel()), default=0.0)


def by_parts(value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """change(value); of a complex tensor, change of its parts, which stand along a last dimension."""
    return torch.view_as_complex(change(real_parts(value)).contiguous()) if value.is_complex() else change(value)


def modulus(parts: torch.Tensor) -> torch.Tensor:
    """The modulus of complex numbers, once for each of their parts."""
    return torch.hypot(parts[..., :1], parts[..., 1:]).expand_as(parts)
