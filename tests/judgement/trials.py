"""Trials made by hand: an eager run compared with an altered copy of itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fuzzer.judgement.comparison import looks, spread
from fuzzer.judgement.trial import RAN, Place, Subject, Trial
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

HEAD = 'program(1)\nroute("autograd")\n'
ROUNDED = """x0 = leaf(f32[8, 12], seed=1)
x1 = leaf(f32[8, 12], seed=2)
v0 = mul(x0, x1)
v1 = sin(v0)
backward(v1, cotangent(f32[8, 12], seed=3))
"""
INTEGER = """x0 = leaf(f32[8, 12], values="integers", seed=1)
x1 = leaf(f32[12, 4], values="integers", seed=2)
v0 = matmul(x0, x1)
backward(v0, cotangent(f32[8, 4], values="integers", seed=3))
"""
UNUSED = """x0 = leaf(f32[5], seed=1)
x1 = leaf(f32[5], seed=2)
x2 = leaf(f32[5], values=data([0.0, 0.0, 0.0, 0.0, 0.0]))
v0 = mul(x0, x2)
backward(v0, cotangent(f32[5]))
"""
Change = Callable[[dict[str, Any]], None]


@functools.cache
def unchanged(text: str) -> Trial:
    """The program's eager run twice, with its spread at every look, which no change of the subject moves."""
    eager = Subject("eager", "cpu")
    made = run_both(parse(HEAD + text), Task(place=Place(eager, eager)), Journal(None))
    assert made.reference.outcome == made.subject.outcome == RAN
    for look in looks(made):
        spread(made, look)
    return made


def trial(text: str, change: Change = lambda named: None, side: str = "subject") -> Trial:
    """The program's eager run twice, with `change` applied to one side's tensors by name."""
    made = unchanged(text)
    altered = getattr(made, side)
    named = {k: None if t is None else t.detach().clone() for k, t in made.named(altered).items()}
    change(named)
    outputs = [named[o.value] for o in made.program.outputs]
    gradients = {k.removesuffix(".grad"): t for k, t in named.items() if k.endswith(".grad")}
    other = replace(altered, outputs=outputs, gradients=gradients)
    return made.with_subject(other) if side == "subject" else replace(made, reference=other, known={})


def put(name: str, make: Callable[[Any], Any]) -> Change:
    def change(named: dict[str, Any]) -> None:
        named[name] = make(named[name])

    return change


def at(value: float, *places: tuple[int, ...], by: float = 0.0) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy with some elements replaced (or, with `by`, moved)."""

    def make(t: torch.Tensor) -> torch.Tensor:
        t = t.clone()
        for place in places:
            t[place] = t[place] + by if by else value
        return t

    return make
