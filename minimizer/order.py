"""The one definition of "simpler".

`cost(a) < cost(b)` says that a person would rather read a than b. The tuple is compared from the left, so an earlier
component outweighs any amount of a later one. The order of the components is the argument:

1.  statements: every operation and region is a suspect. Nothing else that we can remove clears as many.
2.  leaves, then outputs (a differentiated output counts twice: it brings a cotangent): what has to be set up and read.
3.  settings away from their default, then the route: they say *which* compiler is at fault. A finding that needs none
    of them concerns everybody.
4.  leaves whose gradient is asked for: each is one more number to look at, and one more path through the backward.
5.  elements of all leaves, then dimensions: few elements can be checked by hand.
6.  odd dtypes, then odd layouts (strides, offsets, shared storage, parameters, conjugates): f32 and contiguous is what
    everybody reads first.
7.  values: "ones" < "arange" < "integers" < "normal" < any other. Ones need no drawing and make sums countable; arange
    names each element by its value; small integers are exact in every dtype, so rounding cannot be the explanation;
    normal needs a seed; the other recipes are there to provoke something, which a reader would have to know.
    Then the seeds: 0 is the one that need not be written.
8.  attributes: how many are written, then how far they are from 0 (a positive integer before its negative twin).
9.  cotangents, by the measures of 6 and 7.
10. leaves read before an earlier one is: a reader expects x0 first.
11. the length of the text, then the text: a total order, so that two programs of equal cost are the same program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from fuzzer.language.program import (
    Cotangent,
    Dtype,
    Leaf,
    Program,
    Recipe,
    Region,
    Route,
    Statement,
    Value,
    contiguous,
    extent,
    statements,
)
from fuzzer.language.text import show

Cost = tuple[Any, ...]

# Integer dtypes are only compared with one another: an index cannot become f32. i64 is torch's own index dtype.
_BY_SIMPLICITY = ("f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128")
_PLAIN_DTYPES = ("f32", "i64", "bool")
SIMPLE_RECIPES = ("ones", "arange", "integers", "normal")


def cost(program: Program) -> Cost:
    """The position of a program in the order: smaller is simpler. Equal costs mean equal texts."""
    text = show(program)
    return (
        _count_statements(program.body),
        len(program.leaves),
        sum(1 if output.cotangent is None else 2 for output in program.outputs),
        len(program.settings),
        _route_cost(program.route),
        sum(leaf.requires_grad for leaf in program.leaves),
        sum(leaf.type.numel for leaf in program.leaves),
        sum(leaf.type.rank for leaf in program.leaves),
        _dtype_cost(leaf.dtype for leaf in program.leaves),
        _layouts_cost(program.leaves),
        _values_cost(program.leaves),
        _attributes_cost(program),
        _cotangents_cost([o.cotangent for o in program.outputs if o.cotangent is not None]),
        _inversions(program),
        len(text),
        text,
    )


def _count_statements(body: Sequence[Statement]) -> int:
    """Nodes and regions."""
    return sum(1 + _count_statements(s.body) if isinstance(s, Region) else 1 for s in body)


def _route_cost(route: Route) -> Cost:
    return (route.name != Route().name, len(route.options), sum(_magnitude(v) for _, v in route.options))


def _dtype_cost(dtypes: Iterable[str]) -> Cost:
    """How many are odd, then how odd."""
    found = list(dtypes)
    return (sum(d not in _PLAIN_DTYPES for d in found), sum(map(_BY_SIMPLICITY.index, found)))


def _layouts_cost(leaves: Iterable[Leaf]) -> Cost:
    """Strides, offsets, shared storages, parameters, conjugates, one each; then how far these reach in storage."""
    odds = [(_layout_oddities(leaf), extent(leaf.shape, leaf.stride, leaf.offset)) for leaf in leaves]
    return (sum(odd for odd, _ in odds), sum(reach for odd, reach in odds if odd))


def _layout_oddities(leaf: Leaf) -> int:
    return (
        (leaf.stride != contiguous(leaf.shape))
        + (leaf.offset != 0)
        + (leaf.base is not None)
        + leaf.parameter
        + leaf.conj
    )


def recipe_cost(recipe: Recipe) -> Cost:
    """The recipe's place, then its arguments."""
    place = SIMPLE_RECIPES.index(recipe.name) if recipe.name in SIMPLE_RECIPES else len(SIMPLE_RECIPES)
    return (place, sum(map(_magnitude, recipe.args)))


def _values_cost(tensors: Iterable[Leaf | Cotangent]) -> Cost:
    """Recipes first, then seeds. A leaf that views another has no values of its own."""
    own = [t for t in tensors if not (isinstance(t, Leaf) and t.base is not None)]
    costs = [recipe_cost(t.values) for t in own]
    return (sum(c[0] for c in costs), sum(c[1] for c in costs), sum(t.seed for t in own))


def _cotangents_cost(cotangents: Sequence[Cotangent]) -> Cost:
    layouts = sum((c.stride != contiguous(c.shape)) + (c.offset != 0) for c in cotangents)
    return (_dtype_cost(c.dtype for c in cotangents), layouts, _values_cost(cotangents))


def _attributes_cost(program: Program) -> Cost:
    """How many attributes are written, then their magnitude."""
    values = [value for holder in statements(program.body) for _, value in holder.attrs]
    return (len(values), sum(map(_magnitude, values)))


def _inversions(program: Program) -> int:
    """Pairs of leaves of which the later one is read first."""
    read = [name for node in program.nodes for name in node.uses]
    places = [read.index(leaf.name) for leaf in program.leaves if leaf.name in read]
    return sum(a > b for a, b in itertools.combinations(places, 2))


def _magnitude(value: Value) -> float:
    """Distance of an attribute from the plainest value of its kind: 0, False, None, f32, the empty tuple."""
    if isinstance(value, tuple):
        return sum(1 + _magnitude(inner) for inner in value)
    if isinstance(value, Dtype):
        return _BY_SIMPLICITY.index(value.name)
    if value is None or isinstance(value, str):
        return 0 if value is None else 1
    if not math.isfinite(value):
        return 1e9
    odd = 0.5 if value < 0 else 0
    return min(abs(value), 1e8) + odd + (10 if value != int(value) else 0)
