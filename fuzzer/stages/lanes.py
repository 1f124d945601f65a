"""Conflicts between iterations of a loop nest: what one iteration stores, another must not touch.

A kernel's iterations run in any order, in vectors, in threads. So where several nodes share a nest, only the iteration
that stores an element may load or store it. A fusion of nodes that should not share a nest, or memory that is reused
too early, breaks this rule, even if the values happen to be right.

A *lane* is an iteration's number in row-major order. Nodes of one nest need not have the same number of iterations:
those inside a reduction's loop have all of them, those before and after it one for each result. Then the numbers of the
results are compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from fuzzer.stages.cannot import Faulty

Element = tuple[int, torch.dtype]  # memory: its address and the dtype in which it is read
_SEVERAL = -2  # the lane of an element to which several lanes store the same value


class Access(NamedTuple):
    """One load or store of a node.

    at, lanes  the elements (offsets in the memory), and the lanes that access them;  total  how many lanes there are.
    nest       the number of the node's nest.
    """

    name: str
    stores: bool
    at: torch.Tensor
    lanes: torch.Tensor
    total: int
    nest: int = 0


@dataclass
class Lanes:
    """The accesses of one kernel to memory that it both loads and stores, or stores twice.

    results  for each of its nests, the lanes that all nodes of the nest have in common.
    outer    the lanes that all its nests have in common: they run one after another within the same outer loops.
    late     whether a reduction's result is ready only after the nest's inner loop (C++ has one such loop for each
             nest, Triton as many as needed).
    """

    results: list[int]
    outer: int = 1
    late: bool = False
    accesses: dict[Element, list[Access]] = field(default_factory=lambda: defaultdict(list))

    def note(self, memory: Element, access: Access) -> None:
        """Record one more access. Raises Faulty where another lane stores an element that this one touches, or the
        reverse."""
        for earlier in self.accesses[memory]:
            if earlier.stores:
                self._compare(earlier, access)
            elif access.stores:
                self._compare(access, earlier)
            if self._comes_late(earlier, access) and bool(torch.isin(access.at, earlier.at).any()):
                raise Faulty(f"{access.name} is read within the loop after which {earlier.name} is stored to it")
        self.accesses[memory].append(access)

    def _comes_late(self, earlier: Access, access: Access) -> bool:
        """Whether an access happens inside the loop after which an earlier access stores, as their lanes show."""
        return self.late and earlier.stores and earlier.nest == access.nest and earlier.total < access.total

    def _compare(self, store: Access, other: Access) -> None:
        """Raise Faulty where a lane stores an element that another lane of `other` touches."""
        count = self._common(store, other)
        if store.total % count or other.total % count or not store.at.numel() or not other.at.numel():
            return
        mine, theirs = store.lanes // (store.total // count), other.lanes // (other.total // count)
        owner = store.at.new_full((int(torch.maximum(store.at.max(), other.at.max())) + 1,), -1)
        owner[store.at] = mine
        owner[store.at[owner[store.at] != mine]] = _SEVERAL
        found = owner[other.at]
        apart = (found >= 0) & (found != theirs)
        if bool(apart.any()):
            first = int(apart.nonzero()[0])
            raise Faulty(
                f"lane {int(found[first])} of {count} stores to {store.name} what lane {int(theirs[first])} "
                f"{'stores to' if other.stores else 'loads from'} {other.name}: element {int(other.at[first])}"
            )

    def _common(self, one: Access, other: Access) -> int:
        """How many lanes two accesses have in common."""
        if one.nest != other.nest:
            return self.outer
        return one.total if one.total == other.total else self.results[one.nest]
