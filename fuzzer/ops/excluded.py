"""Entries of torch's database of ops (`op_db`) that no op reaches, each with the reason."""

from __future__ import annotations

DATA = "its shapes or its path depend on values, which torch.compile does not trace as one graph"
SPARSE = "programs hold strided tensors only"

EXCLUDED: dict[str, str] = {
    "combinations": DATA,
    "corrcoef": DATA,
    "cov": DATA,
    "masked_select": DATA,
    "sparse.mm.reduce": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "to_sparse": SPARSE,
}
