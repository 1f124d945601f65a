"""Facts about a trace's accumulations before any perturbation: which are exact, how partial sums grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from fuzzer.rounding.arithmetic import (
    accumulates,
    accumulation_length,
    accumulator,
    divides_by_frequency,
    is_exact,
    is_primitive,
    narrow_part,
    reach,
)
from fuzzer.rounding.chains import GRIDS, Chain
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.precision import epsilon, float_tensors, growth, largest_of, narrows, real_dtypes, representable
from fuzzer.rounding.scalars import round_to
from fuzzer.rounding.trace import Ref, Step, is_rounded, mapped, tensors_in, widened

# Shorter sums are not examined: their effects are within the factors of the floor.
LONG = 32


@dataclass
class Accumulations:
    """Facts from the unperturbed replay about the steps that accumulate.

    exact     steps that cannot round: all operands are on so coarse a grid that every partial sum is representable.
    growths   the factor by which the accumulator's unit grows with the number of terms.
    partial   for long sums, the largest partial sums half-way along each dimension, of each result.
    sizes     where a partial sum may overflow, the sums of the summands' sizes, of each result; of a mean before the
              division.
    units     the errors of the kernel's operands and result inside it.
    chains    sums of gradients, by the number of each of their additions.
    attentions  the numbers of the steps that are the softmax of an attention.
    """

    exact: set[int] = field(default_factory=set)
    growths: dict[int, float] = field(default_factory=dict)
    partial: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    sizes: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    units: dict[int, float] = field(default_factory=dict)
    chains: dict[int, Chain] = field(default_factory=dict)
    attentions: frozenset[int] = frozenset()

    def initial(self, flat: torch.Tensor) -> torch.Tensor:
        return widened(flat)

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        return round_to(value, torch.float32)

    def inputs(self, number: int, step: Step, args: Any, kwargs: object) -> tuple[object, object]:
        if number in self.chains:
            self.chains[number].show(number, args)
        if is_exact(step) or is_primitive(step) or torch.Tag.pointwise in step.op.tags:
            return args, kwargs
        operands = list(float_tensors((args, kwargs)))
        terms = accumulation_length(step)
        if accumulates(step):
            divides = kernel(step).divides
            if not divides:
                counted = _changed(step, args, kwargs, torch.ones_like)
                terms = terms if counted is None else max(largest_of(counted), 1.0)
            sizes = None if divides else _changed(step, args, kwargs, torch.abs)
            # no partial sum is larger
            most = terms * math.prod(max(float(t.abs().max()), 1.0) for t in operands if t.numel())
            most = most if sizes is None else largest_of(sizes)
            if divides and most > reach(step):  # the sum that is divided may overflow
                sizes = [size * terms for size in _changed(step, args, kwargs, torch.abs) or ()]
            if sizes is not None and most > reach(step):
                self.sizes[number] = sizes
            if _on_grid(step, operands, most):
                self.exact.add(number)
            elif terms >= LONG:
                self.partial[number] = _half_sums(step, args, kwargs)
        self.growths[number] = _growth(step, terms, operands)
        return args, kwargs

    def results(
        self, number: int, step: Step, args: object, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return values

    def growth(self, number: int, step: Step) -> float:
        """The error of a sum of this step, relative to its partial sums, in units of the accumulator."""
        return self.growths.get(number, 1.0)


def _growth(step: Step, terms: float, operands: list[torch.Tensor]) -> float:
    """n / 8 for n equal summands added one by one, because within a binade of the partial sum all are rounded alike.

    The last binade takes half of them, each off by up to half a unit of the sum and by half of that on average.
    """
    if kernel(step).is_tree and accumulator(step) > epsilon(torch.float32):
        return math.sqrt(terms)
    plain = growth(terms, accumulator(step))
    if terms < LONG:
        return plain
    alike = all(map(_repeats, operands)) or (len(operands) == 1 and _ends_repeat(operands[0], terms, accumulator(step)))
    return max(terms / 8, plain) if alike else plain


def _repeats(operand: torch.Tensor) -> bool:
    """Whether a sample of a long operand holds few different numbers."""
    if operand.numel() < LONG:
        return True
    sample = operand.flatten()[:: operand.numel() // LONG][:LONG]
    return len(set(sample.abs().tolist())) <= LONG // 4


def _ends_repeat(operand: torch.Tensor, terms: float, unit: float) -> bool:
    """Whether all summands have about the same remainder below the digits of so long a sum: numbers on a coarse grid
    minus one that is not, as a softmax in float64 makes of float32."""
    if operand.numel() < LONG or operand.is_complex():
        return False
    largest = float(operand.abs().mean()) * terms
    if not math.isfinite(largest) or largest == 0:
        return False
    digit = unit * 2.0 ** math.floor(math.log2(largest))
    if digit == 0:  # the sum is so small that each of its digits is a number: nothing is rounded
        return False
    sample = operand.flatten()[:: operand.numel() // LONG][:LONG]
    ends = [(value / digit) % 1.0 for value in sample.tolist()]
    return any(ends) and len({math.floor(end * 2 * LONG) for end in ends}) <= LONG // 4


def _half_sums(step: Step, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The sizes of the step's results if its largest operand ended half-way, along one dimension or the other."""
    given = [(ref, t) for ref, t in zip(step.inputs, tensors_in((args, kwargs)), strict=True) if is_rounded(ref)]
    read = [t for ref, t in given if ref not in step.writes]
    whole = max(read or [t for _, t in given], key=torch.Tensor.numel)  # cumsum_ reads only the operand that it writes
    sums: list[torch.Tensor] = []
    for dim, size in enumerate(whole.shape):
        if size == 1:
            continue
        half = whole.clone()
        half.narrow(dim, size // 2, size - size // 2).zero_()
        moved: Any = mapped((args, kwargs), partial(_copy, whole, half))
        try:
            found = [t.abs() for t in float_tensors(step.op(*moved[0], **moved[1]))]
        except RuntimeError:
            return []
        sums = [torch.maximum(a, b) for a, b in zip(sums, found, strict=True)] if sums else found
    return sums


def _copy(old: torch.Tensor, new: torch.Tensor, leaf: object) -> object:
    """A copy, so that a step that writes does not change the original; for `old` the new tensor."""
    return (new if leaf is old else leaf.clone()) if isinstance(leaf, torch.Tensor) else leaf


def _changed(
    step: Step, args: object, kwargs: object, change: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor] | None:
    """The step's floating results on changed operands; None where the step refuses them."""

    def changed(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor) or not (leaf.dtype.is_floating_point or leaf.dtype.is_complex):
            return leaf
        return change(leaf).to(leaf.dtype)

    moved: Any = mapped((args, kwargs), changed)  # copies, so that a step that writes changes no original
    # a factor below 1 is applied to sums that were larger, and a negative one would let them cancel
    moved[1].update({name: max(1, abs(moved[1][name])) for name in ("alpha", "beta") if name in moved[1]})
    try:
        return list(float_tensors(step.op(*moved[0], **moved[1])))
    except RuntimeError:
        return None


def _on_grid(step: Step, operands: list[torch.Tensor], largest: float) -> bool:
    """Whether all operands are multiples of one grid on which partial sums up to `largest` are exact."""
    scalars = [a for a in (*step.args, *step.kwargs.values()) if isinstance(a, float)]
    if divides_by_frequency(step):
        return False
    if narrows(step) and not all(
        bool(representable(operand, dtype).all()) for operand in operands for dtype in real_dtypes(step.results)
    ):
        return False  # sum(dtype=torch.bfloat16) casts before it adds, says its documentation
    dtypes = real_dtypes((*step.inputs, *step.results))
    widest = max((epsilon(d) for d in dtypes), default=1.0)
    wide = kernel(step).wide and not narrow_part(step) and not step.narrow
    accumulator = min(widest, epsilon(torch.float32)) if wide else widest
    for grid in GRIDS:
        if any(not (a * grid).is_integer() for a in scalars):
            continue
        if all(bool(((t * grid) == (t * grid).round()).all()) for t in operands):
            return largest * grid ** max(len(operands), 1) <= 2 / accumulator
    return False
