"""Sorting and selecting by order.

Where values tie, torch leaves it open which of them `topk` and `kthvalue` name: the rounding model leaves the choice to
chance. `sort` is asked for a stable order. Not here: `mode` (the gradient goes to any one of the most frequent, and
torch does not say which) and `topk(sorted=False)` (its order is nobody's promise).
"""

from __future__ import annotations

from fuzzer.ops.spec import Attribute, Operand, OpSpec, choice, dim, extent_of, flag, integer, nonempty

FAMILY = "sort"

STABLE = choice("stable", True, default=False)


def sort(name: str, *attributes: Attribute, results: int = 2, differentiable: bool = True) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.{name}", (Operand(accepts=nonempty), *attributes), results, differentiable)


TABLE = (
    sort("sort", dim(default=-1), flag("descending", False), STABLE),
    sort("argsort", dim(default=-1), flag("descending", False), STABLE, results=1, differentiable=False),
    sort("msort", results=1),
    sort("topk", dim(default=-1), integer("k", 0, extent_of), flag("largest", True)),
    sort("kthvalue", dim(default=-1), integer("k", 1, extent_of), flag("keepdim", False)),
)
