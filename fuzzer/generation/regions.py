"""Regions around runs of a program's statements, where eager accepts them and they make a difference."""

from __future__ import annotations

import random
from dataclasses import replace

from fuzzer.generation.dry_run import dry_gradients, eager_values
from fuzzer.language.infer import type_of
from fuzzer.language.ops import OPS
from fuzzer.language.program import (
    Node,
    Program,
    Region,
    Statement,
    TensorType,
)
from fuzzer.language.regions import REGIONS, RegionSpec
from fuzzer.language.routes import ROUTES


def draw_regions(program: Program, rng: random.Random, portable: bool = False) -> Program:
    """Some programs with runs of their statements in regions, which may nest; as it was where none can stand."""
    for kind in ROUTES[program.route.name].regions:
        if portable and not REGIONS[kind].portable:
            continue
        while rng.random() < REGIONS[kind].share:
            attrs = tuple((name, rng.choice(values)) for name, values in REGIONS[kind].attributes.items())
            region = Region(kind, attrs, program.body)
            bodies = wrap(rng, program.body, region), (region,)
            if changes_no_type(program, region):
                continue
            for body in bodies:
                enclosed = _with_matching_cotangents(program, replace(program, body=body), REGIONS[kind])
                if enclosed is not None:
                    program = enclosed
                    break
    return program


def changes_no_type(program: Program, region: Region) -> bool:
    """Whether this region around the whole body changes no type though that is its purpose; then it changes none
    around a part either, since every statement was tried in it on operands of the types that it has outside.
    """
    plain = all(isinstance(s, Node) for s in program.body)
    if not plain or REGIONS[region.kind].recomputes:
        return False
    types = _eager_types(program)
    return types is not None and types == _eager_types(replace(program, body=(region,)))


def wrap(rng: random.Random, body: tuple[Statement, ...], like: Region) -> tuple[Statement, ...]:
    """A run of the body's statements in this region; half of the time inside a region that is there already."""
    inner = [(i, s) for i, s in enumerate(body) if isinstance(s, Region)]
    if inner and rng.random() < 0.5:
        i, region = rng.choice(inner)
        return (*body[:i], replace(region, body=wrap(rng, region.body, like)), *body[i + 1 :])
    start = rng.randrange(len(body))
    end = rng.randint(start + 1, len(body))
    return (*body[:start], replace(like, body=body[start:end]), *body[end:])


def _eager_types(program: Program) -> dict[str, TensorType] | None:
    """The type of every result where the program runs in eager; None where it raises."""
    values = eager_values(program)
    return values and {name: type_of(values[name]) for node in program.nodes for name in node.outs}


def _with_matching_cotangents(program: Program, enclosed: Program, spec: RegionSpec) -> Program | None:
    """The enclosed program with each cotangent of its output's dtype.

    None where the region breaks a type, changes none though that is its purpose, or would read anew what was
    overwritten meanwhile (eager's checkpoint keeps its operands as they are, not as they were).
    """
    if spec.recomputes and any(OPS[node.op].effects or OPS[node.op].random for node in enclosed.nodes):
        return None
    before, types = _eager_types(program), _eager_types(enclosed)
    if before is None or types is None or (types == before and not spec.recomputes):
        return None
    outputs = (
        o if o.cotangent is None else replace(o, cotangent=replace(o.cotangent, dtype=types[o.value].dtype))
        for o in enclosed.outputs
    )
    found = replace(enclosed, outputs=tuple(outputs))
    return None if dry_gradients(found) is None else found
