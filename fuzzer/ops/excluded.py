"""Entries of torch's database of ops (`op_db`) that no op reaches, each with the reason."""

from __future__ import annotations

DATA = "its shapes or its path depend on values, which torch.compile does not trace as one graph"
OPTIONS = "takes an object of options, which no program text can hold"
SPARSE = "programs hold strided tensors only"

EXCLUDED: dict[str, str] = {
    "_batch_norm_with_update": "returns results and writes its running statistics in place, which no op here does",
    "combinations": DATA,
    "corrcoef": DATA,
    "cov": DATA,
    "linalg.eig": "has a gradient only where the loss does not look at the phases of eigenvectors; see eigvals",
    "linalg.lstsq": DATA,
    "linalg.lstsq.grad_oriented": DATA,
    "masked_select": DATA,
    "nn.functional.ctc_loss": DATA,
    "nn.functional.linear_cross_entropy.chunked": OPTIONS,
    "nn.functional.linear_cross_entropy.chunked_none": OPTIONS,
    "sparse.mm.reduce": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "to_sparse": SPARSE,
}
