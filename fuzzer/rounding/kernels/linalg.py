"""Matrix factorisations and functions based on them: backward errors of the whole matrix's size.

Higham 2002, Accuracy and Stability of Numerical Algorithms.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from fuzzer.rounding.kernels.row import Evaluation, Kernel, each
from fuzzer.rounding.precision import epsilon
from fuzzer.rounding.trace import Step, is_rounded


def _rows_squared(step: Step) -> float:
    """The root of this is the number of rows."""
    shapes = (ref.shape for ref in step.inputs if is_rounded(ref))
    return float(max((size for shape in shapes for size in shape[-2:]), default=1) ** 2)


def _noise_inverted(e: Evaluation) -> list[torch.Tensor]:
    """Errors of a pseudoinverse: infinite for a matrix with a singular value that may be nothing but rounding and that
    the cutoff keeps, else 0.

    A computed singular value is off by up to p(rows, columns) units of the largest one (LAPACK Users' Guide, section
    4.9.1); p is taken as the larger of the two.
    """
    matrix, result = e.args[0], e.results[0]
    cutoff = e.kwargs.get("rtol")
    if cutoff is None or not bool(torch.isfinite(matrix).all()) or not matrix.numel():
        return [torch.zeros_like(result.real)]
    sizes = torch.linalg.svdvals(matrix)
    kept = torch.maximum(torch.as_tensor(e.kwargs.get("atol") or 0.0), cutoff * sizes[..., 0]) < e.unit * sizes[..., 0]
    lost = kept & (sizes[..., -1] <= max(matrix.shape[-2:]) * e.unit * sizes[..., 0])
    return [torch.where(lost[..., None, None], math.inf, 0.0).expand(result.shape)]


def _columns_lost(e: Evaluation) -> list[torch.Tensor]:
    """Errors of a QR factorisation: infinite in Q for a matrix whose columns depend on each other but for rounding, so
    that directions of Q are those of rounding; else 0."""
    matrix, (q, r) = e.args[0], e.results
    if not q.numel() or not bool(torch.isfinite(matrix).all()):
        return [torch.zeros_like(q.real), torch.zeros_like(r.real)]
    sizes = torch.linalg.svdvals(matrix)
    lost = sizes[..., -1] <= max(matrix.shape[-2:]) * e.unit * sizes[..., 0]
    return [torch.where(lost[..., None, None], math.inf, 0.0).expand(q.shape), torch.zeros_like(r.real)]


def _reciprocals(step: Step, args: Any) -> torch.Tensor | None:
    """The largest reciprocal of a singular value, by which a pseudoinverse multiplies."""
    matrix = args[0]
    if not matrix.numel() or not bool(torch.isfinite(matrix).all()):
        return None
    sizes = torch.linalg.svdvals(matrix)
    return torch.where(sizes > epsilon(torch.float64) * sizes[..., :1], 1 / sizes, 0.0).max()


def _zero_on_diagonal(at: int, step: Step, args: Any) -> bool:
    """Whether the triangular matrix that is this argument is singular."""
    return bool((args[at].diagonal(dim1=-2, dim2=-1) == 0).any())


TABLE = (
    *each(
        """
        cholesky cholesky_solve cholesky_inverse linalg_cholesky_ex linalg_inv_ex linalg_lu linalg_lu_factor
        linalg_lu_factor_ex linalg_lu_solve _linalg_solve_ex _linalg_det _linalg_slogdet
        linalg_householder_product ormqr linalg_matrix_exp
        """,
        factorises=True,
        terms=_rows_squared,
    ),
    Kernel(
        "linalg_solve_triangular", factorises=True, terms=_rows_squared, divides_by_zero=partial(_zero_on_diagonal, 0)
    ),
    Kernel("triangular_solve", factorises=True, terms=_rows_squared, divides_by_zero=partial(_zero_on_diagonal, 1)),
    Kernel("linalg_qr", factorises=True, terms=_rows_squared, cancels=_columns_lost),
    Kernel(
        "linalg_pinv",
        factorises=True,
        terms=_rows_squared,
        cancels=_noise_inverted,
        intermediate=_reciprocals,
        calls_products=True,
    ),
    Kernel("_linalg_eigh", factorises=True, terms=_rows_squared, signs_of=(1, None)),
    Kernel("_linalg_svd", factorises=True, terms=_rows_squared, signs_of=(0, 2)),
    Kernel("linalg_eig", factorises=True, terms=_rows_squared, signs_of=(1, None), unsorted=True),
    Kernel("_linalg_eigvals", factorises=True, terms=_rows_squared, unsorted=True),
)
