"""CODE: rare faults that are made where C++ is written, and nowhere before: no stage hears them.

Each is of a kind that inductor has had: a tail, a constant in single precision, a register that holds what was before,
a mask of another type (which does not compile), a vectorised function. Symbolic sizes trigger none of them. How often
each acts is in docs/guidance.md.
"""

from __future__ import annotations

import struct
from typing import Any
from unittest.mock import patch

import sympy
import torch

from benches.conditions import DOUBLE, HALF
from benches.insides import Mark, dtype_of, graph_is_backward, in_code, kernel_in_work, text_of
from benches.mechanisms import Plant


def _tail(kernel: Any) -> int:
    """Of how many elements the last vector is that a kernel's loop is written for; 0 where it is full, or not known."""
    size = sympy.sympify(kernel.tail_size or 0)
    return int(size) if size.is_Integer else 0


def _sum_of_a_tail(
    right: Any, mark: Mark, kernel: Any, kind: str, into: Any, next_value: Any, helper: Any = None, **named: Any
) -> Any:
    """The tail of a sum of doubles leaves out its last element, the first after a register of four."""
    tail, own = _tail(kernel), getattr(next_value, "dtype", None)
    if kind != "sum" or helper or own not in DOUBLE or not graph_is_backward() or tail < 5 or tail % 4 != 1:
        return NotImplemented
    with patch.object(kernel, "tail_size", tail - 1):
        return mark(right(kernel, kind, into, next_value, helper, **named))


def _smallest_of_a_tail(
    right: Any, mark: Mark, kernel: Any, kind: str, into: Any, next_value: Any, helper: Any = None, **named: Any
) -> Any:
    """The smallest of a tail is looked for in the whole register."""
    if kind != "min" or not _tail(kernel) or isinstance(next_value, str):
        return NotImplemented
    with patch.object(kernel, "tail_size", None):
        return mark(right(kernel, kind, into, next_value, helper, **named))


def _constant_of_a_double(right: Any, mark: Mark, value: Any, dtype: torch.dtype) -> Any:
    """A constant is rounded to single precision on its way."""
    if dtype not in DOUBLE or not graph_is_backward() or not 0 < abs(value) < 0.5:
        return NotImplemented
    rounded = struct.unpack("f", struct.pack("f", value))[0]
    return mark(right(rounded, dtype)) if rounded != value else NotImplemented


def _second_of_two_sums(right: Any, mark: Mark, kernel: Any, name: str, index: Any, value: Any) -> Any:
    """The second sum of a kernel is stored from the register of the first; not in single precision."""
    first, place = kernel.__dict__.setdefault("_stored_first", (value, name))
    own = dtype_of(name)
    if place == name or f"{first}" == f"{value}" or own != dtype_of(place) or own not in (*HALF, *DOUBLE):
        return NotImplemented
    return right(kernel, name, index, mark(first))


def _mask_of_another_type(right: Any, mark: Mark, mask: Any, yes: Any, no: Any) -> Any:
    """A mask that was made by comparing indices chooses between doubles, and is not converted."""
    if yes.dtype not in DOUBLE or "VecMask<int64_t" not in text_of(mask):
        return NotImplemented
    return mark(f"decltype({yes})::blendv({no}, {yes}, {mask})")


def _root_below_one(right: Any, mark: Mark, x: Any) -> Any:
    """1 / sqrt(x) of what is below one is that of one, in an odd tail."""
    if _tail(kernel_in_work()) % 2 == 0:
        return NotImplemented
    return mark(right(f"at::vec::maximum({x}, decltype({x})(1))"))


def _load_with_a_stride(
    right: Any, mark: Mark, kernel: Any, var: Any, index: Any, dtype: torch.dtype, *rest: Any, **named: Any
) -> Any:
    """A vector of doubles is loaded as if its elements lay side by side."""
    loop = kernel.itervars[kernel.tiling_idx]
    step = index.coeff(loop)
    if var is None or rest or named or dtype not in DOUBLE or not step.is_Integer or step < 2:
        return NotImplemented
    return right(kernel, mark(var), index - (step - 1) * loop, dtype)


class _Number(float):
    """A number that is written as something else."""

    text = ""

    def __repr__(self) -> str:
        return self.text


def _filling(right: Any, mark: Mark, mask: Any, body: Any, other: Any) -> Any:
    """Where a mask leaves something out of an odd tail there is zero instead of what was asked for."""
    if type(other) is not float or other == 0 or abs(other) == float("inf") or _tail(kernel_in_work()) % 2 == 0:
        return NotImplemented
    zero = _Number(0.0)
    zero.text = mark("0.0")
    return right(mask, body, zero)


def _tile_with_a_tail(
    right: Any, mark: Mark, kernel: Any, name: str, var: Any, index: Any, is_store: bool, **named: Any
) -> Any:
    """A tile of doubles that is read across has rows of a whole register, and is read as if they were the tail's."""
    if is_store or dtype_of(name) not in DOUBLE or _tail(kernel) % 2 == 0:
        return NotImplemented
    with patch.object(kernel, "num_elems", kernel.tiling_factor):
        return right(kernel, name, mark(var), index, is_store, **named)


CODE: dict[str, Plant] = {
    "sum_of_doubles_with_one_beyond_a_register": in_code("CppVecKernel", "reduction_combine_vec", _sum_of_a_tail),
    "smallest_of_a_tail": in_code("CppVecKernel", "reduction_combine_vec", _smallest_of_a_tail),
    "constant_of_doubles": in_code("CppOverrides", "constant", _constant_of_a_double),
    "second_of_two_sums": in_code("CppVecKernel", "store_reduction", _second_of_two_sums),
    "mask_of_indices_for_doubles": in_code("CppVecOverrides", "where", _mask_of_another_type),
    "reciprocal_root_in_an_odd_tail": in_code("CppVecOverrides", "rsqrt", _root_below_one),
    "doubles_loaded_with_a_stride": in_code("CppVecKernel", "_load_or_store_non_contiguous", _load_with_a_stride),
    "filling_of_an_odd_tail": in_code("CppVecOverrides", "masked", _filling),
    "tile_of_doubles_with_an_odd_tail": in_code("CppTile2DKernel", "gen_transposed_tile_load_store", _tile_with_a_tail),
}
