"""The ops for generation, with complex operands where the limits allow complex numbers.

The running torch decides which ops take complex numbers: an op does where enough draws of it run in eager, forward and
backward.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.nodes import draw_node
from fuzzer.language.interpret import apply, materialise
from fuzzer.language.ops import OPS, REAL
from fuzzer.language.ops.spec import REQUIRED, Limits, OpSpec
from fuzzer.language.program import COMPLEX, Node

# An op is drawn until so many draws ran, or so many were refused: torch refuses none or all draws of nearly every op.
_MIN_RAN, _MAX_REFUSED = 3, 6


def vocabulary(limits: Limits, names: Sequence[str] = ()) -> dict[str, OpSpec]:
    """The ops of these names (none: all), in their complex form where the limits have complex dtypes."""
    if set(COMPLEX).isdisjoint(limits.dtypes):
        return {name: OPS[name] for name in names} if names else REAL
    return {name: complex_form(name) for name in names or OPS}


@functools.cache
def complex_form(name: str) -> OpSpec:
    """The op of this name, with complex operands where torch computes it and its gradient on them."""
    wide = OPS[name].widened()
    return wide if _takes_complex(wide) else OPS[name]


def _takes_complex(spec: OpSpec) -> bool:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
        torch.default_generator.manual_seed(0)
        ran = refused = 0
        while ran < _MIN_RAN and refused < _MAX_REFUSED:
            if _runs_on_complex(spec, ran + refused):
                ran += 1
            else:
                refused += 1
    return ran == _MIN_RAN


def _runs_on_complex(spec: OpSpec, number: int) -> bool:
    """Whether a draw of the op on complex leaves runs in eager, as drawn or with its attributes at their defaults."""
    draft = Draft(random.Random(f"{spec.name} {number}"), Limits(max_size=6, max_numel=64, dtypes=COMPLEX), COMPLEX[0])
    try:
        node = draw_node(draft, spec)
    except Rejected:
        return False
    required = {a.name for a in spec.attributes if a.default is REQUIRED}
    plain = replace(node, attrs=tuple(pair for pair in node.attrs if pair[0] in required))
    complex_leaf = any(leaf.dtype in COMPLEX for leaf in draft.leaves)
    return complex_leaf and any(_runs(draft, attempt) for attempt in (node, plain))


def _runs(draft: Draft, node: Node) -> bool:
    """Whether a node on the draft's leaves runs in eager, forward and backward."""
    env: dict[str, Any] = dict(materialise(draft.leaves))
    leaves = [env[leaf.name] for leaf in draft.leaves if leaf.requires_grad]
    try:
        apply(node, env)
        results = [env[name] for name in node.outs if env[name].requires_grad]
        if results and leaves:
            ones = [torch.ones_like(t) for t in results]
            torch.autograd.grad(results, leaves, ones, allow_unused=True)
    except Exception:  # torch's refusal may have any type
        return False
    return True
