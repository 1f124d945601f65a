"""Sorting and selecting by order.

If values tie, torch does not define which of them `topk` and `kthvalue` return: the rounding model chooses at random.
`_sort` requests a stable order. `mode` gets distinct values only: torch does not define which of the most frequent gets
the gradient. Left out: `topk(sorted=False)`, whose order is undefined.
"""

from __future__ import annotations

from fuzzer.language.ops.spec import Attribute, Draw, Operand, OpSpec, choice, dim, extent_of, flag, integer, nonempty
from fuzzer.language.program import Recipe, Shape

FAMILY = "sort"

_TIED = Operand(accepts=nonempty, values=("ties", "integers", "normal"))
_STABLE = choice("stable", True, default=False)


def _sort(name: str, *attributes: Attribute, results: int = 2, differentiable: bool = True) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.{name}", (_TIED, *attributes), results, differentiable)


def _few(d: Draw) -> Shape:
    """Few enough elements that counting them gives distinct values in every dtype."""
    return tuple(d.size(1, 6) for _ in range(d.rng.randint(0, 3)))


TABLE = (
    _sort("sort", dim(default=-1), flag("descending", False), _STABLE),
    _sort("argsort", dim(default=-1), flag("descending", False), _STABLE, results=1, differentiable=False),
    OpSpec(
        "mode",
        FAMILY,
        "torch.mode",
        (
            Operand(shape=_few, recipe=lambda d: Recipe("arange")),
            dim(default=-1),
            flag("keepdim", False),
        ),
        results=2,
    ),
    _sort("msort", results=1),
    _sort("topk", dim(default=-1), integer("k", 0, extent_of), flag("largest", True)),
    _sort("kthvalue", dim(default=-1), integer("k", 1, extent_of), flag("keepdim", False)),
)
