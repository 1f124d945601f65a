"""A program while it is being generated: its names, their values in eager, and which uses of them are allowed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fuzzer.generation.wish import Wish
from fuzzer.language.interpret import apply, materialise
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.program import Cotangent, Leaf, Node, Output, Program, Route, TensorType, contiguous, writes

# "as_strided() is non-compositional ... banned in compile"; unfold is taken to overlap even where it does not
_UNWRITABLE_VIEWS = ("as_strided", "unfold")
# Their schemas call the results new memory, which is wrong: compiled code sees no write to one through the other.
_DENIED_VIEWS = ("unsafe_split", "unsafe_chunk")


# Called with a part of the program before it runs in eager, which may kill the process.
Announce = Callable[[Program], None]


class Rejected(ValueError):
    """A draw that torch refused; the message names the op and torch's reason."""


@dataclass
class Draft:
    """A program being generated: its names, their real values, and which of them depend on a leaf that requires grad.

    uses    how often each value is read, counted anew from the last write to its memory.
    dead    names that an in-place node wrote to.
    anchor  the value that the next node's first operand shall be, where it fits.
    target  the value that the node being drawn writes to.
    overwrites  whether a write may overwrite values that eager's backward needs, which then raises;  beside: whether a
                node may read the memory that it writes, beside the elements that it writes.
    gradient  whether leaves may require a gradient.
    may_write_leaves  whether a route was requested in which in-place ops may write leaves.
    given   values that the node being drawn shall read, where they fit.
    long    whether a long leaf is still to be drawn;  linear: whether the node being drawn may read one.
    fills   the ops that make tensors of one number everywhere, in place of new leaves.
    counting  the ops that make positions together, of a new tensor of ones their running sum; empty where they are not
              to be drawn.
    wish    the request for the node being drawn;  linked: the values, one of which the wish wants it to read.
    announce  called with a part of the program before it runs in eager.
    """

    rng: random.Random
    limits: Limits
    dtype: str
    may_write_leaves: bool = True
    gradient: bool = True
    leaves: list[Leaf] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    env: dict[str, Any] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    tracked: set[str] = field(default_factory=set)
    uses: dict[str, int] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    anchor: str = ""
    target: str = ""
    overwrites: bool = False
    beside: bool = False
    given: tuple[str, ...] = ()
    long: bool = False
    linear: bool = False
    fills: tuple[OpSpec, ...] = ()
    counting: tuple[OpSpec, ...] = ()
    wish: Wish | None = None
    linked: tuple[str, ...] = ()
    announce: Announce | None = None

    def announced(self, names: Sequence[str], backward: bool = False) -> None:
        """Announce the program so far, with these values as its results; backward: they are differentiated, too."""
        if self.announce is None:
            return
        types = {name: self.types[name] for name in names if backward and name in self.tracked}
        seeds = {name: Cotangent(t.dtype, t.shape, contiguous(t.shape)) for name, t in types.items()}
        outputs = tuple(Output(name, seeds.get(name)) for name in names)
        self.announce(Program(tuple(self.leaves), tuple(self.nodes), outputs, Route()))

    def mark(self) -> tuple[int, int, frozenset[str]]:
        return len(self.leaves), len(self.nodes), frozenset(self.tracked)

    def undo(self, mark: tuple[int, int, frozenset[str]]) -> None:
        """Forget everything drawn after `mark`; values that were written in place since then are restored."""
        undone = self.nodes[mark[1] :]
        gone = [leaf.name for leaf in self.leaves[mark[0] :]] + [name for node in undone for name in node.outs]
        del self.leaves[mark[0] :], self.nodes[mark[1] :]
        for name in gone:
            for table in (self.env, self.types):
                table.pop(name, None)
        self.tracked = set(mark[2])
        if any(writes(node) for node in undone):
            self.env = dict(materialise([replace(leaf, requires_grad=False) for leaf in self.leaves]))
            for node in self.nodes:
                apply(node, self.env)
        self.uses.clear()
        self.dead.clear()
        for node in self.nodes:
            self.count(node)

    def count(self, node: Node) -> None:
        """Note the values that a node reads, and those that its write makes dead or unread."""
        for name in node.uses:
            self.uses[name] = self.uses.get(name, 0) + 1
        target = writes(node)
        if target is not None:
            self.dead.add(target)
            for name in self.sharing(target):
                self.uses[name] = 0

    def readable(self) -> Iterator[tuple[str, TensorType]]:
        """The values that may be operands; not those in the memory of `target`, unless `beside` allows them."""
        locked = self.memory(self.target) if self.target else None
        for name, t in self.types.items():
            apart = self.memory(name) != locked or (self.beside and not self.overlap(name, self.target))
            if name not in self.dead and apart:
                yield name, t

    def overlap(self, name: str, other: str) -> bool:
        """Whether two values have an element in the same place; assumed where they read their memory as different
        dtypes."""
        a, b = self.env[name], self.env[other]
        if self.memory(name) != self.memory(other) or a.element_size() != b.element_size():
            return self.memory(name) == self.memory(other)
        places = torch.zeros(a.untyped_storage().nbytes() // a.element_size(), dtype=torch.bool)
        places.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
        return bool(places.as_strided(b.shape, b.stride(), b.storage_offset()).any())

    def sharing(self, name: str) -> list[str]:
        """The live values in the memory of this one, itself among them."""
        memory = self.memory(name)
        return [other for other in self.types if other not in self.dead and self.memory(other) == memory]

    def memory(self, name: str) -> int:
        return self.env[name].untyped_storage()._cdata

    def views(self, name: str) -> Iterator[Node]:
        """The view nodes between this value and its base, the last one first."""
        made = {out: node for node in self.nodes for out in node.outs}
        while name in made and made[name].uses and self.memory(made[name].uses[0]) == self.memory(name):
            yield made[name]
            name = made[name].uses[0]

    def written_memory(self) -> set[int]:
        return {self.memory(name) for name in self.dead}

    def may_write(self, name: str) -> bool:
        """Whether autograd and the compilers let an in-place op write here.

        Not allowed: a leaf that requires grad; two leaves that share memory, if there is a gradient: AOTAutograd
        refuses them then ("does not yet handle non-differentiable view input mutations"); views that functionalization
        refuses; memory that has a view which its operator's schema denies.
        """
        if any(node.op in _UNWRITABLE_VIEWS for node in self.views(name)):
            return False
        denied = (out for node in self.nodes if node.op in _DENIED_VIEWS for out in node.outs)
        if any(self.memory(out) == self.memory(name) for out in denied):
            return False
        here = [leaf for leaf in self.leaves if self.memory(leaf.name) == self.memory(name)]
        alone = len(here) == 1 or not self.gradient
        return not here or (self.may_write_leaves and alone and not here[0].requires_grad)
