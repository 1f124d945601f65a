"""The dtype in which eager's kernels read a scalar that decides a jump, found by calling the kernels themselves.

If a half-precision tensor is compared with 0.7, the kernel's reading of 0.7 (the number itself, or the nearest one of
the tensor's dtype) decides on which side of a jump an element is. Kernels differ in that, and so do devices; but
each has one way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fuzzer.rounding.trace import Ref, Step, is_rounded, mapped


def round_to(value: float, dtype: torch.dtype) -> float:
    """The nearest number of a dtype."""
    return float(torch.tensor(value, dtype=torch.float64).to(dtype))


def on_grid(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The nearest numbers of a dtype to those of a float64 tensor; a number beyond the dtype's range stays itself."""
    rounded = value.to(dtype).double()
    return torch.where(torch.isfinite(rounded) & ((rounded != 0) | (value == 0)), rounded, value)


def eager_reading(step: Step, value: float, dtype: torch.dtype, devices: Sequence[str]) -> torch.dtype | None:
    """The dtype in which the kernel reads this scalar beside tensors of `dtype`: that or float32.

    None where it makes no difference, where the kernels of these devices differ, and where the result does not show it.
    """
    known = step.__dict__.setdefault("eager_reading", {})
    key = value, *devices
    if key not in known:
        told = {_asked(step, value, dtype, device) for device in devices}
        known[key] = told.pop() if len(told) == 1 else None
    found: torch.dtype | None = known[key]
    return found


def _asked(step: Step, value: float, dtype: torch.dtype, device: str) -> torch.dtype | None:
    """The kernel's own reading, tested at the number of the dtype next to the scalar, where readings differ most."""
    kept, rounded = round_to(value, torch.float32), round_to(value, dtype)
    if kept == rounded:
        return None
    for point in (rounded, -rounded):
        try:
            own = _called(step, value, value, point, device).cpu()
            wide = [_called(step, value, read, point, "cpu", torch.float64).to(own.dtype) for read in (kept, rounded)]
        except (RuntimeError, TypeError, NotImplementedError):
            return None
        if not torch.equal(*wide):
            return torch.float32 if torch.equal(own, wide[0]) else dtype if torch.equal(own, wide[1]) else None
    return None


def _called(
    step: Step, value: float, read: float, point: float, device: str, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The step's kernel, with `read` in place of the scalar, on tensors of one element that hold the point."""

    def given(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            own = dtype if dtype is not None and is_rounded(leaf) else leaf.dtype
            return torch.full((1,) if leaf.shape else (), point, dtype=own, device=device)
        return read if isinstance(leaf, float) and leaf == value else leaf

    args, kwargs = mapped((step.args, step.kwargs), given)
    found: torch.Tensor = step.op(*args, **kwargs)
    return found
