"""A minimal program grown into one that a person would write: the minimizer in reverse.

STEPS propose changes, one function each. `grow` follows a proposal if it types and is more natural by `unnatural`, the
one definition. Only such proposals cost a query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from fuzzer.language.infer import infer
from fuzzer.language.layouts import views
from fuzzer.language.program import (
    NORMAL,
    Cotangent,
    Leaf,
    Node,
    Program,
    Recipe,
    Route,
    contiguous,
    map_nodes,
    writes,
    written_leaves,
)
from fuzzer.language.text import show
from minimizer.passes import Reducer, default_route, default_setting, to_float32
from minimizer.public import PUBLIC, public_op
from minimizer.reduce import Infer, typed
from minimizer.resize import drop_dim, resized_axes
from minimizer.rewrite import Types, propose, swap

Measure = tuple[float, ...]
# The visible relative error of a program that shows the fault; 0 where the usual tolerances admit it, infinite where a
# number is not finite or nothing was measured. None where the fault does not show.
Visible = Callable[[Program], float | None]

# Full compiles, at 2 to 3 s each: a minute. The reduction before took about as many.
_BUDGET = 20

# Levels of visibility: another number, a wrong first digit, a wrong third digit.
_GLANCES = (0.5, 0.05, 0.0005)
_USUAL = ("f32", "i64", "bool", "c64")
_USUAL_SIZE = 3
_FLAT = 2  # dimensions of a printed page
_READABLE = 16  # elements that a reader takes in at a glance
_PLAIN_VALUES = ("ones", "arange", "integers")  # the values that the minimizer leaves


def unnatural(program: Program, error: float) -> Measure:
    """How far a program with this error is from one that a person would write: smaller is more natural.

    An earlier component outweighs any amount of a later one: 1. an error within the usual tolerances, which people
    would close as rounding, whatever the program looks like; 2. settings away from their default, then the route; 3.
    functions beneath those of torch.nn; 4. unusual dtypes; 5. values: random normal ones before other random ones, ones
    and counts, given numbers; 6. layouts: dense leaves before those that views make, and any others; 7. how visible the
    error is; 8. sizes under 3, at which a dependence on sizes stays hidden; 9. dimensions after the second, leaves with
    more elements than a reader takes in; 10. statements.
    """
    tensors: list[Leaf | Cotangent] = list(program.leaves)
    tensors += [o.cotangent for o in program.outputs if o.cotangent is not None]
    return (
        error == 0,
        len(program.settings),
        (program.route.name != Route().name) + len(program.route.options),
        sum(node.op in PUBLIC for node in program.nodes),
        sum(t.dtype not in _USUAL for t in tensors),
        sum(map(_odd_values, tensors)),
        sum(map(_odd_layout, program.leaves)),
        sum(error < least for least in _GLANCES),
        sum(n < _USUAL_SIZE for leaf in program.leaves for n in leaf.shape or (0,)),
        sum(max(len(leaf.shape) - _FLAT, 0) for leaf in program.leaves),
        sum(map(_long, program.leaves)),
        sum(1 for _ in program.nodes),
    )


def _odd_values(t: Leaf | Cotangent) -> int:
    """How far values are from normal ones; 0 for indices and masks, whose values the op dictates."""
    if not t.type.differentiable or (isinstance(t, Leaf) and t.base is not None) or t.values == NORMAL:
        return 0
    return 3 if t.values.name == "data" else 2 if t.values.name in _PLAIN_VALUES else 1


def _odd_layout(leaf: Leaf) -> int:
    if leaf.offset or leaf.base is not None:
        return _ODD
    if leaf.stride == contiguous(leaf.shape):
        return 0
    found = [view.stride for view in views(leaf.shape, leaf.stride)]
    return 1 + found.index(leaf.stride) if leaf.stride in found else _ODD


def _long(leaf: Leaf) -> bool:
    """Whether the dense tensor behind a leaf has more elements than a reader takes in at a glance."""
    return min(_memory(leaf), math.prod(leaf.shape)) > _READABLE


def _memory(leaf: Leaf) -> int:
    """The number of elements of memory from a leaf's first to its last."""
    return 1 + sum((n - 1) * step for n, step in zip(leaf.shape, leaf.stride, strict=True))


_ODD = 4  # more than the views of a layout can cost


@dataclass(frozen=True)
class Growth:
    """The result of `grow`: the most natural program found, its error, the steps that led to it, and the number of
    queries."""

    program: Program
    error: float
    history: tuple[str, ...]
    queries: int


def grow(
    program: Program,
    error: float,
    ask: Visible,
    *,
    infer: Infer = infer,
    budget: int = _BUDGET,
    expired: Callable[[], bool] = lambda: False,
) -> Growth:
    """The most natural program that STEPS reach from a minimal one whose visible error is `error`.

    ask   returns a program's visible error; called at most `budget` times, and not after `expired` is true.
    """
    found = typed(program, infer)
    assert found is not None, "the minimal program types"
    return _Grower(found[0], found[1], error, ask, infer, budget, expired).run()


class _Grower:
    """The programs found and tried so far."""

    def __init__(
        self,
        program: Program,
        types: Mapping[str, object],
        error: float,
        ask: Visible,
        infer: Infer,
        budget: int,
        expired: Callable[[], bool],
    ) -> None:
        self.program, self.types, self.error = program, types, error
        self.ask, self.infer, self.budget, self.expired = ask, infer, budget, expired
        self.tried = {show(program)}
        self.history: list[str] = []
        self.queries = 0

    def run(self) -> Growth:
        while sum(self.exhaust(step) for step in STEPS):
            pass
        return Growth(self.program, self.error, tuple(self.history), self.queries)

    def exhaust(self, step: Reducer) -> bool:
        """Apply one step until it fails; returns whether it ever succeeded. Reducers have already failed on the minimal
        program."""
        before = len(self.history)
        while (step not in _AGAIN or self.history) and self.once(step):
            self.history.append(step.__name__)
        return len(self.history) > before

    def once(self, step: Reducer) -> bool:
        """Follow the first proposal of a step that shows the fault and is more natural."""
        now = unnatural(self.program, self.error)
        for proposal in step(self.program, Types(self.types)):  # type: ignore[arg-type]
            found = typed(proposal, self.infer)
            if found is None or show(found[0]) in self.tried or not unnatural(found[0], math.inf) < now:
                continue
            if self.queries >= self.budget or self.expired():
                return False
            self.tried.add(show(found[0]))
            self.queries += 1
            error = self.ask(found[0])
            if error is not None and unnatural(found[0], error) < now:
                self.program, self.types, self.error = *found, error
                return True
        return False


# ---------------------------------------------------------------- steps


def loud_values(program: Program, types: Types) -> Iterator[Program]:
    """Leaves with values at which sums and differences fail: small numbers vanish beside 1e8, and infinities give NaN.
    In-place nodes become fills with 0.1, which a reader recognises; in a second proposal they stay."""
    leaves = tuple(map(_loud, program.leaves))
    body = map_nodes(program.body, _filling)
    for changed in (body, program.body):
        yield from propose(program, leaves=leaves, body=changed)


_LOUD = (1e8, math.inf, 1.0)


def _loud(leaf: Leaf) -> Leaf:
    if not leaf.type.is_float or leaf.base is not None or leaf.dtype == "f16":
        return leaf
    shape = leaf.shape if len(leaf.shape) > 1 else (len(_LOUD),)
    numbers = (_LOUD * math.prod(shape))[: math.prod(shape)]
    return replace(leaf, shape=shape, stride=contiguous(shape), offset=0, values=Recipe("data", numbers), seed=0)


def _filling(node: Node) -> Node:
    target = writes(node)
    return node if target is None else replace(node, op="fill_", args=(target,), attrs=(("value", 0.1),))


def normal_values(program: Program, types: Types) -> Iterator[Program]:
    """Random normal numbers: everywhere, in all leaves, in the cotangents, in one leaf after the other."""

    def normal(leaf: Leaf, number: int) -> Leaf:
        own = leaf.type.differentiable and leaf.base is None
        return replace(leaf, values=NORMAL, seed=number) if own else leaf

    leaves = tuple(normal(leaf, i) for i, leaf in enumerate(program.leaves))
    drawn = (o.cotangent and replace(o.cotangent, values=NORMAL, seed=len(leaves)) for o in program.outputs)
    outputs = tuple(replace(o, cotangent=c) for o, c in zip(program.outputs, drawn, strict=True))
    yield from propose(program, leaves=leaves, outputs=outputs)
    yield from propose(program, leaves=leaves)
    yield from propose(program, outputs=outputs)
    for old, new in zip(program.leaves, leaves, strict=True):
        yield from propose(program, leaves=swap(program.leaves, old, new))


def other_numbers(program: Program, types: Types) -> Iterator[Program]:
    """Other random numbers, in which the error may be more visible: the next seeds, tried twice."""
    for step in (10, 20):
        leaves = tuple(
            replace(leaf, seed=leaf.seed + step) if leaf.values == NORMAL else leaf for leaf in program.leaves
        )
        yield from propose(program, leaves=leaves)


def few_elements(program: Program, types: Types) -> Iterator[Program]:
    """Smaller sizes for a leaf with more elements than a reader takes in, and for all equal sizes. A reduction tries
    few sizes, and the smallest that works, as for five chunks, may lie between those."""
    for leaf in program.leaves:
        if not _long(leaf):
            continue
        for size in sorted(set(leaf.shape), reverse=True):
            axes = [(other.name, axis) for other in program.leaves for axis, n in enumerate(other.shape) if n == size]
            for target in (n for n in _FEW if n < size):
                for resized in resized_axes(program, dict.fromkeys(axes, target), size):
                    yield _overlapping(program, resized)


_FEW = (3, 4, 5, 6, 8, 10, 12, 16)


def _overlapping(program: Program, resized: Program) -> Program:
    """The resized program, whose leaves still overlap themselves where the original's did."""
    leaves = tuple(
        replace(new, stride=old.stride) if _overlaps(old) else new
        for old, new in zip(program.leaves, resized.leaves, strict=True)
    )
    return replace(resized, leaves=leaves)


def _overlaps(leaf: Leaf) -> bool:
    """Whether a leaf has more elements than memory, not counting dimensions of stride 0."""
    return math.prod(n for n, step in zip(leaf.shape, leaf.stride, strict=True) if step) > _memory(leaf)


def viewed_layout(program: Program, types: Types) -> Iterator[Program]:
    """A leaf of unusual layout gets the layout that views of a dense tensor have. If one view makes that layout, the
    leaf becomes dense and the program takes the view."""
    for leaf in program.leaves:
        if not _odd_layout(leaf) or leaf.base is not None:
            continue
        for view in views(leaf.shape, leaf.stride):
            made = replace(leaf, stride=view.stride, offset=0)
            yield from propose(program, leaves=swap(program.leaves, leaf, made))
        if leaf.name in written_leaves(program):
            continue
        for view in (view for view in views(leaf.shape, leaf.stride)[:1] if len(view.steps) == 1):
            dense = replace(leaf, name=f"{leaf.name}_dense", shape=view.base, stride=contiguous(view.base), offset=0)
            [(op, attributes)] = view.steps
            body = (Node((leaf.name,), op, (dense.name,), attributes), *program.body)
            yield from propose(program, leaves=swap(program.leaves, leaf, dense), body=body)


def usual_sizes(program: Program, types: Types) -> Iterator[Program]:
    """Scalars and dimensions of one or two get three elements: all of a size at once, then leaf by leaf."""

    def some(leaf: Leaf) -> Leaf:
        scalar = not leaf.shape and leaf.type.differentiable
        return replace(leaf, shape=(_USUAL_SIZE,), stride=(1,)) if scalar else leaf

    yield from propose(program, leaves=tuple(map(some, program.leaves)))
    for size in range(_USUAL_SIZE - 1, 0, -1):
        axes = [(leaf.name, axis) for leaf in program.leaves for axis, n in enumerate(leaf.shape) if n == size]
        yield from map(_viewed, resized_axes(program, dict.fromkeys(axes, _USUAL_SIZE), size))
        names = list(dict.fromkeys(name for name, _ in axes))
        for name in names if len(names) > 1 else ():
            own = {axis: _USUAL_SIZE for axis in axes if axis[0] == name}
            yield from map(_viewed, resized_axes(program, own, size))


def _viewed(program: Program) -> Program:
    """The program whose leaves have the layout of views, where they are not dense."""

    def viewed(leaf: Leaf) -> Leaf:
        found = views(leaf.shape, leaf.stride) if _odd_layout(leaf) and leaf.base is None else ()
        return replace(leaf, stride=found[0].stride) if found else leaf

    return replace(program, leaves=tuple(map(viewed, program.leaves)))


# Reducers whose goals are natural too: they may succeed with larger or other values where they failed before.
_AGAIN: tuple[Reducer, ...] = (default_setting, default_route, to_float32, drop_dim)

STEPS: tuple[Reducer, ...] = (
    loud_values,
    public_op,
    normal_values,
    few_elements,
    viewed_layout,
    usual_sizes,
    *_AGAIN,
    other_numbers,
)
