"""torch.compile of a function that calls torch.func.vjp, under no_grad: one graph, no partitioner."""

from __future__ import annotations

import torch

from fuzzer.language.program import Program
from fuzzer.language.routes.spec import Call, Results, RouteSpec, gradient_leaves
from fuzzer.language.routes.step import REGIONS_HELD, held_leaves, vjp_step, write_step
from fuzzer.language.routes.writing import Script


def run(call: Call) -> Results:
    step, given = call.once(vjp_step)
    call.phase("backward")
    with torch.no_grad():
        outputs, gradients = call.compile(step)(given, tuple(call.cotangents))
    return Results(tuple(outputs), dict(zip(gradient_leaves(call.program), gradients, strict=True)))


def write(program: Program) -> list[str]:
    return write_step(program, compiler=bool(held_leaves(program)))


def _given(program: Program, options: str | None) -> str:
    """The step itself; where a module holds leaves, `gradients` makes the step and is given its compiler."""
    if held_leaves(program):
        return "lambda s: s" if options is None else f"lambda g: torch.compile(g{options})"
    return "step" if options is None else f"torch.compile(step{options})"


ROUTE = RouteSpec(
    run,
    Script(write, _given, tracked=False),
    weight=0.3,
    options={"dynamic": False},
    regions=REGIONS_HELD,
    joint=True,
    module=True,
    writes_leaves=False,
    draws=True,
)
