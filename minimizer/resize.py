"""The reducers of sizes. A size seldom stands alone: leaves share it and attributes repeat it or depend on it.

Nothing here knows the rules of an op. A change of sizes is proposed in every *scope* (a set of axes of leaves) with
every *adjustment* (how the integers among the attributes may follow), and the gate's typing picks those that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from fuzzer.language.program import Leaf, Node, Program, Recipe, Shape, Value, contiguous, map_nodes, substitute_node
from minimizer.rewrite import Types, propose, reshaped, trimmed, with_attrs

_Axis = tuple[str, int]  # a leaf's name and one of its axes
_Adjustment = Callable[[int], int]


def _names_dims(attribute: str) -> bool:
    """Whether an attribute counts dimensions (dim, dims, start_dim, ...): then a size never moves it."""
    return "dim" in attribute


def _map_integers(value: Value, adjustment: _Adjustment) -> Value:
    """The value with every integer in it replaced."""
    if isinstance(value, tuple):
        return tuple(_map_integers(inner, adjustment) for inner in value)
    return adjustment(value) if type(value) is int else value


# ---------------------------------------------------------------- shrink_dim


def shrink_dim(program: Program, types: Types) -> Iterator[Program]:
    """Sizes become 1, 2, 3, 4, half, a little less: all large sizes at once, then equal axes together, then one axis
    alone."""
    largest = max((size for leaf in program.leaves for size in leaf.shape), default=0)
    for limit in (1, 2, 3, 4):
        if limit < largest:
            yield from _cap(program, limit)
    yield from _shrink_all_alike(program)
    for size, axes in _scopes(program):
        for target in _targets(size):
            for adjustment in _adjustments(size, target):
                yield from _resized(program, dict.fromkeys(axes, target), adjustment)
            yield from _shift_attribute(program, dict.fromkeys(axes, target), size - target)
            if any(leaf.values.name == "data" for leaf in program.leaves):
                yield from _resized(program, dict.fromkeys(axes, target), lambda v: v, end=True)


def _targets(size: int) -> tuple[int, ...]:
    """Smaller sizes, big cuts first; the last ones close in on a threshold in a logarithmic number of steps."""
    wanted = (1, 2, 3, 4, size // 2, size - size // 4, size - size // 8, size - 1)
    return tuple(target for target in dict.fromkeys(wanted) if 0 < target < size)


def _scopes(program: Program) -> Iterator[tuple[int, list[_Axis]]]:
    """Sets of axes of one size: all, those at one place from the left, from the right, then each alone."""
    axes = [(leaf, axis) for leaf in program.leaves for axis in range(len(leaf.shape))]
    groups: dict[tuple[int, str, int], list[_Axis]] = {}
    for kind, place in (
        ("all", lambda leaf, axis: 0),
        ("left", lambda leaf, axis: axis),
        ("right", lambda leaf, axis: axis - len(leaf.shape)),
    ):
        for leaf, axis in axes:
            groups.setdefault((leaf.shape[axis], kind, place(leaf, axis)), []).append((leaf.name, axis))
    for leaf, axis in axes:
        groups[leaf.shape[axis], leaf.name, axis] = [(leaf.name, axis)]
    for (size, _, _), group in sorted(groups.items(), key=lambda item: -item[0][0]):
        if size > 1:
            yield size, group


def _adjustments(size: int, target: int) -> tuple[_Adjustment, ...]:
    """How an integer attribute may follow when a size becomes the target."""
    return (
        lambda v: target if v == size else v,
        lambda v: v,
        lambda v: v - (size - target) if v >= size else v,
        lambda v: v - (size - target) if v >= size - target else v,
        lambda v: v // size * target if v % size == 0 else v,
        lambda v: max(-target, min(v, target)),
        lambda v: max(-target, min(v, target - 1)),
    )


def _cap(program: Program, limit: int) -> Iterator[Program]:
    """No size above the limit; attributes follow it, stay below it, or stay."""
    sizes = {(leaf.name, axis): min(s, limit) for leaf in program.leaves for axis, s in enumerate(leaf.shape)}
    for adjustment in (
        lambda v: max(-limit, min(v, limit)),
        lambda v: max(-limit, min(v, limit - 1)),
        lambda v: v,
    ):
        yield from _resized(program, sizes, adjustment)


def _shrink_all_alike(program: Program) -> Iterator[Program]:
    """All sizes and attributes above a step go down by it, so that their differences stay (windows, slices, cat)."""
    smallest = min((s for leaf in program.leaves for s in leaf.shape if s > 1), default=1)
    for step in dict.fromkeys((smallest - 1, smallest // 2, 1)):
        sizes = {
            (leaf.name, axis): s - step if s > step else s
            for leaf in program.leaves
            for axis, s in enumerate(leaf.shape)
        }
        for adjustment in (
            lambda v, d=step: v - d if v > d else v,
            lambda v, d=step: v - d if v >= d else v,
            lambda v: v,
        ):
            yield from _resized(program, sizes, adjustment)


def _resized(
    program: Program, sizes: dict[_Axis, int], adjustment: _Adjustment, end: bool = False
) -> Iterator[Program]:
    """The program with some axes of its leaves resized and its attributes adjusted; `end` keeps the last values."""
    yield from propose(
        program,
        leaves=tuple(_resized_leaf(leaf, sizes, adjustment, end) for leaf in program.leaves),
        body=map_nodes(program.body, lambda node: _adjusted(node, adjustment)),
    )


def resized_axes(program: Program, sizes: dict[_Axis, int], size: int) -> Iterator[Program]:
    """The program with axes of this size resized; attributes follow in the usual ways."""
    for adjustment in _adjustments(size, next(iter(sizes.values())))[:3] if sizes else ():
        yield from _resized(program, sizes, adjustment)


def resizings(program: Program, leaf: Leaf, axis: int, target: int) -> Iterator[Program]:
    """The program with one axis of a leaf resized: alone, with all axes of its size and place, with all of its size.
    Attributes stay, follow in every way, or one of them changes by as much."""
    size = leaf.shape[axis]
    places = [
        [(leaf.name, axis)],
        [(x.name, axis) for x in program.leaves if x.shape[axis : axis + 1] == (size,)],
        [(x.name, i) for x in program.leaves for i, n in enumerate(x.shape) if n == size],
    ]
    scopes = [dict.fromkeys(axes, target) for i, axes in enumerate(places) if axes not in places[:i]]
    for adjustment in _adjustments(size, target):
        for sizes in scopes:
            yield from _resized(program, sizes, adjustment)
    for sizes in scopes:
        yield from _shift_attribute(program, sizes, size - target)


def _resized_leaf(leaf: Leaf, sizes: dict[_Axis, int], adjustment: _Adjustment, end: bool = False) -> Leaf:
    """The leaf in its new sizes. The arguments of an index recipe, such as below(n), follow like attributes do."""
    shape = tuple(sizes.get((leaf.name, axis), size) for axis, size in enumerate(leaf.shape))
    new = leaf if shape == leaf.shape else reshaped(leaf, shape, end)
    if leaf.type.differentiable or new.values.name == "data":
        return new
    return replace(new, values=Recipe(new.values.name, tuple(_map_integers(a, adjustment) for a in new.values.args)))


def _adjusted(node: Node, adjustment: _Adjustment) -> Node:
    attrs = ((key, value if _names_dims(key) else _map_integers(value, adjustment)) for key, value in node.attrs)
    return replace(node, attrs=tuple(attrs))


def _shift_attribute(program: Program, sizes: dict[_Axis, int], step: int) -> Iterator[Program]:
    """One integer attribute changes by as much as the size: start=3, end=9, source of 6 become 3, 4, 1 or 8, 9, 1."""
    leaves = tuple(_resized_leaf(leaf, sizes, lambda v: v) for leaf in program.leaves)
    for node in program.nodes:
        for name, value in node.attrs:
            if type(value) is int and not _names_dims(name):
                for new in (value - step, value + step):
                    other = replace(node, attrs=with_attrs(node, name, new))
                    yield from propose(program, leaves=leaves, body=substitute_node(program.body, node, other))


# ---------------------------------------------------------------- drop_dim


def drop_dim(program: Program, types: Types) -> Iterator[Program]:
    """Drop a dimension from all leaves that have it, counted from the left or from the right; then from one leaf."""
    rank = max((len(leaf.shape) for leaf in program.leaves), default=0)
    for axis in range(rank):
        yield from _without_dim(program, {leaf.name: axis for leaf in program.leaves}, axis, rank)
        places = {leaf.name: axis - rank + len(leaf.shape) for leaf in program.leaves}
        yield from _without_dim(program, places, axis, rank)
    for leaf in program.leaves:
        for axis in range(len(leaf.shape)):
            yield from _without_dim(program, {leaf.name: axis}, axis, len(leaf.shape))


def _without_dim(program: Program, places: dict[str, int], axis: int, rank: int) -> Iterator[Program]:
    """The leaves without the axis at their place; attributes follow, or stay."""
    leaves = tuple(_squeezed(leaf, places.get(leaf.name, -1)) for leaf in program.leaves)
    yield from propose(program, leaves=leaves, body=map_nodes(program.body, lambda n: _renumbered(n, axis, rank, True)))
    yield from propose(
        program, leaves=leaves, body=map_nodes(program.body, lambda n: _renumbered(n, axis, rank, False))
    )
    yield from propose(program, leaves=leaves)


def _squeezed(leaf: Leaf, axis: int) -> Leaf:
    """The leaf without one axis, contiguous if it was; unchanged where it has no such axis."""
    if not 0 <= axis < len(leaf.shape):
        return leaf
    shape, stride = _without_axis(leaf.shape, axis), _without_axis(leaf.stride, axis)
    stride = contiguous(shape) if leaf.stride == contiguous(leaf.shape) else stride
    return replace(leaf, shape=shape, stride=stride, values=trimmed(leaf.values, leaf.shape, shape))


def _without_axis(values: Shape, axis: int) -> Shape:
    return values[:axis] + values[axis + 1 :]


def _renumbered(node: Node, axis: int, rank: int, sizes: bool) -> Node:
    """The node with its dimensions renumbered without one axis; with `sizes`, size lists lose their entry too."""
    found: list[tuple[str, Value]] = []
    for key, value in node.attrs:
        if _names_dims(key):
            value = _renumbered_dim(value, axis, rank)
        elif sizes and isinstance(value, tuple) and len(value) == rank:
            value = value[:axis] + value[axis + 1 :]
        found.append((key, value))
    return replace(node, attrs=tuple(found))


def _renumbered_dim(value: Value, axis: int, rank: int) -> Value:
    """A dimension, or a tuple of them, renumbered without the axis: dimensions beyond it move one nearer."""
    if isinstance(value, tuple):
        return tuple(_renumbered_dim(v, axis, rank) for v in value if not (type(v) is int and v % max(rank, 1) == axis))
    if type(value) is not int:
        return value
    if value < 0:
        return value + 1 if value + rank < axis or value == -rank else value
    return max(value - 1, 0) if value > axis or value == rank - 1 else value


# ---------------------------------------------------------------- swap_dims


def swap_dims(program: Program, types: Types) -> Iterator[Program]:
    """Exchange two neighbouring dimensions in all leaves of the highest rank; then in all that have them, from the
    right. So one fault gives one minimal program, not one for each order of its dimensions."""
    rank = max((len(leaf.shape) for leaf in program.leaves), default=0)
    for axis in range(rank - 1):
        body = map_nodes(program.body, partial(_swapped_node, axis=axis, rank=rank))
        for least in (rank, 2):
            leaves = tuple(
                _swapped_leaf(leaf, axis - rank) if len(leaf.shape) >= least else leaf for leaf in program.leaves
            )
            yield from propose(program, leaves=leaves, body=body)


def _swapped_leaf(leaf: Leaf, axis: int) -> Leaf:
    """The leaf with the dimensions axis and axis + 1 (both negative) exchanged; unchanged where it lacks one of
    them."""
    if axis + len(leaf.shape) < 0:
        return leaf
    shape, stride = (_swapped(t, axis + len(t)) for t in (leaf.shape, leaf.stride))
    return replace(leaf, shape=shape, stride=contiguous(shape) if leaf.stride == contiguous(leaf.shape) else stride)


def _swapped(values: Shape, axis: int) -> Shape:
    return (*values[:axis], values[axis + 1], values[axis], *values[axis + 2 :])


def _swapped_node(node: Node, axis: int, rank: int) -> Node:
    """The node adjusted to the exchange: its dimensions renumbered, and its lists of that rank reordered."""
    found: list[tuple[str, Value]] = []
    for key, value in node.attrs:
        if _names_dims(key):
            value = _swapped_dim(value, axis, rank)
        elif isinstance(value, tuple) and len(value) == rank:
            value = _swapped(value, axis)  # type: ignore[arg-type]
        found.append((key, value))
    return replace(node, attrs=tuple(found))


def _swapped_dim(value: Value, axis: int, rank: int) -> Value:
    if isinstance(value, tuple):
        return tuple(_swapped_dim(v, axis, rank) for v in value)
    if type(value) is not int or value % rank not in (axis, axis + 1):
        return value
    other = 2 * axis + 1 - value % rank
    return other if value >= 0 else other - rank
