"""Entries of torch's database of ops (`op_db`) that no op reaches, each with the reason."""

from __future__ import annotations

DATA = "its shapes or its path depend on values, which torch.compile does not trace as one graph"
OPTIONS = "takes an object of options, which no program text can hold"
DRAWS = "draws numbers that no gradient depends on"
ALPHA = "torch.func.vjp refuses it under dynamic shapes; differences on backward_twice are not explained yet"
SPARSE = "programs hold strided tensors only"

EXCLUDED: dict[str, str] = {
    "_batch_norm_with_update": "returns results and writes its running statistics in place, which no op here does",
    "bernoulli": DRAWS,
    "combinations": DATA,
    "corrcoef": DATA,
    "cov": DATA,
    "linalg.eig": "has a gradient only where the loss does not look at the phases of eigenvectors; see eigvals",
    "linalg.lstsq": DATA,
    "linalg.lstsq.grad_oriented": DATA,
    "masked_select": DATA,
    "nn.functional.alpha_dropout": ALPHA,
    "nn.functional.ctc_loss": DATA,
    "nn.functional.feature_alpha_dropout.with_train": ALPHA,
    "nn.functional.feature_alpha_dropout.without_train": ALPHA,
    "nn.functional.linear_cross_entropy.chunked": OPTIONS,
    "nn.functional.linear_cross_entropy.chunked_none": OPTIONS,
    "normal": DRAWS,
    "normal.number_mean": DRAWS,
    "pca_lowrank": "a random start; two of them agree only in what the factors span",
    "sparse.mm.reduce": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "svd_lowrank": "a random start; two of them agree only in what the factors span",
    "to_sparse": SPARSE,
    "zero_": "its gradient is zero whoever computes it; the op is there, as a write",
}
