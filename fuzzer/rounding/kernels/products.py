"""Products of matrices and vectors, Fourier transforms."""

from __future__ import annotations

import math

from fuzzer.rounding.kernels.row import ACCUMULATION, Evaluation, Kernel, each
from fuzzer.rounding.precision import float_tensors
from fuzzer.rounding.trace import Step, is_rounded


def _contracted(step: Step) -> float:
    """The length of the sums: for operands of m*k and k*n elements and m*n results, the geometric mean of k*k."""
    sizes = sorted(ref.numel for ref in step.inputs if is_rounded(ref))[-2:]
    given = max((ref.numel for ref in step.results if is_rounded(ref)), default=1)
    return max(1.0, math.sqrt(math.prod(sizes) / max(given, 1)))


def _by_largest_result(e: Evaluation) -> float:
    """Each element may have the error of the largest."""
    largest = [float(t.abs().max()) for t in float_tensors(e.results) if t.numel()]
    return e.unit * max(largest, default=0.0)


TABLE = (
    *each("mm bmm mv dot vdot", ACCUMULATION, terms=_contracted, wide=True, is_product=True),
    *each("addmm addmv baddbmm", ACCUMULATION, terms=_contracted, wide=True, adds_to_product=True, is_product=True),
    Kernel("addbmm", ACCUMULATION, terms=_contracted, narrow=True, adds_to_product=True, is_product=True),
    Kernel("addr", ACCUMULATION, narrow=True, adds_to_product=True),
    Kernel("_trilinear", calls_products=True),
    Kernel("linalg_cross", unstated="two products and a difference, fused or not"),
    *each("_fft_c2c _fft_c2r _fft_r2c", cancels=_by_largest_result),
)
