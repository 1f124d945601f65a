"""Histories of memory: a value, views of it that overlap or do not, and reads and writes through them in any order.

A view shows what was written through another, and what was read before does not; views of views are returned; values
that share memory are saved for the backward. Functionalization, recomputation and buffers that are used again keep that
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuzzer.generation.add import add_node, add_write
from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.layouts import draw_shape
from fuzzer.generation.nodes import draw_values, new_leaf
from fuzzer.generation.rejoin import fits
from fuzzer.language.ops.spec import Draw, OpSpec

_LEAST = 4  # elements of the value that has a history: of fewer there are hardly two views
_SHORTEST = 4  # nodes of a history
_VIEWS = 3  # of the value, at most
_TRIES = 4  # of what torch may refuse
_INTO_A_LEAF = 0.25  # the share of histories of a leaf's memory, where leaves may be written
_OVERWRITTEN = 0.1  # the share in which eager may refuse the backward because what it saved was overwritten
_MEETING = 0.4  # the share of reads, where there are two names that fit, that read two
VIEW, READ, WRITE = "view", "read", "write"
# What makes the value: ops that do not save it, and where it may be overwritten such as do.
_BASES, _SAVING = ("mul_scalar", "neg", "sin", "add", "square"), ("exp", "tanh", "sigmoid", "relu")
# Half of the time, what views a part, reads one value, reads two.
_PARTS = ("narrow", "slice", "select", "diagonal")
_ONE = ("sin", "exp", "square", "sigmoid", "neg", "mul_scalar", "cumsum", "sum", "mean", "softmax")
_TWO = ("add", "sub", "mul", "div", "maximum")
_READING = ("activation", "matmul", "normalisation", "pointwise", "reduction", "scan", "softmax")  # families
Groups = Mapping[str, Sequence[OpSpec]]


def draw_history(draft: Draft, groups: Groups) -> None:
    """Begin an empty draft with a history of one value's memory; nothing where these ops have none."""
    rng, most = draft.rng, draft.limits.max_nodes
    if most < _SHORTEST or not (groups.get("inplace") and groups.get("view")):
        return
    draft.beside, draft.overwrites = True, rng.random() < _OVERWRITTEN
    base, wanted = _draw_base(draft, groups), rng.randint(_SHORTEST, most)
    done: list[str] = []
    for _ in range(_TRIES * wanted if base else 0):
        if len(draft.nodes) >= wanted:
            break
        kind = rng.choice((READ, WRITE, WRITE, *(VIEW,) * (done.count(VIEW) < _VIEWS))) if done else VIEW
        if len(draft.nodes) == wanted - 1 and WRITE not in done:
            kind = WRITE
        if _draw_step(draft, groups, base, kind):
            done.append(kind)
        draft.anchor, draft.given = "", ()


def _draw_base(draft: Draft, groups: Groups) -> str:
    """The name of a value that may be written, with some elements; "" where none came of some draws."""
    rng, known = draft.rng, {spec.name: spec for specs in groups.values() for spec in specs}
    makers = [known[name] for name in (*_BASES, *_SAVING * draft.overwrites) if name in known]
    leaf = draft.may_write_leaves and rng.random() < _INTO_A_LEAF
    for _ in range(_TRIES):
        mark = draft.mark()
        if leaf:
            shape = draw_shape(rng, draft.limits, (1, draft.limits.max_rank))
            name = new_leaf(draft, draft.dtype, shape, draw_values(rng, draft.dtype, ()), written=True)
        else:
            name = draft.nodes[-1].outs[0] if makers and _added(draft, rng.choice(makers)) else ""
        if name and draft.types[name].numel >= _LEAST and draft.may_write(name):
            return name
        draft.undo(mark)
    return ""


def _draw_step(draft: Draft, groups: Groups, base: str, kind: str) -> bool:
    """Draw a node that views, reads or writes the memory of a value; whether it stayed."""
    rng, count = draft.rng, len(draft.nodes)
    here = [name for name in draft.sharing(base) if kind != WRITE or draft.may_write(name)]
    if not here:
        return False
    # first what nothing has read since the last write
    draft.anchor = name = rng.choices(here, [1.0 if draft.uses.get(name) else 3.0 for name in here])[0]
    shapes = {other: draft.types[other].shape for other in here}
    beside = [other for other in here if other != name and fits(draft, shapes[name], shapes[other])]
    if kind == READ and beside and rng.random() < _MEETING:
        draft.given = (name, rng.choice(beside))
    specs = [spec for spec in _ops(draft, groups, kind) if _admits(draft, spec, name)]
    if specs and kind == WRITE:
        add_write(draft, rng.choice(specs))
    elif specs:
        _added(draft, rng.choice(specs))
    return len(draft.nodes) > count


def _ops(draft: Draft, groups: Groups, kind: str) -> list[OpSpec]:
    """The ops of which one makes a step of this kind."""
    families = {VIEW: ("view",), READ: _READING, WRITE: ("inplace",)}[kind]
    known = {spec.name: spec for specs in groups.values() for spec in specs}
    plain = {VIEW: _PARTS, READ: _TWO if draft.given else _ONE, WRITE: ()}[kind]
    if (found := [known[name] for name in plain if name in known]) and (draft.given or draft.rng.random() < 0.5):
        return found
    return [spec for family in families for spec in groups.get(family, ()) if spec.results == 1]


def _admits(draft: Draft, spec: OpSpec, name: str) -> bool:
    """Whether a value may be the op's first operand."""
    first = spec.operands[0]
    plain = first.count is None and first.recipe is None and isinstance(first.dtypes, tuple)
    return plain and first.admits(Draw(draft.rng, draft.limits), draft.types[name], None)


def _added(draft: Draft, spec: OpSpec) -> bool:
    """Draw a node of this op; whether it stayed."""
    mark = draft.mark()
    try:
        return add_node(draft, spec)
    except Rejected:
        draft.undo(mark)
        return False
