"""Neighbours of a program: the programs one change away, along AXES.

The neighbours that reproduce a fault are its scope (`fuzzer.ledger.scope`). An axis proposes programs, as a reducer
does; only a proposal that types is a neighbour. A new axis is one function here and one line in AXES.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fuzzer.language.infer import infer
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import REQUIRED, Attribute
from fuzzer.language.program import (
    FLOATS,
    Attributes,
    Dtype,
    Leaf,
    Node,
    Program,
    Region,
    Route,
    Shape,
    Value,
    contiguous,
    map_nodes,
    statements,
    substitute_node,
)
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import default, exists
from fuzzer.language.text import show
from minimizer.reduce import Infer, typed
from minimizer.resize import resizings
from minimizer.rewrite import ordered, propose


@dataclass(frozen=True)
class Neighbour:
    """A program one change away: the axis, the changed value, and the program, canonical."""

    axis: str
    value: str
    program: Program


# (description, proposals): the first proposal that types is the neighbour. With an empty description, the changed
# numbers describe it, and the first two proposals that run in eager are neighbours.
Axis = Callable[[Program], Iterator[tuple[str, Iterable[Program]]]]
Runs = Callable[[Sequence[Program]], Sequence[bool]]
_MOST = 16  # neighbours along one axis, at half a second each
_ASKED = 12  # proposals of one size that eager tries, at 10 ms each: eager refuses some that type


def all_run(batch: Sequence[Program]) -> Sequence[bool]:
    """The default `runs`, without an eager run: every program counts as running."""
    return [True] * len(batch)


def neighbours(
    program: Program, axes: Iterable[Axis] = (), runs: Runs = all_run, infer: Infer = infer
) -> Iterator[Neighbour]:
    """The neighbours of a canonical program along these axes (all axes by default); each once.

    runs   returns for each of several programs whether eager runs it.
    """
    seen, before = {show(program)}, numbers(program)
    for axis in axes or AXES:
        yield from itertools.islice(_along(axis, program, seen, before, runs, infer), _MOST)


def _along(
    axis: Axis, program: Program, seen: set[str], before: dict[str, int], runs: Runs, infer: Infer
) -> Iterator[Neighbour]:
    for value, proposals in axis(program):
        fresh = _typed(proposals, seen, infer)
        if value:
            found = list(itertools.islice(fresh, 1))
        else:
            asked = list(itertools.islice(fresh, _ASKED))
            found = [p for p, ran in zip(asked, runs(asked), strict=True) if ran]
        for candidate in found[:2]:
            seen.add(show(candidate))
            yield Neighbour(axis.__name__, value or changed(before, numbers(candidate)), candidate)


def _typed(proposals: Iterable[Program], seen: set[str], infer: Infer) -> Iterator[Program]:
    """The proposals that type and are new, canonical, each once."""
    told = set(seen)
    for proposal in proposals:
        found = typed(proposal, infer)
        if found is not None and show(found[0]) not in told:
            told.add(show(found[0]))
            yield found[0]


# ---------------------------------------------------------------- the numbers of a program


def numbers(program: Program) -> dict[str, int]:
    """The sizes and the integer attributes of a program by name, defaults included: `x0.shape[1]`, `end`,
    `kernel_size[0]`; with the op's name before a name that occurs twice."""
    found = {f"{leaf.name}.shape[{axis}]": n for leaf in program.leaves for axis, n in enumerate(leaf.shape)}
    held = [(node, a.name, _integers(a, node)) for node in program.nodes for a in _attributes(node)]
    for node, name, values in held:
        twins = [other for other, twin, _ in held if twin == name]
        of = "" if len(twins) == 1 else f"{node.op if len({n.op for n in twins}) == len(twins) else node.outs[0]}."
        found |= {f"{of}{name}{index}": n for index, n in values}
    return found


def changed(before: dict[str, int], after: dict[str, int]) -> str:
    """The numbers that changed, with their new values: `x0.shape[1]=6, end=2`."""
    return ", ".join(f"{name}={n}" for name, n in after.items() if before.get(name) != n) or "nothing that has a number"


def _attributes(node: Node) -> tuple[Attribute, ...]:
    return OPS[node.op].attributes if node.op in OPS else ()


def _integers(attribute: Attribute, node: Node) -> Iterator[tuple[str, int]]:
    """(index, number) of each integer in an attribute's value; none where the attribute counts dimensions."""
    value = _value(attribute, node)
    if "dim" in attribute.name or attribute.kind in ("flag", "dim", "dims"):
        return
    if type(value) is int:
        yield "", value
    elif isinstance(value, tuple) and all(type(n) is int for n in value):
        yield from ((f"[{i}]", n) for i, n in enumerate(value) if isinstance(n, int))


_FIRST = ("start",)  # None means 0 in these, as in Python's slices


def _value(attribute: Attribute, node: Node) -> Value:
    return _or_first(attribute, dict(node.attrs).get(attribute.name, attribute.default))


def _or_first(attribute: Attribute, value: Value) -> Value:
    return 0 if value is None and attribute.name in _FIRST else value


# ---------------------------------------------------------------- axes


def dtype(program: Program) -> Iterator[tuple[str, Iterable[Program]]]:
    """All leaves, and all casts, in one floating dtype; complex ones in that of the same precision."""
    for name in FLOATS:
        wide = "c128" if name == "f64" else "c64"

        def of(held: str, name: str = name, wide: str = wide) -> str:
            return wide if held in ("c64", "c128") else name if held in FLOATS else held

        def cast(node: Node, of: Callable[[str], str] = of) -> Node:
            single = [(key, Dtype(of(v.name)) if isinstance(v, Dtype) else v) for key, v in node.attrs]
            return replace(node, attrs=tuple(single))

        leaves = tuple(replace(leaf, dtype=of(leaf.dtype)) for leaf in program.leaves)
        yield name, propose(program, leaves=leaves, body=map_nodes(program.body, cast))


_VECTOR = 32  # numbers of half precision in the widest registers of 512 bits


def size(program: Program) -> Iterator[tuple[str, Iterable[Program]]]:
    """Each dimension of each leaf: doubled, one more and one less (a minimal program stands at a threshold), 1, longer
    than a vector, two more; dependent sizes follow."""
    for target in (
        lambda n: 2 * n,
        lambda n: n + 1,
        lambda n: max(n - 1, 1),
        lambda n: 1,
        lambda n: n + _VECTOR,
        lambda n: n + 2,
    ):
        for leaf in program.leaves:
            for axis, n in enumerate(leaf.shape):
                yield "", resizings(program, leaf, axis, target(n))


def attribute(program: Program) -> Iterator[tuple[str, Iterable[Program]]]:
    """Each attribute: an integer one more, and at its default, alone or with the others of its op; a flag, choice or
    dimension changed."""
    for node in program.nodes:
        for held in _attributes(node):
            value = _value(held, node)
            if held.kind == "flag":
                yield f"{held.name}={not value}", _with(program, node, {held.name: not value})
            elif held.options:
                for other in (o for o in held.options if o != value):
                    yield f"{held.name}={other!r}", _with(program, node, {held.name: other})
            elif held.kind == "dim" and type(value) is int:
                other = value + 1 if value >= 0 else value - 1
                yield f"{held.name}={other}", _with(program, node, {held.name: other})
            elif any(_integers(held, node)):
                yield "", _moved(program, node, held.name, 1)
                usual = _or_first(held, held.default)
                if type(value) is int and type(usual) is int and value != usual:
                    yield "", _moved(program, node, held.name, usual - value)


def _moved(program: Program, node: Node, name: str, by: int) -> Iterator[Program]:
    """One integer of a node changed by this amount: alone, then with another integer, then with all."""
    moved = {a.name: _more(_value(a, node), by) for a in _attributes(node) if any(_integers(a, node))}
    together = [(name,), *((name, other) for other in moved if other != name), tuple(moved)]
    for names in dict.fromkeys(together):
        yield from _with(program, node, {key: moved[key] for key in names})


def _more(value: Value, by: int) -> Value:
    if isinstance(value, tuple):
        return tuple(_more(one, by) for one in value)
    return value + by if isinstance(value, int) else value


def _with(program: Program, node: Node, values: dict[str, Value]) -> Iterator[Program]:
    """The program with these attributes of a node, those at their default left out."""
    held, known = dict(node.attrs) | values, _attributes(node)
    ordered_names = sorted(held, key=[a.name for a in known].index)
    defaults = {a.name: a.default for a in known if a.default is not REQUIRED}
    attrs = tuple((name, held[name]) for name in ordered_names if name not in defaults or held[name] != defaults[name])
    yield from propose(program, body=substitute_node(program.body, node, replace(node, attrs=attrs)))


def layout(program: Program) -> Iterator[tuple[str, Iterable[Program]]]:
    """All leaves in one layout, as far as possible."""
    for name, stride in LAYOUTS.items():

        def laid(leaf: Leaf, stride: Callable[[Shape], Shape | None] = stride) -> Leaf:
            found = stride(leaf.shape) if leaf.base is None else None
            return leaf if found is None else replace(leaf, stride=found, offset=0)

        leaves = tuple(map(laid, program.leaves))
        yield name, propose(program, leaves=leaves)
    shifted = (replace(leaf, offset=leaf.offset + (leaf.base is None)) for leaf in program.leaves)
    yield "with an offset", propose(program, leaves=tuple(shifted))


def _transposed(shape: Shape) -> Shape | None:
    if len(shape) < 2:
        return None
    *rest, rows, columns = contiguous((*shape[:-2], shape[-1], shape[-2]))
    return (*rest, columns, rows)


def _channels_last(shape: Shape) -> Shape | None:
    order = (*range(len(shape), 0, -1),)
    return ordered(shape, (order[0], 1, *(n + 1 for n in order[2:])), 1) if len(shape) in (4, 5) else None


def _expanded(shape: Shape) -> Shape | None:
    axis = next((axis for axis, n in enumerate(shape) if n > 1), None)
    if axis is None:
        return None
    left = contiguous((*shape[:axis], 1, *shape[axis + 1 :]))
    return (*left[:axis], 0, *left[axis + 1 :])


LAYOUTS: dict[str, Callable[[Shape], Shape | None]] = {
    "contiguous": contiguous,
    "transposed": _transposed,
    "channels last": _channels_last,
    "every second element": lambda shape: tuple(2 * step for step in contiguous(shape)) if shape else None,
    "expanded": _expanded,
}


def route(program: Program) -> Iterator[tuple[str, Iterable[Program]]]:
    """Every route; the program's own route with dynamic sizes, or without; recomputed in the backward."""
    for name in ROUTES:
        if name != program.route.name:
            yield name, propose(program, route=Route(name))
    own = dict(program.route.options)
    if "dynamic" in ROUTES[program.route.name].options:
        options: Attributes = tuple({**own, "dynamic": True}.items())
        static = tuple((key, value) for key, value in own.items() if key != "dynamic")
        is_dynamic = bool(own.get("dynamic"))
        other = replace(program.route, options=static if is_dynamic else options)
        yield "static sizes" if is_dynamic else "dynamic sizes", propose(program, route=other)
    if not any(isinstance(s, Region) for s in statements(program.body)):
        yield "checkpoint", propose(program, body=(Region("checkpoint", (), program.body),))


# The most influential of the settings that decide fusion, memory layout and passes.
STANDARD: Attributes = (
    ("inductor.max_fusion_size", 1),
    ("inductor.inplace_buffers", False),
    ("inductor.allow_buffer_reuse", False),
    ("inductor.pattern_matcher", False),
    ("inductor.layout_optimization", False),
    ("functorch.donated_buffer", False),
)


def setting(program: Program) -> Iterator[tuple[str, Iterable[Program]]]:
    """Each of the program's settings back at its default; a few standard settings, each alone."""
    own = dict(program.settings)
    for name in own:
        yield f"{name} at its default", _under(program, {k: v for k, v in own.items() if k != name})
    for name, value in STANDARD:
        if name not in own and exists(name) and default(name) != value:
            yield f"{name}={value}", _under(program, {**own, name: value})


def _under(program: Program, settings: dict[str, Value]) -> Iterator[Program]:
    yield from propose(program, settings=tuple(sorted(settings.items())))


AXES: tuple[Axis, ...] = (dtype, layout, route, attribute, setting, size)  # the axes with most rows last
SHAPES = (size.__name__, attribute.__name__)  # the axes of the shape table
