"""Kernels that move, select, compare or fill.

No row is needed for kernels without a floating result (positions, flags, integers), unless they compare with a scalar,
nor for those that torch tags as a view in place or the copy of a view.
"""

from __future__ import annotations

from typing import Any

import torch

from fuzzer.rounding.kernels.row import COMPOUND, COPY, EXACT, Kernel, Kind, each
from fuzzer.rounding.trace import Step


def _rounded_to_decimals(step: Step) -> Kind:
    """Decimals are scaled, rounded and scaled back."""
    return COMPOUND if step.kwargs.get("decimals") or len(step.args) > 1 else EXACT


def _of_modulus(step: Step) -> Kind:
    """The modulus, for a complex operand."""
    return COMPOUND if any(ref.dtype.is_complex for ref in step.inputs) else EXACT


def _orders_ties(step: Step) -> bool:
    return step.kwargs.get("stable") is not True


def _shows_position(step: Step) -> bool:
    """Whether positions show which of several equal elements a median is; its value alone does not."""
    return _orders_ties(step) and len(step.args) != 1


def _largest_of_its_dtype(step: Step, precision: torch.dtype | None) -> tuple[Any, ...]:
    """The replacements of infinities: the largest numbers of the tensor's dtype, unless the call gives others."""
    if precision is None:
        return step.args
    largest = torch.finfo(precision).max
    numbers = [*step.args[1:], *[None] * (4 - len(step.args))]
    for at, default in enumerate((0.0, largest, -largest)):
        numbers[at] = default if numbers[at] is None else numbers[at]
    return (step.args[0], *numbers)


def _times_scattered(x: torch.Tensor, dim: int, index: torch.Tensor, source: Any, **_: Any) -> torch.Tensor | None:
    if not isinstance(source, torch.Tensor):
        return None
    counts = torch.zeros_like(x, dtype=torch.float64)
    return counts.scatter_add(dim, index, torch.ones_like(index, dtype=torch.float64))


def _times_copied(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    counts = torch.zeros_like(x, dtype=torch.float64)
    return counts.index_add(dim, index, torch.ones_like(source, dtype=torch.float64))


TABLE = (
    *each("cat stack fill", COPY),
    Kernel("scatter", EXACT, scatters_by=2, times_written=_times_scattered),
    Kernel("index_copy", EXACT, times_written=_times_copied),
    *each("clone _to_copy", COPY, copies_at=0),
    Kernel("copy", COPY, copies_at=1),
    *each(
        """
        gather index_select index _unsafe_masked_index take slice_scatter select_scatter diagonal_scatter
        as_strided_scatter index_fill masked_fill masked_scatter masked_scatter_backward where
        select_backward slice_backward diagonal_backward embedding im2col
        """,
        EXACT,
    ),
    *each("max min amax amin aminmax maximum minimum fmax fmin", EXACT, picks_zeros=True),
    *each("clamp clamp_min clamp_max hardtanh", EXACT, picks_zeros=True),
    *each("relu mode", EXACT),
    *each(
        """
        lt le gt ge eq ne threshold threshold_backward hardtanh_backward hardshrink hardshrink_backward
        softshrink_backward
        """,
        EXACT,
        decides=True,
    ),
    Kernel("nan_to_num", EXACT, spelt_out=_largest_of_its_dtype),
    Kernel("fmod", EXACT, jumps=True, decides=True),
    Kernel("nextafter", EXACT, on_its_grid=True),
    *each("sign floor ceil trunc frac heaviside", EXACT, jumps=True),
    *each("neg frexp complex _conj_physical", EXACT),
    Kernel("copysign", EXACT, sign_at=1),
    Kernel("round", EXACT, kind_of=_rounded_to_decimals, jumps=True),
    Kernel("abs", EXACT, kind_of=_of_modulus, modulus_at=0),
    Kernel("sgn", EXACT, kind_of=_of_modulus, modulus_at=0, jumps=True),
    *each("sort topk kthvalue", EXACT, ties=_orders_ties, nan_is_largest=True),
    Kernel("argsort", ties=_orders_ties, nan_is_largest=True),
    *each("median nanmedian", EXACT, ties=_shows_position),
    *each(
        """
        flip roll rot90 constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
        replication_pad2d replication_pad3d tril triu diag_embed block_diag repeat pixel_shuffle pixel_unshuffle
        channel_shuffle lu_unpack
        """,
        EXACT,
    ),
    # no op of the tables calls these: their shapes depend on numbers, or their operands are lengths
    *each("masked_select _unique2 unique_dim unique_consecutive _pack_padded_sequence", EXACT),
    *each("zeros ones full zero arange scalar_tensor", EXACT),
    *each("zeros_like ones_like full_like new_zeros new_ones new_full", EXACT, reads_geometry=True),
    *each("empty empty_strided", EXACT, uninitialised=True),
    *each("empty_like new_empty new_empty_strided", EXACT, uninitialised=True, reads_geometry=True),
    Kernel("empty_permuted", EXACT, uninitialised=True),
    *each("eye _efficientzerotensor", EXACT),
    Kernel("_new_zeros_with_same_feature_meta", unstated="no number of an operand reaches its result"),
    *each("rand_like randn_like", reads_geometry=True),
    Kernel("bernoulli", unstated="what eager drew is replayed"),
    *each(
        "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d",
        EXACT,
        picks_zeros=True,
    ),
    *each("max_unpool2d max_unpool3d", EXACT),
)
