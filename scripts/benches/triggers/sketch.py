"""What the text of a program says about its values before anything runs: who made and who reads each, and, as far as
simple rules go, its shape, dtype, order in memory and the storage that it lies in.

Nothing here runs torch. What the rules do not know is None, and a trigger takes None as a no.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from benches.triggers import shapes, strides
from benches.triggers.strides import Geometry
from fuzzer.language.ops import OPS
from fuzzer.language.program import (
    Leaf,
    Node,
    Program,
    Recipe,
    Region,
    Shape,
    statements,
    walk,
    writes,
)

TRANSPOSERS = frozenset("permute transpose t T H mT mH movedim".split())
EXPANDERS = frozenset("expand expand_as broadcast_to broadcast_tensors".split())
RESHAPERS = frozenset("reshape view flatten unflatten ravel reshape_as view_as unsqueeze squeeze".split())
# Results that lie in the memory of the first operand; a reshape may copy, and mostly does not.
VIEWS = (
    TRANSPOSERS
    | EXPANDERS
    | RESHAPERS
    | frozenset("narrow slice select diagonal unfold as_strided real imag positive detach".split())
    | frozenset("split split_sections split_with_sizes tensor_split chunk unbind hsplit vsplit dsplit".split())
)
# What moves numbers and changes none of them.
MOVES = VIEWS | frozenset("clone contiguous flip roll repeat tile alias_copy view_copy permute_copy".split())
CASTS = {"double": "f64", "float": "f32", "half": "f16", "bfloat16": "bf16", "cdouble": "c128", "cfloat": "c64"}
_TRUTHS = frozenset("comparison".split())
_WIDTHS = ("f16", "bf16", "f32", "f64", "c64", "c128")


class Sketch:
    """A program and what its text says. Names are the program's own."""

    def __init__(self, program: Program):
        self.program = program
        self.nodes: tuple[Node, ...] = program.nodes
        self.leaves: dict[str, Leaf] = {leaf.name: leaf for leaf in program.leaves}
        self.maker: dict[str, Node] = {out: node for node in self.nodes for out in node.outs}
        self._declared = {o.value: o.cotangent for o in program.outputs if o.cotangent is not None}
        self._shapes: dict[str, Shape | None] = {}
        self._geometries: dict[str, Geometry | None] = {}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The program's compiler settings."""
        return dict(self.program.settings)

    @cached_property
    def dynamic(self) -> bool:
        """Whether sizes are symbolic."""
        return dict(self.program.route.options).get("dynamic") is True

    @cached_property
    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each name, in order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.uses):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def order(self) -> dict[str, int]:
        """The place of each node among the nodes, by its first result."""
        return {node.outs[0]: at for at, node in enumerate(self.nodes)}

    def of(self, *ops: str) -> Iterator[Node]:
        """The nodes of these ops, in order."""
        return (node for node in self.nodes if node.op in ops)

    def regions(self, kind: str) -> Iterator[Region]:
        """The regions of this kind, in order."""
        return (s for s in statements(self.program.body) if isinstance(s, Region) and s.kind == kind)

    def inside(self, kind: str) -> set[str]:
        """First results of the nodes that stand in a region of this kind."""
        return {node.outs[0] for region in self.regions(kind) for node in walk(region.body)}

    # ---------------------------------------------------------------- where a value comes from

    def made_by(self, name: str, ops: Collection[str], through: Collection[str] = ()) -> Node | None:
        """The node of one of these ops that made the value, looking through first operands of the ops `through`."""
        node = self.maker.get(name)
        while node is not None and node.op not in ops and node.op in through and node.uses:
            node = self.maker.get(node.uses[0])
        return node if node is not None and node.op in ops else None

    def ancestors(self, name: str) -> Iterator[Node]:
        """Every node that the value depends on, the nearest first."""
        todo, seen = [name], set[str]()
        while todo:
            node = self.maker.get(todo.pop(0))
            if node is not None and node.outs[0] not in seen:
                seen.add(node.outs[0])
                yield node
                todo.extend(node.uses)

    def source(self, name: str, through: Collection[str] = MOVES) -> str:
        """The name from which the value comes by ops that only move numbers."""
        node = self.maker.get(name)
        while node is not None and node.op in through and node.uses:
            name = node.uses[0]
            node = self.maker.get(name)
        return name

    def storage(self, name: str) -> str:
        """The name, a leaf or a computed value, in whose memory this one lies: what views and writes start from."""
        while True:
            node = self.maker.get(name)
            if node is not None and node.uses and (node.op in VIEWS or writes(node) is not None):
                name = node.uses[0]
            elif node is None and name in self.leaves and (base := self.leaves[name].base) is not None:
                name = base
            else:
                return name

    def written(self) -> Iterator[tuple[Node, str]]:
        """Each node that writes in place, with the name that it writes to."""
        return ((node, target) for node in self.nodes if (target := writes(node)) is not None)

    # ---------------------------------------------------------------- types

    def attr(self, node: Node, name: str, default: Any = None) -> Any:
        """An attribute of a node, or this default where the text leaves it out."""
        return dict(node.attrs).get(name, default)

    def shape(self, name: str) -> Shape | None:
        """The sizes of a value."""
        if name in self.leaves:
            return self.leaves[name].shape
        if name in self._declared:
            return self._declared[name].shape
        if name not in self._shapes:
            self._shapes[name] = None
            node = self.maker[name]
            if node.outs[0] == name or node.op in shapes.ALIKE:
                self._shapes[name] = shapes.result(node, [self.shape(n) for n in node.uses], dict(node.attrs))
        return self._shapes[name]

    def size(self, name: str, dim: int) -> int | None:
        """One size of a value."""
        shape = self.shape(name)
        return shape[dim] if shape and -len(shape) <= dim < len(shape) else None

    def numel(self, name: str) -> int | None:
        """How many elements a value has."""
        shape = self.shape(name)
        return None if shape is None else shapes.product(shape)

    def dtype(self, name: str) -> str | None:
        """The dtype of a value, as it is where no autocast acts."""
        if name in self.leaves:
            return self.leaves[name].dtype
        if name in self._declared:
            return self._declared[name].dtype
        node = self.maker[name]
        given = self.attr(node, "dtype")
        if given is not None:
            return str(given.name)
        if node.op in CASTS:
            return CASTS[node.op]
        if node.op in OPS and OPS[node.op].family in _TRUTHS:
            return "bool"
        if node.op == "complex":
            return "c64" if self.dtype(node.uses[0]) == "f32" else "c128"
        if node.op in ("argmax", "argmin", "argsort") or (node.outs[0] != name and node.op in shapes.WITH_INDICES):
            return "i64"
        return promoted([self.dtype(n) for n in node.uses])

    def geometry(self, name: str) -> Geometry | None:
        """The sizes and strides of a value."""
        if name in self.leaves:
            return self.leaves[name].shape, self.leaves[name].stride
        if name not in self._geometries:
            node = self.maker[name]
            before = self.geometry(node.uses[0]) if node.uses else None
            self._geometries[name] = strides.result(node, before, self.shape(name), dict(node.attrs))
        return self._geometries[name]

    def order_in_memory(self, name: str) -> str | None:
        """How a value lies in memory (`strides.layout`)."""
        geometry = self.geometry(name)
        return None if geometry is None else strides.layout(*geometry)

    def expands(self, node: Node) -> bool:
        """Whether an expansion repeats anything."""
        before, after = self.shape(node.uses[0]), self.shape(node.outs[0])
        return before is None or after is None or shapes.product(before) < shapes.product(after)

    def recipe(self, name: str) -> Recipe | None:
        """How the leaf was filled from which the value comes by ops that only move numbers."""
        leaf = self.leaves.get(self.source(name))
        return None if leaf is None else leaf.values

    def tracked(self, name: str) -> bool:
        """Whether the value depends on a leaf that requires grad."""
        if name in self.leaves:
            return self.leaves[name].requires_grad
        return any(self.tracked(n) for n in self.maker[name].uses)


def promoted(dtypes: Sequence[str | None]) -> str | None:
    """The dtype of what is computed from these; indices, masks and integers beside floating ones do not count."""
    floating = [d for d in dtypes if d in _WIDTHS]
    if {"f16", "bf16"} <= set(floating) and not set(floating) - {"f16", "bf16"}:
        return "f32"
    return max(floating, key=_WIDTHS.index) if floating else next(iter(dtypes), None)
