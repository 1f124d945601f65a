"""Sorting and selecting by order.

Where values tie, torch leaves it open which of them `topk`, `kthvalue` and `mode` name; `sort` is asked for a stable
order. Eager and inductor run the same kernel for them, on equal values.
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
    sort("topk", dim(default=-1), integer("k", 0, extent_of), flag("largest", True), flag("sorted", True)),
    sort("kthvalue", dim(default=-1), integer("k", 1, extent_of), flag("keepdim", False)),
    sort("mode", dim(default=-1), flag("keepdim", False)),
)
