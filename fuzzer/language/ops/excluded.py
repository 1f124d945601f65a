"""Entries of torch's database of ops (`op_db`) that no op covers, each with the reason."""

from __future__ import annotations

DATA = "the size of its result depends on values, which torch.compile does not trace as one graph unless told to"
SHAPELESS = "torch.compile does not know the shapes of its results (no meta kernel), even where no value decides them"
OPTIONS = "takes an object of options, which no program text can hold"
DRAWS = "draws numbers that no gradient depends on"
ASKS = "asks a tensor of its own for its value, which torch.compile does not trace (torch.equal)"
SPARSE = "programs hold strided tensors only"

EXCLUDED: dict[str, str] = {
    "_batch_norm_with_update": "returns results and writes its running statistics in place, which no op here does",
    "bernoulli": DRAWS,
    "combinations": DATA,
    "corrcoef": ASKS,
    "cov": ASKS,
    "linalg.lstsq": SHAPELESS,
    "linalg.lstsq.grad_oriented": SHAPELESS,
    "masked_select": DATA,
    "nn.functional.ctc_loss": SHAPELESS,
    "nn.functional.linear_cross_entropy.chunked": OPTIONS,
    "nn.functional.linear_cross_entropy.chunked_none": OPTIONS,
    "normal": DRAWS,
    "normal.number_mean": DRAWS,
    "sparse.mm.reduce": SPARSE,
    "sparse.sampled_addmm": SPARSE,
    "to_sparse": SPARSE,
    "zero_": "its gradient is zero whoever computes it; the op is there, as a write",
}
