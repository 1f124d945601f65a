"""The kin of a program: the same pattern with one op replaced by a like op, in each dtype and by each route.

A fault of one lowering or derivative formula often lives in its neighbours, too: one author wrote both, or one helper
serves both. `kin_of` lists the kin of a program; `make_kin` makes one, which runs torch.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from fuzzer.generation.draft import Announce, Rejected
from fuzzer.generation.redraft import append_node, draft_of, fresh_names, try_mutator, unread_results
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.spec import OpSpec
from fuzzer.language.program import FLOATS, Dtype, Node, Program, Route, canonical, map_nodes, substitute_node
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import parse

KIN = "kin"  # what a Report names as the mutator
# Families whose ops are alike: one lowers or differentiates to another's op, or by the same helper. Ops of any other
# family are alike among themselves.
_ALIKE = (
    {"view", "split", "layout", "copy"},
    {"reduction", "scan", "sort", "softmax"},
    {"reduction", "scatter", "accumulation"},
    {"scatter", "index", "accumulation", "embedding", "masked"},
    {"pooling", "interpolate", "padding"},
)
_MANY = 60  # ops of a family: of so many each is tried in the program's own dtype and by its own route alone
_TRIES = 6


class Kin(NamedTuple):
    """How a kin is made: from the parent's text, the place of the node whose op is replaced, and the new op; in a dtype
    for all floating leaves and by a route, "" for the parent's own."""

    parent: str
    place: int
    op: str
    dtype: str = ""
    route: str = ""


def alike(spec: OpSpec) -> list[OpSpec]:
    """The ops that are like this one, in the table's order: none that draws, writes or cuts the gradient where this one
    does not."""
    families = {spec.family}.union(*(group for group in _ALIKE if spec.family in group))
    known = (other for family, specs in ops_by_family().items() if family in families for other in specs)
    return [
        other for other in known
        if other.name != spec.name and other.effects == spec.effects
        and other.random <= spec.random and other.differentiable >= spec.differentiable
    ]  # fmt: skip


def kin_of(text: str) -> Iterator[Kin]:
    """The kin of a program. Runs nothing. Raises ParseError. An elementwise function beside other ops is no part of the
    pattern: it stays."""
    program = parse(text)
    own = {leaf.dtype for leaf in program.leaves if leaf.dtype in FLOATS}
    for place, node in enumerate(program.nodes):
        if not node.uses or (OPS[node.op].elementwise and len(program.nodes) > 1):
            continue
        many = len(ops_by_family()[OPS[node.op].family]) > _MANY
        for other in alike(OPS[node.op]):
            yield Kin(text, place, other.name)
            if many:
                continue
            yield from (Kin(text, place, other.name, dtype=name) for name in FLOATS if {name} != own)
            yield from (Kin(text, place, other.name, route=name) for name in ANY_BACKEND if name != program.route.name)


def make_kin(kin: Kin, device: str = "cpu", announce: Announce | None = None) -> Program:
    """The program of a kin, always the same one; eager runs it. The new op keeps the operands and attributes of the old
    one where it takes them; others that it needs are drawn. announce: as in `generate`. Raises Rejected, whose message
    says why eager ran none."""
    program = _recast(canonical(parse(kin.parent)), kin.dtype)
    if kin.route:
        program = replace(program, route=Route(kin.route))
    node, left = program.nodes[kin.place], unread_results(program)
    rng, why = random.Random(f"{kin.parent}/{kin.place}/{kin.op}"), Rejected("none was tried")
    for _ in range(_TRIES):
        try:
            draft = draft_of(program, rng, kin.place, announce)
            drawn = append_node(draft, OPS[kin.op], node.uses[0])
        except Rejected as error:
            why = error
            continue
        grown = replace(program, leaves=tuple(draft.leaves))
        for like in _like(node, drawn):
            try:
                return try_mutator(functools.partial(_replaced, grown, node, like), rng, device, announce, left)
            except Rejected as error:
                why = error
    raise Rejected(f"no {kin.op} in place of {node.op}: {why}")


def _like(node: Node, drawn: Node) -> Iterator[Node]:
    """The drawn node with what it can take over from another: operands and attributes, attributes alone, nothing."""
    own, known = dict(node.attrs), {attribute.name for attribute in OPS[drawn.op].attributes}
    attrs = dict(drawn.attrs) | {name: value for name, value in own.items() if name in known}
    ordered = tuple((a.name, attrs[a.name]) for a in OPS[drawn.op].attributes if a.name in attrs)
    if len(node.args) == len(drawn.args):
        yield replace(drawn, args=node.args, attrs=ordered)
    yield replace(drawn, attrs=ordered)
    yield drawn


def _replaced(program: Program, node: Node, other: Node) -> Program:
    """The program with another node; of several results the first ones have the names that are read."""
    fresh = fresh_names(other, program)
    names = (*node.outs, *fresh.outs)[: len(fresh.outs)] if len(fresh.outs) >= len(node.outs) else ()
    if not names:
        raise Rejected("too few results")
    return replace(program, body=substitute_node(program.body, node, replace(other, outs=names)))


def _recast(program: Program, dtype: str) -> Program:
    """The program with all floating leaves and casts in one dtype; "": as it is."""
    if not dtype:
        return program

    def cast(node: Node) -> Node:
        attrs = tuple((k, Dtype(dtype) if isinstance(v, Dtype) and v.name in FLOATS else v) for k, v in node.attrs)
        return replace(node, attrs=attrs)

    leaves = tuple(replace(leaf, dtype=dtype) if leaf.dtype in FLOATS else leaf for leaf in program.leaves)
    return replace(program, leaves=leaves, body=map_nodes(program.body, cast))
