"""Regions around runs of a program's statements, where eager accepts them and they have an effect."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fuzzer.generation.dry_run import dry_gradients, eager_values
from fuzzer.language.infer import type_of
from fuzzer.language.ops import OPS
from fuzzer.language.program import (
    BETWEEN,
    Attributes,
    Node,
    Output,
    Program,
    Region,
    Statement,
    TensorType,
    contiguous,
    outer_reads,
    statements,
    walk,
)
from fuzzer.language.regions import OF_FUNC, REGIONS, RegionSpec, UnknownRegion, ambient_region
from fuzzer.language.routes import ROUTES

_MOST_ELEMENTS = 1 << 14  # of a result: a Jacobian has as many as both sides multiplied
_MOST_RUNS = 16  # of a body, for each element or row of its operand
_TRIES = 3  # of a body, since few runs of statements can be one
_COMPOSED = 0.04  # of programs: those for which a transform of torch.func in another is tried
# A run of a body's statements -> the region around it, None where it cannot stand in one.
Enclose = Callable[[tuple[Statement, ...]], Region | None]


def draw_regions(program: Program, rng: random.Random, portable: bool = False) -> Program:
    """Some programs with runs of their statements in regions, which may nest; unchanged where no region fits."""
    kinds = region_kinds(program, portable)
    if rng.random() < _COMPOSED:
        program = _with_composed(program, rng, kinds)
    for kind in kinds:
        while rng.random() < REGIONS[kind].share:
            program = with_region(program, rng, kind)
    return program


def region_kinds(program: Program, portable: bool = False) -> list[str]:
    """The kinds of regions that may be drawn for a program, by its route."""
    route = ROUTES[program.route.name]
    return [
        kind
        for kind in route.regions
        if kind != BETWEEN  # these come with histories of memory
        and (REGIONS[kind].portable or not portable)
        and not (route.joint and REGIONS[kind].own_backward)
    ]


def _with_composed(program: Program, rng: random.Random, kinds: Sequence[str]) -> Program:
    """The program with a transform of torch.func in another, as in a Jacobian of each row or a Hessian; each such pair
    of kinds is as likely. Unchanged where the two do not fit."""
    pairs = [(outer, inner) for outer in OF_FUNC for inner in OF_FUNC if {outer, inner} <= set(kinds)]
    if not pairs:
        return program
    outer, inner = rng.choice(pairs)
    for _ in range(_TRIES):
        holds = with_region(program, rng, outer)
        if holds is not program and (found := with_region(holds, rng, inner, inside=1.0)) is not holds:
            return found
    return program


def with_region(program: Program, rng: random.Random, kind: str, inside: float = 0.5) -> Program:
    """The program with one more region of this kind; the very program where none of the runs tried fits.

    inside   the share of tries that put it into a region of the program.
    """
    spec = REGIONS[kind]
    attrs = _draw_attributes(rng, spec)
    types = _eager_types(program)
    if types is None or (spec.retypes and changes_no_type(program, Region(kind, attrs, program.body))):
        return program
    if spec.ambient and ambient_region(program):
        return program
    leaves = {leaf.name: leaf.type for leaf in program.leaves}

    def enclose(body: tuple[Statement, ...]) -> Region | None:
        if spec.pure and any(_is_impure(node) for node in walk(body)):
            return None
        if spec.transform and any(map(_is_unchecked, walk(body))):
            return None
        args = _draw_operands(rng, kind, body, leaves if spec.decides else leaves | types)
        return None if args is None else Region(kind, attrs, body, args)

    tries, to_end = (_TRIES, True) if spec.transform else (0 if spec.ambient else 1, False)
    for number in range(tries + 1):
        whole = number == tries and inside < 1
        body = _whole(enclose, program.body) if whole else wrap(rng, program.body, enclose, to_end, inside)
        if body is None or not _can_nest(body):
            continue
        enclosed = _with_matching_cotangents(replace(program, body=body), spec, types)
        if enclosed is not None:
            return enclosed
    return program


def _whole(enclose: Enclose, body: tuple[Statement, ...]) -> tuple[Statement, ...] | None:
    region = enclose(body)
    return None if region is None else (region,)


def _draw_operands(
    rng: random.Random, kind: str, body: tuple[Statement, ...], types: Mapping[str, TensorType]
) -> tuple[str, ...] | None:
    """As many operands as the region takes, from the values that its body reads and that have a type here. If the
    region carries a value on, the first operand has the type of the body's last result. None where there are too
    few."""
    spec, (least, most) = REGIONS[kind], REGIONS[kind].operands
    reads = [name for name in outer_reads(body) if name in types and _is_operand(kind, types[name])]
    if len(reads) < least:
        return None
    found = rng.sample(reads, rng.randint(least, min(most, len(reads))))
    if spec.carries:
        *_, last = walk(body)
        alike = [name for name in reads if types[name] == types.get(last.outs[0])]
        if not alike:
            return None
        first = rng.choice(alike)
        found = [first, *(name for name in rng.sample(reads, len(reads)) if name != first)][:least]
    return tuple(found) if len(found) >= least else None


def _is_operand(kind: str, t: TensorType) -> bool:
    """Whether such a value may be an operand of a body: a body that runs once for each element or row takes few of
    them."""
    if kind in ("jacrev", "jacfwd"):
        return t.numel <= _MOST_RUNS
    return kind not in ("map", "scan") or not t.rank or t.shape[0] <= _MOST_RUNS


def _draw_attributes(rng: random.Random, spec: RegionSpec) -> Attributes:
    """A value for each attribute; those at their default are left out."""
    drawn = [(name, rng.choice(values), values[0]) for name, values in spec.attributes.items()]
    return tuple((name, value) for name, value, default in drawn if name in spec.required or value != default)


def _is_impure(node: Node) -> bool:
    return bool(OPS[node.op].effects or OPS[node.op].random)


def _is_unchecked(node: Node) -> bool:
    """Whether a node reads beyond its operands where they do not fit, which may happen to a body's operands: undefined
    behaviour in eager, which dies of it."""
    return bool(dict(node.attrs).get("unsafe"))


def _can_nest(body: tuple[Statement, ...]) -> bool:
    """Whether every region holds only statements allowed in it, and a transformed body at most one region: each
    transform multiplies the time that the body takes."""
    for region in statements(body):
        if isinstance(region, Region):
            held, inner = REGIONS[region.kind].holds, [s.kind for s in statements(region.body) if isinstance(s, Region)]
            if (held is not None and not set(inner) <= set(held)) or (region.args and len(inner) > 1):
                return False
    return True


def changes_no_type(program: Program, region: Region) -> bool:
    """Whether this region around the whole body changes no type although that is its purpose. Then it changes none
    around a part either, since every statement was tried in it on operands of the types that it has outside."""
    plain = all(isinstance(s, Node) for s in program.body)
    if not plain or not REGIONS[region.kind].retypes:
        return False
    types = _eager_types(program)
    return types is not None and types == _eager_types(replace(program, body=(region,)))


def wrap(
    rng: random.Random, body: tuple[Statement, ...], enclose: Enclose, to_end: bool = False, inside: float = 0.5
) -> tuple[Statement, ...] | None:
    """A run of the body's statements in a region; this share of the time inside an existing region. to_end: half of the
    other runs reach to the end of the body. None where the drawn run cannot stand in a region."""
    inner = [(i, s) for i, s in enumerate(body) if isinstance(s, Region)]
    if inner and rng.random() < inside:
        i, outer = rng.choice(inner)
        within = wrap(rng, outer.body, enclose, to_end)
        return None if within is None else (*body[:i], replace(outer, body=within), *body[i + 1 :])
    start = rng.randrange(len(body))
    end = len(body) if to_end and rng.random() < 0.5 else rng.randint(start + 1, len(body))
    region = enclose(body[start:end])
    return None if region is None else (*body[:start], region, *body[end:])


def _eager_types(program: Program) -> dict[str, TensorType] | None:
    """The type of every result where the program runs in eager; None where it raises."""
    try:
        values = eager_values(program)
    except UnknownRegion:  # a region that returns one result alone
        return None
    return values and {name: type_of(values[name]) for node in program.nodes for name in node.outs}


def _with_matching_cotangents(enclosed: Program, spec: RegionSpec, before: dict[str, TensorType]) -> Program | None:
    """The enclosed program with each cotangent of its output's dtype and shape.

    None where the region makes a type illegal, changes none though that is its purpose, or would read a value again
    that was overwritten meanwhile (eager's checkpoint keeps its operands by reference, not by value).
    """
    if spec.recomputes and any(map(_is_impure, enclosed.nodes)):
        return None
    types = _eager_types(enclosed)
    if types is None or (types == before and spec.retypes):
        return None
    if any(t.numel > _MOST_ELEMENTS and t.numel > before[name].numel for name, t in types.items()):
        return None
    if spec.own_backward and not _is_differentiable(enclosed, types):
        return None
    outputs = tuple(_fitted(output, types) for output in enclosed.outputs)
    found = replace(enclosed, outputs=outputs)
    gradients = dry_gradients(found)
    return None if gradients is None or all(g is None for g in gradients.values()) else found


def _is_differentiable(program: Program, types: dict[str, TensorType]) -> bool:
    """Whether all operands and results of the program's regions with a backward of their own are differentiable."""
    known = {leaf.name: leaf.type for leaf in program.leaves} | types
    regions = (s for s in statements(program.body) if isinstance(s, Region) and REGIONS[s.kind].own_backward)
    return all(
        known[name].differentiable
        for region in regions
        for name in (*outer_reads(region.body), *(out for node in walk(region.body) for out in node.outs))
    )


def _fitted(output: Output, types: dict[str, TensorType]) -> Output:
    """The output with a cotangent of its type, which keeps its layout where the shape is the same."""
    c = output.cotangent
    if c is None or output.value not in types:
        return output
    t = types[output.value]
    if c.shape == t.shape:
        return replace(output, cotangent=replace(c, dtype=t.dtype))
    fitted = replace(c, dtype=t.dtype, shape=t.shape, stride=contiguous(t.shape), offset=0)
    return replace(output, cotangent=fitted)
