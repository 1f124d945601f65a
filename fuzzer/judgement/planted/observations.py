"""Faults that corrupt an Observation after its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from fuzzer.judgement.planted.fault import Fault
from fuzzer.judgement.planted.runtime import ASLEEP_SECONDS
from fuzzer.judgement.trial import Observation

_Change = Callable[[torch.Tensor], torch.Tensor | None]


def changed_gradients(change: _Change, side: str = "subject") -> Fault:
    def tamper(observation: Observation) -> Observation:
        changed = {name: None if t is None else change(t) for name, t in observation.gradients.items()}
        return replace(observation, gradients=changed)

    return Fault(tamper=tamper, side=side)


def changed_outputs(change: _Change) -> Fault:
    return Fault(tamper=lambda observation: replace(observation, outputs=[change(t) for t in observation.outputs]))


def long_compile(observation: Observation) -> Observation:
    return replace(observation, cpu_seconds=observation.cpu_seconds + ASLEEP_SECONDS)


def largest_for_infinite(tensor: torch.Tensor) -> torch.Tensor:
    """The dtype's largest number in place of infinities."""
    return tensor.nan_to_num(nan=torch.nan) if tensor.is_floating_point() else tensor


def other_zero(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor == 0, -tensor, tensor)


def scaled_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor times 1.01, in place: the trace knows the reference's tensors by their storage."""
    return tensor.mul_(1.01)
