"""Rules that rows of several families share: the number of summed terms, the size of cancelled ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from fuzzer.rounding.kernels.row import Evaluation, Hidden
from fuzzer.rounding.precision import float_tensors
from fuzzer.rounding.trace import Step, is_rounded


def per_largest_result(step: Step) -> float:
    """The elements of its largest operand over those of its largest result."""
    taken = max((ref.numel for ref in step.inputs if is_rounded(ref)), default=1)
    given = max((ref.numel for ref in step.results if is_rounded(ref)), default=1)
    return max(1.0, taken / max(given, 1))


def in_units(sizes: Callable[[Evaluation], list[torch.Tensor]]) -> Callable[[Evaluation], Hidden]:
    """Errors of each result, from sizes in units of the kernel's own arithmetic."""
    return lambda e: [e.unit * size for size in sizes(e)]


def by_largest_operands(e: Evaluation) -> float:
    """The product of the operands' largest elements, a bound of the summands."""
    return _by_largest(e, [])


def by_largest_operands_and_third_result(e: Evaluation) -> float:
    """That bound times a normalisation's third result, 1 / deviation, which scales x - mean(x)."""
    return _by_largest(e, e.results[len(e.step.writes) :][2:3])


def _by_largest(e: Evaluation, results: list[torch.Tensor]) -> float:
    sizes = [float(t.abs().max()) for t in (*float_tensors((e.args, e.kwargs)), *results) if t.numel()]
    return e.unit * math.prod(size for size in sizes if math.isfinite(size) and size > 0)
