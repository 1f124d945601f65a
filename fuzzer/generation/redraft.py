"""A program taken up again: its nodes run as if they had just been drawn, so that more can be drawn; and what makes the
result a program again. Mutators (`mutate`) stand on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch

from fuzzer.generation.draft import Announce, Draft, Rejected
from fuzzer.generation.dry_run import dry_gradients, eager_values
from fuzzer.generation.generate import draw_cotangent, without_dead_nodes
from fuzzer.generation.nodes import draw_node, run_node
from fuzzer.language import settings as compiler_settings
from fuzzer.language.infer import IllTyped, check_draws, check_within, type_of
from fuzzer.language.interpret import materialise
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.program import (
    Node,
    Output,
    Program,
    Region,
    TensorType,
    canonical,
    is_tracked,
    rename,
    written_leaves,
)
from fuzzer.language.routes import ROUTES, acts, route_of

NO_GRADIENT = "eager has no gradient of it"


def draft_of(program: Program, rng: random.Random, count: int | None = None, announce: Announce | None = None) -> Draft:
    """A draft that holds the program's leaves and its first `count` nodes. The program's names are canonical, as those
    that are drawn next go on from them. announce: as in `generate`. Raises Rejected where it holds regions,
    a leaf's values do not fit its shape, or eager refuses it."""
    if any(isinstance(s, Region) for s in program.body):
        raise Rejected("a program with regions")
    floating = [leaf.dtype for leaf in program.leaves if leaf.type.differentiable]
    dtype = floating[0] if floating else "f32"
    writing = ROUTES[program.route.name].writes_leaves
    draft = Draft(rng, Limits(), dtype, writing, is_tracked(program), announce=announce)
    draft.leaves = list(program.leaves)
    try:
        draft.env = dict(materialise([replace(leaf, requires_grad=False) for leaf in program.leaves]))
    except Exception as error:  # as of values that fit another shape, which a mutator before this one changed
        raise Rejected(f"leaves without values: {error}") from error
    draft.types = {leaf.name: leaf.type for leaf in program.leaves}
    draft.tracked = {leaf.name for leaf in program.leaves if leaf.requires_grad}
    for node in program.nodes[:count]:
        try:
            run_node(draft, node, OPS[node.op])
        except Exception as error:  # torch's refusal may have any type; a mutator before this one may have brought it
            raise Rejected(f"eager refuses {node.op}: {error}") from error
    return draft


def append_node(draft: Draft, spec: OpSpec, anchor: str) -> Node:
    """Draw and run one more node whose first operand is `anchor`. Raises Rejected where it cannot be."""
    draft.anchor = anchor
    node = draw_node(draft, spec)
    draft.anchor = ""
    if anchor not in node.uses:
        raise Rejected(f"{spec.name} does not take {anchor}")
    run_node(draft, node, spec)
    return node


def fresh_names(node: Node, taken: Program) -> Node:
    """The node with results named as nothing in the program is."""
    used = {name for n in taken.nodes for name in n.outs}
    free = (name for i in range(10**6) if (name := f"w{i}") not in used)
    return replace(node, outs=tuple(next(free) for _ in node.outs))


def rename_apart(donor: Program, program: Program) -> Program:
    """The donor under names that the program does not use."""
    taken = {leaf.name for leaf in program.leaves} | {name for node in program.nodes for name in node.outs}
    prefix = next(p for p in ("d", "e", "f", "g", "h") if not any(name.startswith(p) for name in taken))
    return rename(donor, lambda name: prefix + name)


def unread_results(program: Program) -> list[str]:
    """The results that no node reads and that are no outputs."""
    read = {name for node in program.nodes for name in node.uses} | {output.value for output in program.outputs}
    return [name for node in program.nodes for name in node.outs if name not in read]


def types_of(program: Program) -> dict[str, TensorType]:
    """The type of every name, from a run in eager: `infer` would take ten times as long. Raises Rejected where eager
    refuses the program, IllTyped."""
    try:
        check_draws(program)
        values = eager_values(program)
    except RuntimeError as error:  # a leaf beyond its storage
        raise Rejected(f"eager refuses it: {error}") from error
    if values is None:
        raise Rejected("eager refuses it")
    names = (name for node in program.nodes for name in node.outs)
    types = {leaf.name: leaf.type for leaf in program.leaves} | {name: type_of(values[name]) for name in names}
    check_within(program, types)
    return types


def _with_outputs(program: Program, rng: random.Random, left: Collection[str]) -> Program:
    """The program with cotangents of their outputs' types; results that nothing reads become outputs too, but for those
    that are left as they are.

    Raises Rejected where none carries a gradient or eager refuses it, IllTyped.
    """
    types = types_of(program)
    draft = Draft(rng, Limits(), "f32")

    def seeded(name: str) -> Output:
        if not is_tracked(program):
            return Output(name)
        return Output(name, draw_cotangent(draft, types[name], program.route.name))

    def fitting(output: Output) -> Output:
        c, t = output.cotangent, types[output.value]
        if c is None or (c.dtype, c.shape) == (t.dtype, t.shape):
            return output
        return seeded(output.value) if t.differentiable else Output(output.value)

    unread = [name for name in unread_results(program) if name not in left]
    loose = [n for n in unread if types[n].differentiable or not is_tracked(program)]
    outputs = [fitting(output) for output in program.outputs] + [seeded(name) for name in loose]
    if is_tracked(program) and not any(output.cotangent for output in outputs):
        raise Rejected("no output carries a gradient")
    return replace(program, outputs=tuple(outputs))


def _repaired(
    program: Program, rng: random.Random, device: str, announce: Announce | None, left: Collection[str], zero: bool
) -> Program:
    """What a mutator made, as a program that runs in eager: outputs that fit, settings that its ops and route need.

    Raises Rejected, IllTyped, UnknownRoute where it cannot be.
    """
    route = ROUTES[program.route.name]
    drawing = any(OPS[node.op].random for node in program.nodes)
    if (drawing and not route.draws) or (written_leaves(program) and not route.writes_leaves):
        raise Rejected(f"route {program.route.name} does not take it")
    if any(leaf.parameter for leaf in program.leaves) and not route.module:
        program = replace(program, leaves=tuple(replace(leaf, parameter=False) for leaf in program.leaves))
    known = {s.name: s for s in compiler_settings.SETTINGS}
    kept = {
        name: value
        for name, value in program.settings
        if name not in known or acts(known[name], device, program.route.name)
    }
    kept |= dict([compiler_settings.SAME_DRAWS]) if drawing else {}
    program = replace(program, settings=tuple(sorted(kept.items())))
    if announce is not None:
        announce(program)
    program = canonical(without_dead_nodes(_with_outputs(program, rng, left)))
    route_of(program)
    gradients = dry_gradients(program)
    if gradients is None:
        raise Rejected("eager refuses it")
    seeded = any(output.cotangent for output in program.outputs)
    if seeded and not zero and not is_useful(gradients):
        raise Rejected(NO_GRADIENT)
    return program


def is_useful(gradients: Mapping[str, torch.Tensor | None]) -> bool:
    """Whether some element of some gradient is not zero."""
    return any(g is not None and bool((g != 0).any()) for g in gradients.values())


def try_mutator(
    change: Callable[[], Program],
    rng: random.Random,
    device: str,
    announce: Announce | None = None,
    left: Collection[str] = (),
    zero: bool = False,
) -> Program:
    """The program that a mutator makes, mended. Raises Rejected, whose message says why none runs. announce: as in
    `generate`. left: results that need not be read nor returned. zero: whether gradients may be zero
    everywhere."""
    try:
        return _repaired(change(), rng, device, announce, left, zero)
    except Rejected:
        raise
    except LookupError as error:
        raise Rejected("nothing to choose from") from error
    except IllTyped as error:
        raise Rejected(f"no types: {error}") from error
    except ValueError as error:
        raise Rejected(f"no program: {error}") from error
