"""Programs run by their route in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language import interpret
from fuzzer.language.program import Program
from fuzzer.language.routes import (
    Call,
    Results,
    no_compile,
    route_of,
)
from fuzzer.workers.messages import Task

EAGER = Subject("eager", "cpu")
HEAD = 'program(1)\nroute("autograd")\n'


def run(program: Program, compile: Callable[..., Any] = no_compile, phases: list[str] | None = None) -> Results:
    spec, _ = route_of(program)
    note = (lambda name: None) if phases is None else phases.append
    leaves = interpret.materialise(program.leaves)
    torch.manual_seed(0)
    return spec.run(Call(program, interpret.to_function(program), leaves, interpret.cotangents(program), compile, note))


FRESH = Task(place=Place(EAGER, Subject("inductor", "cpu")), fresh=True)
HELD = (
    'program(1)\nroute("vjp")\nx0 = leaf(f32[3, 4], seed=1)\nx1 = leaf(f32[4, 4], parameter=True, seed=2)\n'
    "v0 = tanh(x1)\nv1 = mm(x0, v0)\nbackward(v1, cotangent(f32[3, 4], seed=3))\n"
)
