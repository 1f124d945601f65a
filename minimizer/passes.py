"""REDUCERS: the simplifications, one function each. The function's name is its label in statistics.

A reducer takes a program and the types of its values and yields proposals, the biggest cut first. It may propose
nonsense: the gate in `reduce.py` types every proposal and refuses those that are not simpler by `order.cost`.
A proposal costs nothing until it passes the gate; then it costs a compile, of seconds. So a reducer may be generous
with proposals that can hardly type, and must be sparing with those that surely do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzzer.language.program import (
    DIFFERENTIABLE,
    PLAIN_OPS,
    Argument,
    Cotangent,
    Dtype,
    Leaf,
    Node,
    Program,
    Recipe,
    Region,
    Route,
    Statement,
    Value,
    contiguous,
    map_nodes,
    substitute_node,
    writes,
)
from minimizer.order import SIMPLE_RECIPES, recipe_cost
from minimizer.resize import drop_dim, shrink_dim, swap_dims
from minimizer.rewrite import (
    Types,
    as_output,
    as_outputs,
    cut,
    ordered,
    propose,
    substitute,
    swap,
    with_attrs,
)

Reducer = Callable[[Program, Types], Iterator[Program]]

# ---------------------------------------------------------------- statements


# Up to this many nodes, trying one after the other is quick; above, halving finds the place in fewer queries.
_FEW_NODES = 8


def cut_to_half(program: Program, types: Types) -> Iterator[Program]:
    """With many nodes, the first half, the last half, the middle; then three quarters from either end."""
    count = len(program.nodes)
    half, quarter = count // 2, count // 4
    spans = ((0, half), (half, count), (quarter, count - quarter), (0, count - quarter), (quarter, count))
    for start, end in spans if count > _FEW_NODES else ():
        yield from _span(program, types, start, end)


def _span(program: Program, types: Types, start: int, end: int) -> Iterator[Program]:
    """The nodes from start to end. Values from earlier nodes become leaves with their recorded contents.

    Results that no other of these nodes reads become outputs.
    """
    kept = program.nodes[start:end]
    read = {name for node in kept for name in node.uses}
    returned = {output.value for output in program.outputs}
    ends = [name for node in kept for name in node.outs if name in returned or name not in read]
    outputs = tuple(as_output(program, n, types[n]) for n in ends if types[n].differentiable or n in returned)
    yield from cut(program, types, kept, outputs, plain=start == 0)


def isolate_node(program: Program, types: Types) -> Iterator[Program]:
    """One node alone, its operands fresh contiguous leaves; one node with the producers of its operands.

    Then, if nodes are few, both again with leaves that have the layout and the recorded contents of the values they
    replace.
    """
    producer = {name: node for node in program.nodes for name in node.outs}
    for plain, deep in itertools.product((True, False), (False, True)):
        for node in reversed(program.nodes) if plain or len(program.nodes) <= _FEW_NODES else ():
            near = [producer[name] for name in node.uses if name in producer] if deep else []
            if near or not deep:
                yield from cut(program, types, [node, *near], as_outputs(program, node, types), plain)


def cut_to_node(program: Program, types: Types) -> Iterator[Program]:
    """One node's results as the only outputs, with everything that they need."""
    for node in program.nodes:
        yield from propose(program, outputs=as_outputs(program, node, types))


def cut_to_prefix(program: Program, types: Types) -> Iterator[Program]:
    """The first half of the nodes, the first three quarters, all but the last; unread results become outputs."""
    count = len(program.nodes)
    for length in sorted({count // 2, count - count // 4, count - 1} - {0, count}):
        yield from _span(program, types, 0, length)


def cut_to_suffix(program: Program, types: Types) -> Iterator[Program]:
    """The last half of the nodes, the last three quarters, all but the first, on the earlier nodes' recorded
    results."""
    count = len(program.nodes)
    for start in sorted({count - count // 2, count // 4, 1} - {0, count}, reverse=True):
        yield from _span(program, types, start, count)


def drop_output(program: Program, types: Types) -> Iterator[Program]:
    """One output alone; then all but one."""
    outputs = program.outputs
    if len(outputs) > 1:
        for output in outputs:
            yield from propose(program, outputs=(output,))
        for output in outputs:
            yield from propose(program, outputs=tuple(o for o in outputs if o is not output))


def drop_backward(program: Program, types: Types) -> Iterator[Program]:
    """One of several differentiated outputs is only returned."""
    differentiated = [output for output in program.outputs if output.cotangent is not None]
    for output in differentiated if len(differentiated) > 1 else ():
        outputs = tuple(replace(o, cotangent=None) if o is output else o for o in program.outputs)
        yield from propose(program, outputs=outputs)


def node_to_leaf(program: Program, types: Types) -> Iterator[Program]:
    """A node's results become leaves, fresh or with recorded contents. Late nodes first: their producers go too."""
    for node in reversed(program.nodes):
        others = [other for other in program.nodes if other is not node]
        outputs = tuple(o for o in program.outputs if o.value not in node.outs)
        for plain in (True, False):
            yield from cut(program, types, others, outputs, plain)


def bypass_node(program: Program, types: Types) -> Iterator[Program]:
    """Readers of a node's result read one of the node's operands instead, of the same dtype and shape."""
    for node in reversed(program.nodes):
        for name in dict.fromkeys(node.uses):
            alike = [o for o in node.outs if (types[o].dtype, types[o].shape) == (types[name].dtype, types[name].shape)]
            if len(alike) == len(node.outs):
                yield from substitute(program, dict.fromkeys(alike, name))


def drop_node(program: Program, types: Types) -> Iterator[Program]:
    """Remove dead code; then in-place nodes whose result nobody reads, though their effect may be visible elsewhere."""
    yield from propose(program)
    read = {name for node in program.nodes for name in node.uses} | {o.value for o in program.outputs}
    for node in program.nodes:
        if writes(node) is not None and read.isdisjoint(node.outs):
            yield from propose(program, body=substitute_node(program.body, node, None))


def unwrap_region(program: Program, types: Types) -> Iterator[Program]:
    """A region's statements run without its context."""
    for body in _with_another_region(program.body, lambda region: iter([region.body])):
        yield from propose(program, body=body)


def narrow_region(program: Program, types: Types) -> Iterator[Program]:
    """A region's first statement runs before it; then its last one after it."""

    def narrowed(region: Region) -> Iterator[tuple[Statement, ...]]:
        if len(region.body) > 1:
            yield region.body[0], replace(region, body=region.body[1:])
            yield replace(region, body=region.body[:-1]), region.body[-1]

    for body in _with_another_region(program.body, narrowed):
        yield from propose(program, body=body)


def plain_region(program: Program, types: Types) -> Iterator[Program]:
    """A region without one of its attributes; then with one operand fewer, which its body closes over."""

    def plainer(region: Region) -> Iterator[tuple[Statement, ...]]:
        for attribute in region.attrs:
            yield (replace(region, attrs=tuple(a for a in region.attrs if a is not attribute)),)
        for name in region.args:
            yield (replace(region, args=tuple(n for n in region.args if n != name)),)

    for body in _with_another_region(program.body, plainer):
        yield from propose(program, body=body)


def _with_another_region(
    body: tuple[Statement, ...], change: Callable[[Region], Iterator[tuple[Statement, ...]]]
) -> Iterator[tuple[Statement, ...]]:
    """The body with one of its regions replaced by other statements, for each region and each change of it."""
    for i, s in enumerate(body):
        if isinstance(s, Region):
            within = ((replace(s, body=inner),) for inner in _with_another_region(s.body, change))
            for found in itertools.chain(change(s), within):
                yield (*body[:i], *found, *body[i + 1 :])


# ---------------------------------------------------------------- leaves


def drop_operand(program: Program, types: Types) -> Iterator[Program]:
    """An optional operand is left out; a list of operands is cut to one, or loses one."""
    for node in program.nodes:
        for i, arg in enumerate(node.args):
            for shorter in _less(arg):
                args = (*node.args[:i], shorter, *node.args[i + 1 :])
                while args and args[-1] is None:
                    args = args[:-1]
                yield from _change(program, node, args=args)


def _less(arg: Argument) -> Iterator[Argument]:
    if isinstance(arg, tuple):
        yield from ((name,) for name in arg if len(arg) > 1)
        yield from (arg[:i] + arg[i + 1 :] for i in range(len(arg)) if len(arg) > 2)
    elif arg is not None:
        yield None


def merge_leaves(program: Program, types: Types) -> Iterator[Program]:
    """One leaf stands in for every other of its dtype and shape; then for one of them."""
    firsts: dict[Any, str] = {}
    for leaf in program.leaves:
        firsts.setdefault((leaf.dtype, leaf.shape), leaf.name)
    names = {leaf.name: firsts[leaf.dtype, leaf.shape] for leaf in program.leaves}
    doubles = {name: first for name, first in names.items() if name != first}
    if len(doubles) > 1:
        yield from substitute(program, doubles)
    for name, first in doubles.items():
        yield from substitute(program, {name: first})


def order_leaves(program: Program, types: Types) -> Iterator[Program]:
    """Leaves in the order in which they are read; a base before its views."""
    read = [name for node in program.nodes for name in node.uses] + [o.value for o in program.outputs]
    place = {name: i for i, name in reversed(list(enumerate(read)))}
    for leaf in program.leaves:
        if leaf.base is not None:
            place[leaf.base] = min(place.get(leaf.base, len(read)), place.get(leaf.name, len(read)))
    leaves = sorted(program.leaves, key=lambda leaf: (place.get(leaf.name, len(read)), leaf.base is not None))
    yield from propose(program, leaves=tuple(leaves))


def drop_requires_grad(program: Program, types: Types) -> Iterator[Program]:
    """One leaf alone keeps requires_grad; then all but one. The last loses it only where no output is differentiated:
    else the fault needs a gradient."""
    asked = [leaf for leaf in program.leaves if leaf.requires_grad]
    groups = [[leaf] for leaf in asked] + [[other for other in asked if other is not leaf] for leaf in asked]
    needed = any(output.cotangent is not None for output in program.outputs)
    for group in groups if len(asked) > needed else ():
        leaves = tuple(replace(leaf, requires_grad=leaf in group) for leaf in program.leaves)
        yield from propose(program, leaves=leaves)


def _all_then_each(program: Program, simpler: Callable[[Leaf], Leaf]) -> Iterator[Program]:
    """Every leaf made simpler at once; then each alone."""
    yield from propose(program, leaves=tuple(map(simpler, program.leaves)))
    for leaf in program.leaves:
        if simpler(leaf) != leaf:
            yield from propose(program, leaves=swap(program.leaves, leaf, simpler(leaf)))


def to_float32(program: Program, types: Types) -> Iterator[Program]:
    """Every float and complex dtype becomes f32, attributes included; then each leaf's alone; then c128 becomes c64."""

    def plain(leaf: Leaf) -> Leaf:
        return _real_part(leaf) if leaf.type.is_complex else replace(leaf, dtype="f32") if leaf.type.is_float else leaf

    def plain_node(node: Node) -> Node:
        single = Dtype("f32")
        attrs = ((key, single if isinstance(v, Dtype) and v.name in DIFFERENTIABLE else v) for key, v in node.attrs)
        return replace(node, attrs=tuple(attrs))

    yield from propose(program, leaves=tuple(map(plain, program.leaves)), body=map_nodes(program.body, plain_node))
    yield from _all_then_each(program, plain)
    if any(leaf.dtype == "c128" for leaf in program.leaves):
        yield from _all_then_each(program, lambda leaf: replace(leaf, dtype="c64") if leaf.dtype == "c128" else leaf)


def _real_part(leaf: Leaf) -> Leaf:
    """The leaf as real numbers; for recorded numbers, whose parts alternate, the real parts."""
    args = leaf.values.args[::2] if leaf.values.name == "data" else leaf.values.args
    return replace(leaf, dtype="f32", conj=False, values=replace(leaf.values, args=args))


def unconjugate_leaf(program: Program, types: Types) -> Iterator[Program]:
    """A leaf that reads its storage conjugated reads it as it is."""
    yield from _all_then_each(program, lambda leaf: replace(leaf, conj=False))


def unview_leaf(program: Program, types: Types) -> Iterator[Program]:
    """A view of another leaf becomes a leaf with a storage of its own."""
    yield from _all_then_each(
        program, lambda x: x if x.base is None else replace(x, base=None, offset=0, stride=contiguous(x.shape))
    )


def plain_stride(program: Program, types: Types) -> Iterator[Program]:
    """Leaves become contiguous; then dense, with the order of their dimensions."""
    yield from _all_then_each(program, lambda leaf: replace(leaf, stride=contiguous(leaf.shape)))
    yield from _all_then_each(program, lambda leaf: replace(leaf, stride=ordered(leaf.shape, leaf.stride, 1)))


def plain_offset(program: Program, types: Types) -> Iterator[Program]:
    """Leaves start at the first element of their storage; then at the second; then half as far in."""
    yield from _all_then_each(program, lambda leaf: replace(leaf, offset=0))
    yield from _all_then_each(program, lambda leaf: replace(leaf, offset=min(leaf.offset, 1)))
    yield from _all_then_each(program, lambda leaf: replace(leaf, offset=leaf.offset // 2))


def plain_parameter(program: Program, types: Types) -> Iterator[Program]:
    """Parameters of a module become leaves like any other."""
    yield from _all_then_each(program, lambda leaf: replace(leaf, parameter=False))


def all_plain(program: Program, types: Types) -> Iterator[Program]:
    """Settings, route, dtypes, layouts, values and cotangents at their plainest, all at once, since each alone costs a
    query."""
    plain = program
    for reducer in _FORMS:
        plain = next(reducer(plain, types), plain)
    yield plain


# ---------------------------------------------------------------- values


def simplest_values(program: Program, types: Types) -> Iterator[Program]:
    """The leaves' values become simpler recipes, all at once, then each alone; seeds become 0.

    The recipe of an index leaf only gets smaller arguments: another recipe may point outside, which kills a worker.
    """

    def simpler(leaf: Leaf, name: str) -> Leaf:
        better = leaf.type.differentiable and recipe_cost(Recipe(name)) < recipe_cost(leaf.values)
        return replace(leaf, values=Recipe(name), seed=0) if better and leaf.base is None else leaf

    for name in SIMPLE_RECIPES:
        yield from propose(program, leaves=tuple(simpler(leaf, name) for leaf in program.leaves))
    for leaf in program.leaves:
        for name in SIMPLE_RECIPES:
            yield from propose(program, leaves=swap(program.leaves, leaf, simpler(leaf, name)))
        for args in _lower(leaf.values.args) if not leaf.type.differentiable else ():
            smaller = replace(leaf, values=replace(leaf.values, args=args))
            yield from propose(program, leaves=swap(program.leaves, leaf, smaller))
    yield from _all_then_each(program, lambda leaf: replace(leaf, seed=0))


# If one seed in four shows a fault, 9 in 10 programs end at one of these: equal faults at equal texts.
_SMALL_SEEDS = range(1, 9)


def small_seed(program: Program, types: Types) -> Iterator[Program]:
    """A leaf that needs its seed gets the smallest that will do."""
    for leaf in program.leaves:
        for seed in _SMALL_SEEDS:
            if seed < leaf.seed:
                yield from propose(program, leaves=swap(program.leaves, leaf, replace(leaf, seed=seed)))


def round_values(program: Program, types: Types) -> Iterator[Program]:
    """Recorded numbers become integers, all at once, then leaf by leaf; a few numbers become 1, then 0, one by one."""

    def whole(leaf: Leaf) -> Leaf:
        numbers = tuple(round(x) if isinstance(x, float) and math.isfinite(x) else x for x in leaf.values.args)
        return _with_numbers(leaf, tuple(map(float, numbers)) if leaf.type.differentiable else numbers)  # type: ignore[arg-type]

    recorded = [leaf for leaf in program.leaves if leaf.values.name == "data"]
    if recorded:
        yield from _all_then_each(program, lambda leaf: whole(leaf) if leaf in recorded else leaf)
    for leaf in recorded:
        for i, x in enumerate(leaf.values.args if leaf.type.differentiable and leaf.type.numel <= _FEW_NUMBERS else ()):
            for plain in (1.0, 0.0):
                if x != plain:
                    numbers = (*leaf.values.args[:i], plain, *leaf.values.args[i + 1 :])
                    yield from propose(program, leaves=swap(program.leaves, leaf, _with_numbers(leaf, numbers)))


_FEW_NUMBERS = 4  # two queries each


def _with_numbers(leaf: Leaf, numbers: tuple[Value, ...]) -> Leaf:
    return replace(leaf, values=replace(leaf.values, args=numbers))


def simplest_cotangent(program: Program, types: Types) -> Iterator[Program]:
    """Cotangents become contiguous, of a simpler recipe, of seed 0."""

    def plain(c: Cotangent) -> Cotangent:
        return replace(c, stride=contiguous(c.shape), offset=0)

    def filled(name: str) -> Callable[[Cotangent], Cotangent]:
        return lambda c: (
            replace(c, values=Recipe(name), seed=0) if recipe_cost(Recipe(name)) < recipe_cost(c.values) else c
        )

    for simpler in (plain, *map(filled, SIMPLE_RECIPES), lambda c: replace(c, seed=0)):
        changed = (o.cotangent and simpler(o.cotangent) for o in program.outputs)
        outputs = tuple(replace(o, cotangent=c) for o, c in zip(program.outputs, changed, strict=True))
        yield from propose(program, outputs=outputs)


# ---------------------------------------------------------------- attributes, settings, route


def default_attribute(program: Program, types: Types) -> Iterator[Program]:
    """An attribute is left out; then it gets a lower value; then two integers move down together (start and end)."""
    for node in program.nodes:
        for name, value in node.attrs:
            yield from _change(program, node, attrs=with_attrs(node, name))
            for smaller in _lower(value):
                yield from _change(program, node, attrs=with_attrs(node, name, smaller))
        whole = [(name, value) for name, value in node.attrs if type(value) is int and value > 0]
        for (a, x), (b, y) in itertools.combinations(whole, 2):
            for step in dict.fromkeys((min(x, y), 1)):
                moved = replace(node, attrs=with_attrs(node, a, x - step))
                yield from _change(program, node, attrs=with_attrs(moved, b, y - step))


def _change(program: Program, node: Node, **fields: Any) -> Iterator[Program]:
    """The program with some fields of one node replaced."""
    yield from propose(program, body=substitute_node(program.body, node, replace(node, **fields)))


def _lower(value: Value) -> Iterator[Any]:
    """Values of the same kind that are nearer to the plainest value, nearest to it first."""
    if isinstance(value, bool):
        yield from (False,) if value else ()
    elif isinstance(value, int):
        yield from (v for v in dict.fromkeys((0, 1, abs(value) // 2, abs(value) - 1)) if 0 <= v < abs(value))
        yield from (-value,) if value < 0 else ()
    elif isinstance(value, float):
        yield from (v for v in (0.0, 1.0, 2.0) if v != value)
    elif isinstance(value, Dtype) and value.name in DIFFERENTIABLE:
        yield Dtype("f32")
        yield from (Dtype("c64"),) if value.name == "c128" else ()
    elif isinstance(value, tuple):
        for i, inner in enumerate(value):
            yield from ((*value[:i], smaller, *value[i + 1 :]) for smaller in _lower(inner))


def plainer_op(program: Program, types: Types) -> Iterator[Program]:
    """A node with a single result in use becomes a plain function of its first operand."""
    read = {name for node in program.nodes for name in node.uses} | {o.value for o in program.outputs}
    for node in program.nodes:
        outs = tuple(name for name in node.outs if name in read)
        if node.op not in PLAIN_OPS and len(outs) == 1:
            for name in [name for name in node.uses if types[name].differentiable][:1]:
                for op in PLAIN_OPS:
                    yield from _change(program, node, outs=outs, op=op, args=(name,), attrs=())


def out_of_place(program: Program, types: Types) -> Iterator[Program]:
    """An in-place node becomes one that returns a new value."""
    for node in program.nodes:
        if writes(node) is not None:
            yield from _change(program, node, op=node.op.removesuffix("_"))


def default_setting(program: Program, types: Types) -> Iterator[Program]:
    """No settings; then all but one."""
    yield from propose(program, settings=())
    for pair in program.settings:
        yield from propose(program, settings=tuple(p for p in program.settings if p != pair))


def default_route(program: Program, types: Types) -> Iterator[Program]:
    """The default route, which has no module's parameters; then the route without its options; then without one."""
    route = program.route
    leaves = tuple(replace(leaf, parameter=False) for leaf in program.leaves)
    yield from propose(program, route=Route(), leaves=leaves)
    yield from propose(program, route=replace(route, options=()))
    for pair in route.options:
        yield from propose(program, route=replace(route, options=tuple(p for p in route.options if p != pair)))


# `all_plain` takes the first proposal of each; for cotangents that is the layout, then the values.
_FORMS = (
    default_setting,
    default_route,
    to_float32,
    unview_leaf,
    plain_stride,
    plain_offset,
    simplest_values,
    simplest_cotangent,
    simplest_cotangent,
)

# Big cuts first. STATEMENTS remove statements, and a statement takes its operands, attributes and compile time with it:
# every query after it is cheaper and every list of proposals shorter. Halving leads while there are many; then
# isolate_node, because most faults need one or two nodes: it ends the search for the place at once.
# Settings and the route come before the sizes, since without them fewer kernels are generated. Then sizes (a whole
# dimension before a shorter one), then the details a reader sees last: dtypes, layouts, values, attributes, cotangents.
# Values precede attributes because ones and small integers often make an attribute's value irrelevant.
STATEMENTS: tuple[Reducer, ...] = (
    cut_to_half,
    isolate_node,
    cut_to_node,
    cut_to_prefix,
    cut_to_suffix,
    drop_output,
    drop_backward,
    node_to_leaf,
    bypass_node,
    drop_node,
    unwrap_region,
    narrow_region,
    plain_region,
    drop_operand,
)
REDUCERS: tuple[Reducer, ...] = (
    *STATEMENTS,
    merge_leaves,
    all_plain,
    default_setting,
    default_route,
    drop_dim,
    shrink_dim,
    swap_dims,
    to_float32,
    unview_leaf,
    unconjugate_leaf,
    plain_stride,
    plain_offset,
    plain_parameter,
    drop_requires_grad,
    simplest_values,
    default_attribute,
    round_values,
    simplest_cotangent,
    out_of_place,
    plainer_op,
    order_leaves,
    small_seed,
)
