"""The moves that reducers share. Each makes a new program, which may be ill-typed: the gate tests that."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fuzzer.language.program import (
    NORMAL,
    Attributes,
    Cotangent,
    Leaf,
    Node,
    Output,
    Program,
    ProgramError,
    Recipe,
    Shape,
    TensorType,
    contiguous,
    is_tracked,
    map_nodes,
    needed_by_outputs,
    substitute_operands,
    writes,
)


class Types(Mapping[str, TensorType]):
    """The types of a program's values, by name; and their recorded contents, where available."""

    def __init__(self, types: Mapping[str, TensorType], record: Callable[[], Mapping[str, Recipe]] = dict) -> None:
        self.types, self.record = types, record

    def __getitem__(self, name: str) -> TensorType:
        return self.types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    @functools.cached_property
    def recorded(self) -> Mapping[str, Recipe]:
        """`data(...)` recipes by name; the program runs when this is first read."""
        return self.record()


def propose(program: Program, **changes: Any) -> Iterator[Program]:
    """The changed program without dead code; nothing where an invariant breaks or no node is left to compile."""
    try:
        found = prune(replace(program, **changes))
    except ProgramError:
        return
    if found.nodes and found.outputs:
        yield found


def substitute(program: Program, names: Mapping[str, str]) -> Iterator[Program]:
    """The program that reads `names[a]` in place of every a, without the nodes and leaves that bound an a."""
    body = map_nodes(program.body, lambda n: None if set(n.outs) <= names.keys() else substitute_operands(n, names))
    outputs = tuple(replace(o, value=names.get(o.value, o.value)) for o in program.outputs)
    leaves = tuple(leaf for leaf in program.leaves if leaf.name not in names)
    yield from propose(program, leaves=leaves, body=body, outputs=outputs)


def prune(program: Program) -> Program:
    """The program without leaves and nodes that no output needs; `drop_node` proposes to remove unread writes."""
    kept, live = needed_by_outputs(program)
    leaves = tuple(leaf for leaf in program.leaves if leaf.name in live)
    return replace(program, leaves=leaves, body=map_nodes(program.body, lambda n: n if n.outs in kept else None))


# ---------------------------------------------------------------- cuts


def cut(
    program: Program, types: Types, kept: Collection[Node], outputs: tuple[Output, ...], plain: bool = True
) -> Iterator[Program]:
    """Keep only these nodes; values that they read from others become leaves.

    The new leaves are contiguous with random values, or (not plain) have the layout and the recorded contents of the
    values they replace. In the latter case nothing is proposed if the result would be the same.
    """
    bound = {leaf.name for leaf in program.leaves} | {name for node in kept for name in node.outs}
    wanted = [name for node in kept for name in node.uses] + [output.value for output in outputs]
    missing = [name for name in dict.fromkeys(wanted) if name not in bound]
    fresh = tuple(_fresh_leaf(program, name, types[name], i) for i, name in enumerate(missing))
    written = {writes(node) for node in kept}  # a leaf that requires grad may not be written
    fresh = tuple(replace(leaf, requires_grad=False) if leaf.name in written else leaf for leaf in fresh)
    alike = fresh if plain else tuple(_like_recorded(leaf, types) for leaf in fresh)
    if plain or alike != fresh:
        body = map_nodes(program.body, lambda n: n if n in kept else None)
        yield from propose(program, leaves=program.leaves + alike, body=body, outputs=outputs)


def _fresh_leaf(program: Program, name: str, t: TensorType, index: int) -> Leaf:
    """A contiguous leaf of this type, which requires a gradient if another leaf does. Its seed is new, so that no two
    leaves have equal values by accident."""
    tracked = t.differentiable and is_tracked(program)
    values = NORMAL if t.differentiable else Recipe("coins") if t.dtype == "bool" else Recipe("below", (2,))
    seed = 1 + index + max((leaf.seed for leaf in program.leaves), default=0)
    return Leaf(name, t.dtype, t.shape, contiguous(t.shape), requires_grad=tracked, values=values, seed=seed)


def _like_recorded(leaf: Leaf, types: Types) -> Leaf:
    """The leaf with the layout of the value of its name, and with that value's contents where recorded."""
    held = types.recorded.get(leaf.name)
    values, seed = (leaf.values, leaf.seed) if held is None else (held, 0)
    return replace(leaf, stride=types[leaf.name].stride, values=values, seed=seed)


def as_outputs(program: Program, node: Node, types: Types) -> tuple[Output, ...]:
    """The floating results of a node as outputs (all of them where none floats), differentiated if the program is."""
    floats = [name for name in node.outs if types[name].differentiable]
    return tuple(as_output(program, name, types[name]) for name in floats or node.outs)


def as_output(program: Program, name: str, t: TensorType) -> Output:
    """The program's own output of that name, or a new one with a cotangent like the program's first."""
    for output in program.outputs:
        if output.value == name:
            return output
    like = next((o.cotangent for o in program.outputs if o.cotangent is not None), None)
    if like is None or not t.differentiable:
        return Output(name)
    values = NORMAL if like.values.name == "data" else like.values
    return Output(name, Cotangent(t.dtype, t.shape, contiguous(t.shape), values, like.seed))


# ---------------------------------------------------------------- types


def retype(program: Program, types: Mapping[str, TensorType]) -> Program:
    """The program with each cotangent of its output's dtype and shape. A stride stays where it still fits.

    An output that is no longer floating loses its cotangent.
    """
    return replace(program, outputs=tuple(_retyped(o, types[o.value]) for o in program.outputs))


def _retyped(output: Output, t: TensorType) -> Output:
    c = output.cotangent
    if c is None or (c.dtype, c.shape) == (t.dtype, t.shape):
        return output
    if not t.differentiable:
        return Output(output.value)
    stride = restride(c.shape, c.stride, t.shape)
    values = trimmed(c.values, c.shape, t.shape)
    return Output(output.value, replace(c, dtype=t.dtype, shape=t.shape, stride=stride, values=values))


def restride(shape: Shape, stride: Shape, new: Shape) -> Shape:
    """A stride for `new` that is like this one: dense if this is, else with the same order, zeros and first step."""
    if stride == contiguous(shape) or len(shape) != len(new):
        return contiguous(new)
    return ordered(new, stride, min((s for s in stride if s), default=1))


def ordered(shape: Shape, stride: Shape, step: int) -> Shape:
    """A stride with the order and the zeros of this one, with this innermost step, and no other gaps."""
    found = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda a: (stride[a], -a)):
        if stride[axis]:
            found[axis] = step
            step *= max(shape[axis], 1)
    return tuple(found)


def trimmed(recipe: Recipe, shape: Shape, new: Shape, end: bool = False) -> Recipe:
    """A data recipe of this shape cut to the new shape, keeping the first values along each dimension or (end) the
    last, repeated where `new` is larger; any other recipe unchanged."""
    if recipe.name == "data" and len(recipe.args) == 2 * math.prod(shape):  # complex: parts alternate
        shape, new = (*shape, 2), (*new, 2)
    if recipe.name != "data" or len(recipe.args) != math.prod(shape):
        return recipe
    if len(shape) != len(new) or 0 in shape:
        return replace(recipe, args=recipe.args[: math.prod(new)])
    ranges = (range(old - size, old) if end else range(size) for old, size in zip(shape, new, strict=True))
    places = (tuple(i % n for i, n in zip(place, shape, strict=True)) for place in itertools.product(*ranges))
    steps = contiguous(shape)
    kept = (sum(i * step for i, step in zip(place, steps, strict=True)) for place in places)
    return replace(recipe, args=tuple(recipe.args[i] for i in kept))


def reshaped(leaf: Leaf, shape: Shape, end: bool = False) -> Leaf:
    """The leaf with another shape and a stride like its own."""
    stride = restride(leaf.shape, leaf.stride, shape)
    return replace(leaf, shape=shape, stride=stride, values=trimmed(leaf.values, leaf.shape, shape, end))


def swap(leaves: Iterable[Leaf], old: Leaf, new: Leaf) -> tuple[Leaf, ...]:
    """The leaves with one of them replaced."""
    return tuple(new if leaf is old else leaf for leaf in leaves)


def with_attrs(node: Node, name: str, *values: Any) -> Attributes:
    """The node's attributes with one of them replaced, or dropped where no value is given."""
    pairs = ((key, values[0] if key == name and values else value) for key, value in node.attrs)
    return tuple((key, value) for key, value in pairs if values or key != name)
