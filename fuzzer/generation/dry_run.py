"""A program in eager, before anything is compiled: its values, and whether an error in a gradient could be seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from fuzzer.language.interpret import apply, cotangents, materialise, run_each, to_function
from fuzzer.language.ops import OPS
from fuzzer.language.program import (
    Program,
)
from fuzzer.language.routes import DEFAULT, Call
from fuzzer.language.values import real_parts

_CLEAR = 400.0  # 10 floors of about 6.4 standard deviations, times 6 because the model allows more than eager shows


def eager_values(program: Program) -> dict[str, torch.Tensor] | None:
    """Every value of the program, run in eager on the CPU without gradients; None where it raises.

    Fake tensors (`infer`) would give the same types in ten times the time.
    """
    env: dict[str, Any] = dict(materialise(program.leaves))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
        try:
            run_each(program, env, lambda node: apply(node, env))
        except Exception:  # torch's refusal may have any type
            return None
    return env


def dry_gradients(
    program: Program, change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
) -> dict[str, torch.Tensor | None] | None:
    """Eager's gradients, with `change` applied to floating and complex leaves and cotangents; None where eager
    raises."""
    try:
        return eager_gradients(program, change)
    except Exception:  # torch's refusal may have any type
        return None


def eager_gradients(
    program: Program, change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
) -> dict[str, torch.Tensor | None]:
    """As `dry_gradients`. Raises whatever eager does."""

    def changed(t: torch.Tensor) -> torch.Tensor:
        rounded = t.is_floating_point() or t.is_complex()
        return change(t.detach()).requires_grad_(t.requires_grad) if rounded else t

    leaves = {name: changed(t) for name, t in materialise(program.leaves).items()}
    seeds = [changed(t) for t in cotangents(program)]
    return DEFAULT.run(Call(program, to_function(program), leaves, seeds)).gradients


def has_detectable_gradient(program: Program) -> bool:
    """Whether an error in a gradient could be seen, by a dry run of the backward.

    Some element of some gradient must exceed CLEAR times the root mean square difference between eager's gradient and
    its float64 computation from the same numbers, where both are finite. If the program has no float64 form, one
    nonzero element is enough.
    """
    own = dry_gradients(program)
    if own is None:
        return True  # refused: the reference side will report it
    drawing = any(OPS[node.op].random for node in program.nodes)  # float64 would draw other numbers
    wide = None if drawing else dry_gradients(program, _to_double)
    for name, gradient in own.items():
        if gradient is None or not gradient.numel():
            continue
        g = real_parts(gradient).double()
        exact = None if wide is None or wide[name] is None else real_parts(wide[name])
        off = torch.zeros_like(g) if exact is None else g - exact
        finite = torch.isfinite(g) & torch.isfinite(off)
        noise = off[finite].square().mean().sqrt()
        if bool((g[finite].abs() > _CLEAR * noise).any()):
            return True
    return False


def _to_double(t: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 or complex128."""
    return t.to(torch.promote_types(t.dtype, torch.float64))
