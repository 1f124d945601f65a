"""Histories of memory: a value, views of it that overlap or do not, and reads and writes through them in any order.

A view shows writes through another view; a value read before does not change. Views of views are returned; values that
share memory are saved for the backward. Functionalization, recomputation and reuse of buffers must keep these apart. A
history may go on after the function has returned: a write before the backward must not reach saved values, or autograd
must raise.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.generation.add import OVERWRITTEN, add_node, add_write
from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.dry_run import eager_gradients, eager_values
from fuzzer.generation.nodes import draw_values, new_leaf, same_value, share_leaf
from fuzzer.generation.rejoin import fits
from fuzzer.generation.shapes import draw_shape
from fuzzer.language.infer import type_of
from fuzzer.language.interpret import apply
from fuzzer.language.ops.spec import Draw, Limits, OpSpec
from fuzzer.language.program import (
    BETWEEN,
    Attributes,
    Node,
    Program,
    Region,
    canonical,
    has_gradient,
    writable,
    writes,
)
from fuzzer.language.regions import REGIONS, ambient_region
from fuzzer.language.routes import ROUTES

_LEAST = 4  # elements of the value: fewer allow hardly two views
_SHORTEST = 4  # nodes of a history
_VIEWS = 3  # of the value, at most
_TRIES = 4  # where torch may refuse
# The share of histories of a leaf's memory, where leaves may be written, by whether the program has a gradient
_INTO_A_LEAF = {True: 0.25, False: 0.75}
# The share of these leaves, in programs without a gradient, whose memory a second leaf has, too: small, since torch
# 2.13 gets views of such inputs wrong where they are returned
_SHARED = 0.15
_OVERWRITTEN = 0.1  # the share in which eager may refuse the backward because a saved value was overwritten
_MEETING = 0.4  # the share of reads that read two names, where two fit
LATE = 2  # most nodes of a write before the backward
_VIEWED = 0.5  # the share of these writes that go through a view
_EXPANDED = 0.15  # the share of histories whose first view is an expansion: its elements share memory
_SIBLING = 0.35  # the share of views that are another part of what an earlier one is a part of
VIEW, READ, WRITE, UPDATE = "view", "read", "write", "update"
# Families that make the value: ops that do not save it, and such that do where it may be overwritten.
_BASES, _SAVING = ("mul_scalar", "neg", "sin", "add", "square", "clone"), ("exp", "tanh", "sigmoid", "relu")
# Half of the steps make a view; the others read one value or two.
_PARTS = ("narrow", "slice", "select", "diagonal", "expand")
# x[i] = f(x[i]): what reads at positions, and what writes there. gather saves x, which may then not be written.
_PUT = {"index": ("index_put_",), "index_select": ("index_copy_", "index_add_")}
_BY_ELEMENT = ("sin", "exp", "square", "sigmoid", "neg", "mul_scalar")  # equal positions are given equal numbers
_ONE = ("sin", "exp", "square", "sigmoid", "neg", "mul_scalar", "cumsum", "sum", "mean", "softmax")
_TWO = ("add", "sub", "mul", "div", "maximum")
_READING = ("activation", "matmul", "normalisation", "pointwise", "reduction", "scan", "scatter", "softmax")  # families
Groups = Mapping[str, Sequence[OpSpec]]


def draw_history(draft: Draft, groups: Groups) -> None:
    """Begin an empty draft with a history of one value's memory; does nothing where these ops have none."""
    rng, most = draft.rng, draft.limits.max_nodes
    if most < _SHORTEST or not (groups.get("inplace") and groups.get("view")):
        return
    draft.beside, draft.overwrites = True, rng.random() < _OVERWRITTEN
    base, wanted = _draw_base(draft, groups), rng.randint(_SHORTEST, most)
    done: list[str] = []
    if base and rng.random() < _EXPANDED:
        draft.anchor = base
        done += [VIEW] * any(_added(draft, spec) for spec in groups["view"] if spec.name == "expand")
        draft.anchor = ""
    for _ in range(_TRIES * wanted if base else 0):
        if len(draft.nodes) >= wanted:
            break
        kinds = (READ, WRITE, WRITE, UPDATE, *(VIEW,) * (done.count(VIEW) < _VIEWS))
        kind = rng.choice(kinds) if done else VIEW
        if len(draft.nodes) == wanted - 1 and not {WRITE, UPDATE} & set(done):
            kind = WRITE
        if _draw_step(draft, groups, base, kind):
            done.append(kind)
        draft.anchor, draft.given = "", ()


def _draw_base(draft: Draft, groups: Groups) -> str:
    """The name of a value that may be written, with some elements; "" where a few draws gave none."""
    rng, known = draft.rng, {spec.name: spec for specs in groups.values() for spec in specs}
    makers = [known[name] for name in (*_BASES, *_SAVING * draft.overwrites) if name in known]
    leaf = draft.may_write_leaves and rng.random() < _INTO_A_LEAF[draft.gradient]
    for _ in range(_TRIES):
        mark = draft.mark()
        if leaf:
            shape = draw_shape(rng, draft.limits, (1, draft.limits.max_rank))
            name = new_leaf(draft, draft.dtype, shape, draw_values(rng, draft.dtype, ()), written=True)
        else:
            name = draft.nodes[-1].outs[0] if makers and _added(draft, rng.choice(makers)) else ""
        if name and draft.types[name].numel >= _LEAST and draft.may_write(name):
            if leaf and not draft.gradient and rng.random() < _SHARED:
                share_leaf(draft, name)
            return name
        draft.undo(mark)
    return ""


def _draw_step(draft: Draft, groups: Groups, base: str, kind: str) -> bool:
    """Draw a node that views, reads or writes the memory of a value, or nodes that update it; returns whether the draft
    kept one."""
    rng, count = draft.rng, len(draft.nodes)
    here = draft.sharing(base)
    if kind in (WRITE, UPDATE):
        here = [name for name in here if draft.may_write(name) and writable(draft.types[name])]
    if not here:
        return False
    if kind == UPDATE:
        return _updated(draft, groups, rng.choice(here))
    if kind == VIEW and rng.random() < _SIBLING:
        known = {spec.name: spec for spec in groups.get("view", ())}
        siblings = [node for node in draft.nodes if node.op in known and node.uses[0] in here]
        if siblings:
            sibling = rng.choice(siblings)
            draft.anchor = sibling.uses[0]
            return _added(draft, known[sibling.op])
    draft.anchor = name = rng.choices(here, [_preference(draft, name, kind) for name in here])[0]
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


def _preference(draft: Draft, name: str, kind: str) -> float:
    """How likely a step takes this value: rather one that nothing has read since the last write; to write a view that
    was not written through, else one whose elements share memory."""
    view = next(draft.views(name), None)
    hard = view is not None and writes(view) is None if kind == WRITE else not writable(draft.types[name])
    return (1.0 if draft.uses.get(name) else 3.0) * (3.0 if hard else 1.0)


def _updated(draft: Draft, groups: Groups, name: str) -> bool:
    """Draw x[i] = f(x[i]) for a value x: the read, perhaps an op on what was read, and the write at the same positions;
    returns whether the draft kept the write."""
    rng, known = draft.rng, {spec.name: spec for specs in groups.values() for spec in specs}
    reads = [op for op in _PUT if op in known and _admits(draft, known[op], name)]
    room = draft.limits.max_nodes - len(draft.nodes)
    if not reads or room < 2:
        return False
    draft.anchor, read, mark = name, rng.choice(reads), draft.mark()
    puts = [known[op] for op in _PUT[read] if op in known]
    if not puts or not _added(draft, known[read]):
        return False
    at = draft.nodes[-1]
    changes = [known[op] for op in _BY_ELEMENT if op in known]
    draft.anchor = at.outs[0]
    if changes and room > 2 and rng.random() < 0.5:
        _added(draft, rng.choice(changes))
    put, last = rng.choice(puts), draft.nodes[-1]
    count = sum(len(node.outs) for node in draft.nodes)
    value = last.outs[0] if last.uses[0] == at.outs[0] else at.outs[0]
    add_write(draft, put, Node((f"v{count}",), put.name, (name, at.args[1], value), at.attrs))
    if draft.nodes[-1].op == put.name:
        return True
    draft.undo(mark)
    return False


def _ops(draft: Draft, groups: Groups, kind: str) -> list[OpSpec]:
    """The ops for a step of this kind."""
    families = {VIEW: ("view",), READ: _READING, WRITE: ("inplace",)}[kind]
    known = {spec.name: spec for specs in groups.values() for spec in specs}
    plain = {VIEW: _PARTS, READ: _TWO if draft.given else _ONE, WRITE: ()}[kind]
    if (found := [known[name] for name in plain if name in known]) and (draft.given or draft.rng.random() < 0.5):
        return found
    return [spec for family in families for spec in groups.get(family, ()) if spec.results == 1]


def _admits(draft: Draft, spec: OpSpec, name: str) -> bool:
    """Whether a value may be the op's first operand."""
    return _takes(spec, Draw(draft.rng, draft.limits, [draft.types[name]]))


def _takes(spec: OpSpec, d: Draw) -> bool:
    """Whether the operand in `d` may be the op's first operand."""
    first = spec.operands[0]
    plain = first.count is None and first.recipe is None and isinstance(first.dtypes, tuple)
    return plain and first.admits(d, d.x, None)


def _added(draft: Draft, spec: OpSpec) -> bool:
    """Draw a node of this op; returns whether the draft kept it."""
    mark = draft.mark()
    try:
        return add_node(draft, spec)
    except Rejected:
        draft.undo(mark)
        return False


def draw_between(
    program: Program,
    rng: random.Random,
    groups: Groups,
    most_nodes: int,
    share: float = REGIONS[BETWEEN].share,
) -> Program:
    """This share of programs with a leaf or an output written after the function has returned, before the backward if
    there is one; others unchanged."""
    admitted = BETWEEN in ROUTES[program.route.name].regions and ambient_region(program) is None
    if not admitted or len(program.nodes) + LATE > most_nodes or rng.random() >= share:
        return program
    program = canonical(program)
    values = eager_values(program)
    named = [leaf.name for leaf in program.leaves] + [output.value for output in program.outputs]
    dead = {writes(node) for node in program.nodes}
    types = {name: type_of(values[name]) for name in named if name not in dead} if values else {}
    targets = [
        name for name, t in types.items() if (t.is_float or not has_gradient(program)) and t.numel and writable(t)
    ]
    for _ in range(_TRIES if targets else 0):
        nodes = _written_later(program, rng, groups, rng.choice(targets), dict(values or {}))
        later = replace(program, body=(*program.body, Region(BETWEEN, (), nodes))) if nodes else program
        if nodes and eager_values(later) is not None:
            _check_gradients(later)
            return later
    return program


def _written_later(
    program: Program, rng: random.Random, groups: Groups, target: str, values: dict[str, Any]
) -> tuple[Node, ...]:
    """A node that writes this value in place, or a view of the value and a write to the view; none where these ops
    allow none."""
    nodes: list[Node] = []
    count = sum(len(node.outs) for node in program.nodes)
    for family in (*("view",) * (rng.random() < _VIEWED), "inplace"):
        read = nodes[-1].outs[0] if nodes else target
        d = Draw(rng, Limits(), [type_of(values[read])])
        specs = [spec for spec in groups.get(family, ()) if len(spec.operands) == spec.results == 1 and _takes(spec, d)]
        if not specs:
            return ()
        spec = rng.choice(specs)
        nodes.append(Node((f"v{count + len(nodes)}",), spec.name, (read,), _drawn_attributes(spec, d)))
        try:
            with torch.no_grad():
                apply(nodes[-1], values)
        except Exception:  # torch's refusal may have any type
            return ()
    return tuple(nodes)


def _drawn_attributes(spec: OpSpec, d: Draw) -> Attributes:
    """The op's attributes, in order; those at their default left out."""
    for attribute in spec.attributes:
        d.attrs[attribute.name] = attribute.draw(d)
    return tuple((a.name, d.attrs[a.name]) for a in spec.attributes if not same_value(d.attrs[a.name], a.default))


def _check_gradients(program: Program) -> None:
    """Raise Rejected where eager's backward raises, unless because a saved value was overwritten: then compiled code
    must raise, too."""
    try:
        eager_gradients(program)
    except Exception as error:  # torch's refusal may have any type
        if OVERWRITTEN not in str(error):
            raise Rejected(f"{BETWEEN}: {str(error).splitlines()[0]}") from None
