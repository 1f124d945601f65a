"""MUTATORS: (program, rng, material) -> Program, one function each.

A mutator changes one thing and cares for nothing else: `mutate` makes the result a program again and runs it in eager
(`redraft.try_mutator`), so that what torch refuses is refused before anything is compiled. A mutator that finds nothing
to change raises Rejected, or LookupError by choosing from nothing.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from fuzzer.generation.draft import Announce, Draft, Rejected
from fuzzer.generation.dry_run import dry_gradients
from fuzzer.generation.enclose import region_kinds, with_region
from fuzzer.generation.generate import CLOSING, DTYPE_WEIGHTS, draw_cotangent
from fuzzer.generation.nodes import draw_values, weighted
from fuzzer.generation.redraft import (
    NO_GRADIENT,
    append_node,
    draft_of,
    fresh_names,
    is_useful,
    rename_apart,
    try_mutator,
    types_of,
    unread_results,
)
from fuzzer.generation.shapes import broadcast_strides, draw_layout
from fuzzer.language import settings as compiler_settings
from fuzzer.language.ops import OPS, REAL
from fuzzer.language.ops.spec import Draw, Limits, OpSpec
from fuzzer.language.program import (
    FLOATS,
    NORMAL,
    Dtype,
    Leaf,
    Node,
    Program,
    Recipe,
    Region,
    Shape,
    canonical,
    contiguous,
    map_nodes,
    statements,
    substitute_node,
    substitute_operands,
    unwrap,
    writes,
)
from fuzzer.language.routes import ANY_BACKEND, ROUTES, draw_route
from fuzzer.language.values import GENERAL, as_data, fill


class Material(NamedTuple):
    """What a mutator uses beside the program: another program, and `generate`'s announce for nodes that it draws."""

    donor: Program
    announce: Announce | None = None


Mutator = Callable[[Program, random.Random, Material], Program]
_TRIES = 12
_MOST_NUMBERS = 256  # of a leaf whose text holds each
_MOST_TO_ENCLOSE = 1 << 12  # elements of leaves: drawing a region runs the program in it
_SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)  # 1, primes, and one beside each vector width


def _with_leaf(program: Program, old: Leaf, new: Leaf) -> Program:
    return replace(program, leaves=tuple(new if leaf is old else leaf for leaf in program.leaves))


def _with_node(program: Program, old: Node, new: Node) -> Program:
    return replace(program, body=substitute_node(program.body, old, new))


def _unshared_leaves(program: Program) -> list[Leaf]:
    """Leaves that neither view another nor are viewed."""
    bases = {leaf.base for leaf in program.leaves}
    return [leaf for leaf in program.leaves if leaf.base is None and leaf.name not in bases]


def _drawn_node(
    program: Program, rng: random.Random, material: Material, specs: Sequence[OpSpec], at: int, anchor: str
) -> tuple[Program, Node]:
    """The program with the leaves that a new node needs, and the node, drawn after the first `at` ones."""
    draft = draft_of(program, rng, at, material.announce)
    node = append_node(draft, rng.choice(specs), anchor)
    return replace(program, leaves=tuple(draft.leaves)), fresh_names(node, program)


def _with_node_inserted(program: Program, node: Node, at: int, instead: str = "") -> Program:
    """The program with a node more; what follows reads its first result instead of this name."""
    names = {instead: node.outs[0]} if instead else {}
    after = [substitute_operands(n, names) for n in program.nodes[at:]]
    outputs = tuple(replace(o, value=node.outs[0]) if o.value == instead else o for o in program.outputs)
    return replace(program, body=(*program.nodes[:at], node, *after), outputs=outputs)


def _neighbours(program: Program, rng: random.Random) -> Sequence[OpSpec]:
    """The ops of which one is drawn beside a program's: half of the time its own, so that an op meets itself."""
    own = [OPS[node.op] for node in program.nodes if node.op in _PURE_NAMES]
    return own if own and rng.random() < 0.5 else _PURE


def _random_value(program: Program, rng: random.Random) -> tuple[int, str]:
    """A result, and how many nodes there are up to its own."""
    at, node = rng.choice(list(enumerate(program.nodes, 1)))
    return at, rng.choice(node.outs)


_PURE = [spec for spec in REAL.values() if not spec.effects and not spec.random]
_PURE_NAMES = {spec.name for spec in _PURE}
_VIEWS = [spec for spec in _PURE if spec.family == "view" and spec.results == 1]
_STEPS = [spec for spec in _PURE if not spec.differentiable and spec.operands and spec.family != "constant"]
_REDUCTIONS = {name: weight for name, weight in CLOSING.items() if name in REAL}


# ---------------------------------------------------------------- the graph


def swap_operand(program: Program, rng: random.Random, material: Material) -> Program:
    """A node reads another value of the same dtype and shape."""
    types = types_of(program)
    at, node = rng.choice(list(enumerate(program.nodes)))
    place, name = rng.choice([(i, a) for i, a in enumerate(node.args) if isinstance(a, str)])
    known = [leaf.name for leaf in program.leaves] + [out for n in program.nodes[:at] for out in n.outs]
    like = (types[name].dtype, types[name].shape)
    other = rng.choice([n for n in known if n != name and (types[n].dtype, types[n].shape) == like])
    return _with_node(program, node, replace(node, args=(*node.args[:place], other, *node.args[place + 1 :])))


def insert_node(program: Program, rng: random.Random, material: Material) -> Program:
    """Another op stands between a value and those that read it."""
    at, name = _random_value(program, rng)
    grown, node = _drawn_node(program, rng, material, _PURE, at, name)
    return _with_node_inserted(grown, node, at, name)


def delete_node(program: Program, rng: random.Random, material: Material) -> Program:
    """What read a node reads its first operand, or a new leaf of the result's type where shapes differ."""
    types = types_of(program)
    node = rng.choice([n for n in program.nodes if not writes(n)])
    leaves, names = list(program.leaves), {}
    for out in node.outs:
        same = [n for n in node.uses if (types[n].dtype, types[n].shape) == (types[out].dtype, types[out].shape)]
        if same:
            names[out] = rng.choice(same)
            continue
        t, names[out] = types[out], f"new_{out}"
        values = draw_values(rng, t.dtype, ())
        leaves.append(
            Leaf(names[out], t.dtype, t.shape, contiguous(t.shape), 0, t.differentiable, values, rng.randrange(1000))
        )
    body = map_nodes(program.body, lambda n: None if n is node else substitute_operands(n, names))
    outputs = tuple(o for o in program.outputs if o.value not in node.outs)
    return replace(program, leaves=tuple(leaves), body=body, outputs=outputs)


def replace_node(program: Program, rng: random.Random, material: Material) -> Program:
    """Another op of the family, on the same first operand."""
    at, node = rng.choice([(i, n) for i, n in enumerate(program.nodes) if n.uses and not writes(n)])
    others = [s for s in _PURE if s.family == OPS[node.op].family and s.name != node.op]
    grown, new = _drawn_node(program, rng, material, others, at, node.uses[0])
    if len(new.outs) != len(node.outs):
        raise Rejected("another number of results")
    return _with_node(grown, node, replace(new, outs=node.outs))


def splice(program: Program, rng: random.Random, material: Material) -> Program:
    """The donor after the program: it reads values of the program in place of leaves of their dtype and shape."""
    other = rename_apart(material.donor, program)
    types = types_of(program)
    results = [out for node in program.nodes for out in node.outs]
    joined: dict[str, str] = {}
    for leaf in _unshared_leaves(other):
        fitting = [n for n in results if (types[n].dtype, types[n].shape) == (leaf.dtype, leaf.shape)]
        if fitting and leaf.requires_grad and rng.random() < 0.7:
            joined[leaf.name] = rng.choice(fitting)
    leaves = (*program.leaves, *(leaf for leaf in other.leaves if leaf.name not in joined))
    outputs = (*program.outputs, *(o for o in other.outputs if o.value not in joined))
    return replace(
        program,
        leaves=leaves,
        body=(*program.body, *map_nodes(other.body, lambda n: substitute_operands(n, joined))),
        outputs=outputs,
    )


def fan_out(program: Program, rng: random.Random, material: Material) -> Program:
    """One more node reads a value, so that its gradient is a sum."""
    at, name = _random_value(program, rng)
    specs = _neighbours(program, rng)
    return _with_node_inserted(*_drawn_node(program, rng, material, specs, at, name), at)


def append_reduction(program: Program, rng: random.Random, material: Material) -> Program:
    """An output is reduced or permuted first: its backward hands on a cotangent of stride 0, or a permuted one."""
    name = rng.choice([o.value for o in program.outputs if o.cotangent])
    grown, node = _drawn_node(program, rng, material, [OPS[weighted(rng, _REDUCTIONS)]], len(program.nodes), name)
    return _with_node_inserted(grown, node, len(program.nodes), name)


def wrap_in_view(program: Program, rng: random.Random, material: Material) -> Program:
    """Those that read a value read a view of it."""
    at, name = _random_value(program, rng)
    grown, node = _drawn_node(program, rng, material, _VIEWS, at, name)
    return _with_node_inserted(grown, node, at, name)


def wrap_in_region(program: Program, rng: random.Random, material: Material) -> Program:
    """A region more, of any kind; half of the time those of one kind go first, where the program has some."""
    if sum(leaf.type.numel for leaf in program.leaves) > _MOST_TO_ENCLOSE:
        raise Rejected("too many elements for a Jacobian")
    there = sorted({s.kind for s in statements(program.body) if isinstance(s, Region)})
    less = there and rng.random() < 0.5
    before = replace(program, body=unwrap(program.body, rng.choice(there))) if less else program
    drawn = (with_region(before, rng, rng.choice(region_kinds(program))) for _ in range(_TRIES // 3))
    return next((found for found in drawn if found not in (before, program)), before)


# ---------------------------------------------------------------- neighbours: what the program had stays in its order


def precede(program: Program, rng: random.Random, material: Material) -> Program:
    """Those that read a leaf read an op of it: half of the time a leaf of any kind, such as positions or a mask."""
    any_kind = rng.random() < 0.5
    leaf = rng.choice([leaf for leaf in program.leaves if leaf.requires_grad or any_kind])
    grown, node = _drawn_node(program, rng, material, _neighbours(program, rng), 0, leaf.name)
    return _with_node_inserted(grown, node, 0, leaf.name)


def follow(program: Program, rng: random.Random, material: Material) -> Program:
    """An op reads an output, and its result is the output."""
    name = rng.choice([o.value for o in program.outputs if o.cotangent])
    specs = _neighbours(program, rng)
    grown, node = _drawn_node(program, rng, material, specs, len(program.nodes), name)
    return _with_node_inserted(grown, node, len(program.nodes), name)


def weigh(program: Program, rng: random.Random, material: Material) -> Program:
    """A result of an op without a derivative, such as a boolean or a position, is made floating and is a factor."""
    types, at = types_of(program), len(program.nodes)
    found = [out for n in program.nodes for out in n.outs if not types[out].differentiable]
    if not found or rng.random() < 0.5:
        name = rng.choice([n for n, t in types.items() if t.differentiable])
        program, node = _drawn_node(program, rng, material, _STEPS, at, name)
        program, found, at = _with_node_inserted(program, node, at), [node.outs[0]], at + 1
    dtype = rng.choice([leaf.dtype for leaf in program.leaves if leaf.dtype in FLOATS] or ["f32"])
    cast = fresh_names(Node(("",), "to", (rng.choice(found),), (("dtype", Dtype(dtype)),)), program)
    program = _with_node_inserted(program, cast, at)
    grown, product = _drawn_node(program, rng, material, [OPS["mul"]], at + 1, cast.outs[0])
    return _with_node_inserted(grown, product, at + 1)


# ---------------------------------------------------------------- parameters and leaves


def redraw_attribute(program: Program, rng: random.Random, material: Material) -> Program:
    """One attribute of a node is drawn again, corners first, as the op's entry draws it."""
    types = types_of(program)
    node = rng.choice([n for n in program.nodes if OPS[n.op].attributes])
    attribute = rng.choice(OPS[node.op].attributes)
    operands = [
        tuple(types[n] for n in a if n is not None) if isinstance(a, tuple) else a and types[a] for a in node.args
    ]
    given = {a.name: a.default for a in OPS[node.op].attributes} | dict(node.attrs)
    try:
        value = attribute.draw(Draw(rng, Limits(), operands, given))
    except (TypeError, ValueError, ArithmeticError) as error:  # its rule is for drawn attributes, not for a person's
        raise Rejected(f"{attribute.name} of {node.op} cannot be drawn: {error}") from error
    attrs = {**dict(node.attrs), attribute.name: value}
    if type(value) is type(attribute.default) and value == attribute.default:
        del attrs[attribute.name]
    ordered = tuple((a.name, attrs[a.name]) for a in OPS[node.op].attributes if a.name in attrs)
    return _with_node(program, node, replace(node, attrs=ordered))


def resize(program: Program, rng: random.Random, material: Material) -> Program:
    """All dimensions of one size get another, in every leaf."""
    size = rng.choice(sorted({size for leaf in program.leaves for size in leaf.shape}))
    new = rng.choice([s for s in (*_SIZES, size + 1, max(size - 1, 0), 2 * size) if s != size])

    def resized(leaf: Leaf) -> Leaf:
        if size not in leaf.shape:
            return leaf
        shape = tuple(new if s == size else s for s in leaf.shape)
        if leaf.base is not None:
            raise Rejected("a view of another leaf")
        stride, offset = (contiguous(shape), 0) if leaf.stride == contiguous(leaf.shape) else draw_layout(rng, shape)
        values = _repeated(leaf, shape) if leaf.values.name == "data" else leaf.values
        values = Recipe("below", (new,)) if values == Recipe("below", (size,)) and new else values
        return replace(leaf, shape=shape, stride=stride, offset=offset, values=values)

    leaves = tuple(map(resized, program.leaves))
    if max(leaf.type.numel for leaf in leaves) > Limits().max_numel:
        raise Rejected("too many elements")
    return replace(program, leaves=leaves)


def _repeated(leaf: Leaf, shape: Shape) -> Recipe:
    """A leaf's own numbers in another shape of its rank: cut, or from the start again. Raises Rejected."""
    values = fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape)
    if not values.numel() or math.prod(shape) > _MOST_NUMBERS:
        raise Rejected("no numbers to repeat, or too many")
    for dim, (old, new) in enumerate(zip(leaf.shape, shape, strict=True)):
        values = values.index_select(dim, torch.arange(new) % old)
    return as_data(values)


def recast_leaves(program: Program, rng: random.Random, material: Material) -> Program:
    """Leaves of one floating dtype get another; half of the time one leaf alone does."""
    old = rng.choice([leaf.dtype for leaf in program.leaves if leaf.dtype in FLOATS])
    new = weighted(rng, {name: w for name, w in DTYPE_WEIGHTS.items() if name in FLOATS and name != old})
    alone = rng.choice([leaf for leaf in program.leaves if leaf.dtype == old]) if rng.random() < 0.5 else None
    if alone is not None and alone not in _unshared_leaves(program):
        raise Rejected("a leaf that shares its storage")
    leaves = (replace(x, dtype=new) if x.dtype == old and alone in (None, x) else x for x in program.leaves)
    return replace(program, leaves=tuple(leaves))


def restride_leaf(program: Program, rng: random.Random, material: Material) -> Program:
    """A leaf lies otherwise in memory."""
    leaf = rng.choice([leaf for leaf in _unshared_leaves(program) if leaf.shape])
    stride, offset = draw_layout(rng, leaf.shape) if rng.random() < 0.7 else (broadcast_strides(rng, leaf.shape), 0)
    return _with_leaf(program, leaf, replace(leaf, stride=stride, offset=offset))


def refill_leaf(program: Program, rng: random.Random, material: Material) -> Program:
    """A leaf holds other values: such as its readers' entries ask for, or general ones."""
    leaf = rng.choice([leaf for leaf in program.leaves if leaf.type.differentiable and leaf.base is None])
    readers = [OPS[node.op] for node in program.nodes if leaf.name in node.uses]
    suited = sorted({value for spec in readers for operand in spec.operands for value in operand.values})
    recipe = Recipe(rng.choice([*suited, *GENERAL])) if rng.random() < 0.8 else NORMAL
    return _with_leaf(program, leaf, replace(leaf, values=recipe, seed=rng.randrange(1000)))


def toggle_requires_grad(program: Program, rng: random.Random, material: Material) -> Program:
    """A leaf requires grad, or no longer does."""
    several = sum(leaf.requires_grad for leaf in program.leaves) > 1  # the only one stays as it is
    leaf = rng.choice([x for x in program.leaves if x.type.differentiable and (several or not x.requires_grad)])
    return _with_leaf(program, leaf, replace(leaf, requires_grad=not leaf.requires_grad))


# ---------------------------------------------------------------- how the gradient gets compiled


def redraw_cotangent(program: Program, rng: random.Random, material: Material) -> Program:
    """An output's cotangent has other values and, where the route lets it act, another layout."""
    at = rng.choice([i for i, o in enumerate(program.outputs) if o.cotangent])
    output = program.outputs[at]
    assert output.cotangent is not None
    new = draw_cotangent(Draft(rng, Limits(), "f32"), output.cotangent.type, program.route.name)
    return replace(program, outputs=(*program.outputs[:at], replace(output, cotangent=new), *program.outputs[at + 1 :]))


def reroute(program: Program, rng: random.Random, material: Material) -> Program:
    """Another route."""
    return replace(program, route=draw_route(rng, [name for name in ANY_BACKEND if name != program.route.name]))


def change_setting(program: Program, rng: random.Random, material: Material) -> Program:
    """One setting more, another value, or one less; what it needs comes with it."""
    current = dict(program.settings)
    if current and rng.random() < 0.3:
        gone = rng.choice(sorted(current))
        return replace(program, settings=tuple((k, v) for k, v in program.settings if k != gone))
    known = [s for s in compiler_settings.SETTINGS if s.devices and compiler_settings.exists(s.name)]
    setting = rng.choice([s for s in known if ROUTES[program.route.name].takes(s)])
    changed = {**current, **dict(setting.needs), setting.name: rng.choice(setting.values)}
    return replace(program, settings=tuple(sorted(changed.items())))


MUTATORS: tuple[Mutator, ...] = (
    swap_operand,
    insert_node,
    delete_node,
    replace_node,
    splice,
    fan_out,
    append_reduction,
    wrap_in_view,
    wrap_in_region,
    precede,
    follow,
    weigh,
    redraw_attribute,
    resize,
    recast_leaves,
    restride_leaf,
    refill_leaf,
    toggle_requires_grad,
    redraw_cotangent,
    reroute,
    change_setting,
)
BY_NAME = {mutator.__name__: mutator for mutator in MUTATORS}

# Those that leave the ops of a program in their order: they change how it is called, or put an op beside it.
_TAKING_APART = {swap_operand, insert_node, delete_node, replace_node, splice, wrap_in_view}
KEEPING = tuple(mutator for mutator in MUTATORS if mutator not in _TAKING_APART)


class Several(NamedTuple):
    """From `least` to `most` mutators of these, one after another."""

    mutators: tuple[Mutator, ...]
    least: int
    most: int


HAVOC, AROUND = "havoc", "around"
SEVERAL = {HAVOC: Several(MUTATORS, 2, 5), AROUND: Several(KEEPING, 1, 3)}
MUTATOR_NAMES = (*BY_NAME, HAVOC)  # of which a mutant of any program is made


def mutate(
    program: Program,
    rng: random.Random,
    material: Material,
    device: str = "cpu",
    by: str = "",
    allowed: Callable[[Program], bool] = lambda program: len(program.nodes) <= 8,
) -> Program:
    """A program that is another and runs in eager. Raises Rejected after some tries.

    by  a mutator's name, or one of SEVERAL; "": any mutator.  allowed: asked before torch is.
    """
    one = (BY_NAME[by],) if by in BY_NAME else MUTATORS
    mutators, least, most = SEVERAL.get(by, Several(one, 1, 1))

    def change() -> Program:
        mutant, wanted = program, rng.randint(least, most)
        for _ in range(_TRIES):
            with contextlib.suppress(ValueError, LookupError):  # this one finds nothing to change
                made = rng.choice(mutators)(mutant, rng, material)
                mutant, wanted = made, wanted - (made != mutant)
            if not wanted:
                break
        if mutant == program:
            raise Rejected("no mutator found anything to change")
        if not allowed(mutant):
            raise Rejected("not allowed")
        return mutant

    with torch.random.fork_rng(devices=[]):  # random ops draw in the dry runs
        torch.default_generator.manual_seed(0)
        program = canonical(program)
        why, zero = Counter[str](), False
        for _ in range(_TRIES):
            try:
                found = try_mutator(change, rng, device, material.announce, unread_results(program), zero)
            except Rejected as error:
                why[str(error)] += 1
                # a parent without a gradient that is not zero, such as that of sign, has such mutants
                zero = zero or (str(error) == NO_GRADIENT and not is_useful(dry_gradients(program) or {}))
                continue
            if found != program:
                return found
            why["it is the parent again"] += 1
    raise Rejected(f"{by or 'no mutator'} made no other program; most often: {why.most_common(1)[0][0]}")
