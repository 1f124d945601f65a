"""The cells that each program is asked to fill: those requested least so far in its block, op by op.

A program's request follows from its number alone, not from other programs' results. So the programs of a seed are the
same with any number of workers, and when a campaign is continued.

In each round every op occurs once, those of `core` first. For each op the rarest request so far is chosen: of its
dtypes, of the classes of each attribute, of its operands with their layouts, of the recipes. A later op of a program is
also linked to the node before: one of its operands is a value that this node made or read. An op with a single operand
is linked only after every layout of the operand was requested.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fuzzer.generation.sets import SETS
from fuzzer.generation.wish import AFTER, BESIDE, Wish
from fuzzer.language.classes import (
    DEFAULT,
    FIRST,
    INNER,
    INSIDE,
    LAST,
    LAYOUTS,
    NEGATIVE,
    main_operand,
    possible_classes,
    possible_dtypes,
    possible_layouts,
)
from fuzzer.language.ops.spec import NEAR_ENDS, REQUIRED, Attribute, Limits, OpSpec
from fuzzer.language.program import INTEGERS
from fuzzer.language.values import ARANGE, AROUND, ENDS, GENERAL, NEAR, POSITIONS, SPECIAL

_ROUND = 20  # programs of one node in a round of lengths; 1/k as many have k nodes, as in a blind campaign
_PLACED = 2  # one in so many recipes of an operand with edges or a domain has numbers there
# Programs of a block. A worker that begins anew makes the wishes of its block up to its program, in 0.2 ms each: that
# takes 0.8 s at most, however long the campaign runs.
BLOCK = 4096
_BLOCKS = 2  # that are kept: programs of two are under way at a time
# Classes to request of an attribute whose classes the table does not name.
_UNTOLD = {
    "dim": (FIRST, INNER, LAST, NEGATIVE),
    "dims": ("one", "2", "all"),
    "flag": ("False", "True"),
    **dict.fromkeys(("integer", "size", "shape"), ("1", "a size", INSIDE, "mixed")),
}


class Wishes:
    """The wishes of a seed's programs, in blocks of BLOCK programs; what was requested counts within a block.

    ops     by name; programs may use these.
    """

    def __init__(self, ops: Mapping[str, OpSpec], limits: Limits, seed: int):
        self.ops, self.limits, self.seed = dict(ops), limits, seed
        self.blocks: dict[int, _Block] = {}

    def of(self, number: int) -> tuple[Wish, ...]:
        """The wishes for program `number`, the first node first."""
        which, place = divmod(number, BLOCK)
        if which not in self.blocks:
            for older in [*self.blocks][: len(self.blocks) - _BLOCKS + 1]:
                del self.blocks[older]
            name = f"{self.seed}/wishes" + f"/{which}" * (which > 0)
            self.blocks[which] = _Block(self.ops, self.limits, random.Random(name))
        return self.blocks[which].of(place)


class _Block:
    """The wishes of a block's programs, made one after the other."""

    def __init__(self, ops: Mapping[str, OpSpec], limits: Limits, rng: random.Random):
        self.ops, self.limits, self.rng = ops, limits, rng
        self.made: list[tuple[Wish, ...]] = []
        self.asked: Counter[tuple[str, ...]] = Counter()
        self.waiting: list[str] = []
        self.lengths: list[int] = []

    def of(self, place: int) -> tuple[Wish, ...]:
        """The wishes for the program at this place."""
        while len(self.made) <= place:
            self.made.append(self._next())
        return self.made[place]

    def _next(self) -> tuple[Wish, ...]:
        if not self.lengths:
            counts = {k: round(_ROUND / k) for k in range(1, self.limits.max_nodes + 1)}
            self.lengths = [k for k, count in counts.items() for _ in range(count)]
            self.rng.shuffle(self.lengths)
        found: list[Wish] = []
        for _ in range(self.lengths.pop()):
            found.append(self._wish(self.ops[self._next_op()], found[0] if found else None))
        return tuple(found)

    def _next_op(self) -> str:
        if not self.waiting:
            core = [name for name in self.ops if name in SETS["core"]]
            others = [name for name in self.ops if name not in SETS["core"]]
            for part in (core, others):
                self.rng.shuffle(part)
            self.waiting = [*core, *others][::-1]
        return self.waiting.pop()

    def _least(self, *choices: tuple[str, ...]) -> tuple[str, ...]:
        """The choice requested least so far, which now counts as requested once more."""
        fewest = min(self.asked[c] for c in choices)
        chosen = self.rng.choice([c for c in choices if self.asked[c] == fewest])
        self.asked[chosen] += 1
        return chosen

    def _wish(self, spec: OpSpec, first: Wish | None) -> Wish:
        """The wish for a node of this op; first: the wish for the program's first node, None if this is the first."""
        dtypes = possible_dtypes(spec, self.limits)
        if first is not None and first.dtype in dtypes:  # the dtype of the value that it reads
            dtypes = (first.dtype,)
        dtype = self._least(*((spec.name, "dtype", t) for t in dtypes))[2]
        attributes = {
            a.name: self._least(*((spec.name, "attribute", a.name, kind) for kind in classes))[3]
            for a in spec.attributes
            if (classes := self._classes(a, spec, dtype))
        }
        wish = Wish(spec.name, dtype, attributes)
        free = [place for place, operand in enumerate(spec.operands) if operand.recipe is None]
        if first is not None and free and (len(free) > 1 or not self._waits(spec, free)):
            links = [(spec.name, "link", link, str(place)) for link in (AFTER, BESIDE) for place in free]
            *_, link, reads = self._least(*links)
            wish = replace(wish, link=link, reads=int(reads))
            free.remove(int(reads))
        layouts = self._layouts(spec, free)
        if not layouts:
            return wish
        *_, place, kind = self._least(*layouts)
        recipe = self._least(*((spec.name, "values", place, name) for name in self._suited(spec, int(place), dtype)))[3]
        return replace(wish, operand=int(place), layout=kind, values=recipe)

    def _suited(self, spec: OpSpec, place: int, dtype: str) -> tuple[str, ...]:
        """The recipes that may be requested of an operand now; every so often those at edges and ends, else "", too."""
        if place == main_operand(spec) and dtype in INTEGERS:
            return ("", ARANGE, *(NEAR,) * (dtype in NEAR_ENDS), *(POSITIONS,) * (dtype == "i64"))
        operand, turn = spec.operands[place], (spec.name, "turn", str(place))
        placed = (AROUND,) * (operand.edges is not None) + (ENDS,) * (operand.domain is not None)
        self.asked[turn] += bool(placed)
        return placed if placed and self.asked[turn] % _PLACED == 0 else ("", *operand.values, *GENERAL, *SPECIAL)

    def _waits(self, spec: OpSpec, places: Sequence[int]) -> bool:
        """Whether some layout of these operands was not requested yet."""
        return any(not self.asked[layout] for layout in self._layouts(spec, places))

    def _layouts(self, spec: OpSpec, places: Sequence[int]) -> list[tuple[str, ...]]:
        """The layouts that may be requested of these operands."""
        return [
            (spec.name, "layout", str(place), kind)
            for place in places
            for kind in possible_layouts(spec.operands[place]) or LAYOUTS
        ]

    def _classes(self, attribute: Attribute, spec: OpSpec, dtype: str) -> tuple[str, ...]:
        """The classes that may be requested of an attribute, beside a main operand of this dtype."""
        if attribute.corners is not None and attribute.classes and dtype in INTEGERS:
            return attribute.classes
        known = possible_classes(attribute, spec)
        if known is not None:
            return known
        usual = () if attribute.default is REQUIRED else (DEFAULT,)
        untold = self.limits.dtypes if attribute.kind == "dtype" else _UNTOLD.get(attribute.kind, ())
        return (*usual, *(kind for kind in untold if kind != str(attribute.default)), *attribute.classes)


def asked_cells(wish: Wish, spec: OpSpec) -> set[tuple[str, str]]:
    """The cells, (family, words), that a wish names and that are possible by the table of ops."""
    told = {a.name for a in spec.attributes if possible_classes(a, spec) is not None}
    found = {("op", wish.op), ("dtype", f"{wish.op} {wish.dtype}")}
    found |= {("attribute", f"{wish.op} {name}={kind}") for name, kind in wish.attributes.items() if name in told}
    operand = spec.operands[wish.operand]
    if wish.layout and possible_layouts(operand) is not None:
        found.add(("layout", f"{wish.op} {operand.name} {wish.layout}"))
    return found
