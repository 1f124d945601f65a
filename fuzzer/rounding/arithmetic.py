"""How a step rounds and accumulates, and which of its results are open: read from the row of its kernel (`kernels`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.kernels.row import ACCUMULATION, COPY, EXACT, PRIMITIVE, Kind
from fuzzer.rounding.precision import ULPS, epsilon, narrows, real_dtypes
from fuzzer.rounding.trace import Ref, Step, Trace, is_rounded, once

VIEWS = frozenset((torch.Tag.view_copy, torch.Tag.inplace_view))


@once
def kind_of(step: Step) -> Kind:
    """The kind of this call, from its row."""
    row = kernel(step)
    return row.kind if row.kind_of is None else row.kind_of(step)


@once
def is_exact(step: Step) -> bool:
    """Whether the step only moves, selects or compares, into a dtype that holds all values exactly."""
    if not any(map(is_rounded, step.results)):
        return True
    if kind_of(step) not in (EXACT, COPY) and VIEWS.isdisjoint(step.op.tags):
        return False
    return not narrows(step)


@once
def is_primitive(step: Step) -> bool:
    """Whether the step is one IEEE operation or library function, accurate to about a unit of its result."""
    plain = kernel(step).by_parts or not any(ref.dtype.is_complex for ref in step.inputs)
    return kind_of(step) is PRIMITIVE and plain


@once
def rounds_once(step: Step) -> bool:
    """Whether the step only rounds its result, once, as moves to a narrower dtype do."""
    return is_primitive(step) or kind_of(step) is COPY


def accumulates(step: Step) -> bool:
    """Whether the step is a sum, of products or other terms: exact on coarse grids."""
    return kind_of(step) is ACCUMULATION


@once
def ties(step: Step) -> bool:
    """Whether the order of equal elements is undefined and visible in the result."""
    rule = kernel(step).ties
    return rule is not None and rule(step)


@once
def rounds_apart(step: Step) -> bool:
    """Whether an operand may be rounded otherwise than where else it is read."""
    row = kernel(step)
    return row.contracts or (row.recomputes and step.backward)


@once
def handed_on(step: Step) -> bool:
    """Whether the operation uses its operands unperturbed, in every replica."""
    row = kernel(step)
    changes = (row.rereads, row.divides_first, row.sign_at)
    moved = rounds_apart(step) or any(change is not None for change in changes) or _promotes_integers(step)
    return (rounds_once(step) or is_exact(step)) and not moved and not ties(step)


def accumulation_length(step: Step) -> float:
    """Terms that one result element may sum, at least 1; an upper bound where the step does not determine it."""
    if (rule := kernel(step).terms) is not None:
        return rule(step)
    if torch.Tag.pointwise in step.op.tags:
        return 1.0
    taken = max((ref.numel for ref in step.inputs if is_rounded(ref)), default=1)
    # the smallest result sums the most terms
    return max(1.0, taken / max(min((r.numel for r in step.results if r.numel and is_rounded(r)), default=1), 1))


def accumulator(step: Step) -> float:
    """The unit in which the step may keep its partial sums: at least float32's, unless they may be kept narrow."""
    coarsest = max(real_dtypes((*step.inputs, *step.results)), key=epsilon, default=torch.float64)
    own = epsilon(coarsest) * ULPS[coarsest]
    return own if kernel(step).narrow or step.narrow else min(own, epsilon(torch.float32))


def adding_narrow(trace: Trace) -> Trace:
    """The same recording, except that gradients of views may be added up as the backward of as_strided adds them: one
    by one, in their own dtype."""
    return replace(trace, steps=[replace(s, narrow=s.backward and kernel(s).shrinks) for s in trace.steps])


def narrow_part(step: Step) -> bool:
    """Whether a kernel that accumulates in float32 may still add to a value already rounded to half precision."""
    row = kernel(step)
    return row.adds_to_product or (row.adds_rounded is not None and row.adds_rounded(step))


def reach(step: Step) -> float:
    """The largest number that a partial sum of the step may be, in the narrowest precision in which it may be kept."""
    dtypes = real_dtypes((*step.inputs, *step.results))
    least = min((torch.finfo(d).max for d in dtypes), default=math.inf)
    narrow = kernel(step).narrow or step.narrow or narrow_part(step)
    return least if narrow else max(least, torch.finfo(torch.float32).max)


def divides_by_frequency(step: Step) -> bool:
    """Whether the step's gradient is divided by the frequency of its index (scale_grad_by_freq)."""
    at = kernel(step).frequency_at
    return at is not None and bool(step.args[at])


def inner_unit(step: Step, growth: float) -> float:
    """The error of operands and results inside the kernel, relative to their size.

    growth   the error of a sum of the step, in units of the accumulator.
    """
    row = kernel(step)
    dtypes = real_dtypes((*step.inputs, *step.results))
    if not dtypes:
        return 0.0
    if step.autocast is not None and row.calls_products:
        dtypes.append(step.autocast)
    coarsest = max(dtypes, key=epsilon)
    unit, adding = epsilon(coarsest) * ULPS[coarsest], accumulator(step)
    if row.wide and not narrows(step) and not step.narrow:
        if unit > epsilon(torch.float32) and row.adds_to_product:  # adds to a product that has been rounded
            return unit + adding * growth
        return min(unit, epsilon(torch.float32)) * (1 + growth)
    return 2 * unit + adding * growth if row.inner is None else row.inner(step, unit, adding, growth)


@once
def decides(step: Step) -> bool:
    """Whether the step's result jumps at an operand."""
    rule = kernel(step).decides
    return rule(step) if callable(rule) else rule


@once
def promotes(step: Step) -> bool:
    """Whether the step compares or divides its operands, or hands one on, as numbers of the dtype that it promotes them
    to: that is no rounding of its own."""
    return decides(step) or (kind_of(step) is EXACT and torch.Tag.pointwise in step.op.tags)


@once
def _promotion(step: Step) -> torch.dtype | None:
    """The dtype to which the step promotes operands of different dtypes, as torch does; None where all have one."""
    refs = [ref for ref in step.args if isinstance(ref, Ref)]
    if len({ref.dtype for ref in refs}) < 2:
        return None
    first, *others = [torch.empty((1,) * len(ref.shape), dtype=ref.dtype, device="meta") for ref in refs]
    dtype = torch.result_type(first, others[0])
    return dtype if len(others) == 1 and dtype.is_floating_point else None


def _promotes_integers(step: Step) -> bool:
    """Whether the step reads integers as numbers of a dtype that does not hold all of them: `pow` of bfloat16 takes 275
    for 276."""
    whole = any(isinstance(ref, Ref) and ref.dtype in _WHOLE for ref in step.args)
    return whole and torch.Tag.pointwise in step.op.tags and _promotion(step) is not None


_WHOLE = (torch.int64, torch.int32, torch.int16)


def promoted(step: Step, args: Any) -> Any:
    """The operands, rounded to the dtype to which the step promotes them."""
    dtype = _promotion(step)
    if dtype is None:
        return args
    alike = (dtype, torch.bool)  # a mask stays one
    return tuple(
        leaf.to(dtype).double() if isinstance(ref, Ref) and ref.dtype not in alike and ref not in step.writes else leaf
        for ref, leaf in zip(step.args, args, strict=True)
    )


@once
def rescales(step: Step) -> bool:
    """Whether the step multiplies by a factor that is itself rounded."""
    rule = kernel(step).rescales
    return rule is not None and rule(step)


def units(step: Step, dtype: torch.dtype) -> float:
    """The possible error of the step's result of this dtype, in units of the last place."""
    known = kernel(step).units
    return ULPS[dtype] if known is None else known[{torch.float64: 0, torch.float32: 1}.get(dtype, 2)]
