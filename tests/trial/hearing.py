"""Reported faults of torch.compile as functions: the name is the number of the thread in pytorch/pytorch.

A row is a function, its inputs, and the class of the verdict that a replay of the same code, written as a program with
the same leaves, gets on torch 2.13 (CPU).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from fuzzer.language.program import NORMAL, Recipe, Value
from fuzzer.language.values import DTYPE_NAMES, fill


@dataclass(frozen=True)
class Reported:
    """heard  the class of the replay; settings  of the compiler."""

    function: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    heard: str
    settings: Mapping[str, Value] = field(default_factory=dict)


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 2) -> torch.Tensor:
    """Normal numbers that require a gradient: those of a leaf with this seed."""
    return fill(NORMAL, seed, DTYPE_NAMES[dtype], shape).clone().requires_grad_()


def counted(*shape: int) -> torch.Tensor:
    """1, 2, 3, ... in row-major order."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def from_104505(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.diagonal().as_strided((2,), (1,), 0).add_(1.0)
    return x * y


def from_145466(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.floor(torch.cos(x)) * y


def from_173793(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (4,))


def from_183083(x: torch.Tensor) -> torch.Tensor:
    return torch.remainder(x, 3.14)


def from_183901(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    positions = torch.ones_like(x).cumsum(0) * 1_500_000_000
    return positions, positions * y


def from_186875(x: torch.Tensor) -> torch.Tensor:
    return torch.remainder(x, 1.7)


def from_186875_fmod(x: torch.Tensor) -> torch.Tensor:
    return torch.fmod(x, 1.7)


def from_187340(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    following = torch.nextafter(x, y)
    return following, following * z


def from_188218(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.fractional_max_pool2d(x, (0, 0), (3, 3)) * y


def from_190421(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * torch.log2(torch.zeros_like(x)).sum((0,), dtype=torch.int32)


def from_190421_alias(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The program writes to the first result once it is returned; a function ends before, and the result may not be
    x itself."""
    return torch.zeros_like(x) + x, y * y


def from_195422(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = F.dropout(x, 0.0)
    kept.add_(kept)
    return x * y


def from_197829(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:3] = x[0:2].clone()
    return x * y


def from_197895(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x // y) * z


def from_197895_div(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="floor")


def from_198133(x: torch.Tensor) -> torch.Tensor:
    return torch.erfinv(x)


def _cosine() -> tuple[torch.Tensor, ...]:
    return torch.tensor([0.01, 0.002, 0.005, 1.0], dtype=torch.float16), drawn(4, dtype=torch.float16)


def _large() -> tuple[torch.Tensor, ...]:
    return (torch.tensor([[8.5071e37, 8.50712e37, 8.50714e37, 8.5072e37]], requires_grad=True),)


def _half() -> tuple[torch.Tensor, ...]:
    numbers = [-4.0, -1.5, 0.1, 1.0, 3.140625, 8.0, 6.28, 9.42]
    return (torch.tensor(numbers, dtype=torch.float16, requires_grad=True),)


def _positions() -> tuple[torch.Tensor, ...]:
    return torch.ones(9, dtype=torch.int64), drawn(9, dtype=torch.float64)


def _bfloat() -> tuple[torch.Tensor, ...]:
    return (torch.tensor([1.703125, -1.703125], dtype=torch.bfloat16, requires_grad=True),)


def _steps() -> tuple[torch.Tensor, ...]:
    numbers = torch.tensor([1.0, -1.0, 2.0, -2.0, 0.5, 4.0], dtype=torch.bfloat16).reshape(2, 3)
    some_zero = fill(Recipe("zeros"), 0, "bf16", (2, 3)).clone()
    return numbers, some_zero, drawn(2, 3, dtype=torch.bfloat16)


def _images() -> tuple[torch.Tensor, ...]:
    return drawn(2, 3, 6, 6, seed=1).detach(), drawn(2, 3, 3, 3)


def _quotients(differentiated: bool) -> tuple[torch.Tensor, ...]:
    tensors = torch.tensor([1.0, 0.5, 6.0, 7.0]), torch.tensor([0.1, 0.1, 0.2, 0.7])
    return tuple(tensor.requires_grad_(differentiated) for tensor in tensors)


def _beside_one() -> tuple[torch.Tensor, ...]:
    numbers = [0.9999999999999999, 0.99999999999999, 0.999999999]
    return (torch.tensor(numbers, dtype=torch.float64, requires_grad=True),)


REPORTED = {
    "104505": Reported(from_104505, lambda: (counted(2, 4), drawn(2, 4)), "raises"),
    "145466": Reported(from_145466, _cosine, "agree"),
    "145466_casts": Reported(from_145466, _cosine, "agree", {"inductor.emulate_precision_casts": True}),
    "173793": Reported(from_173793, _large, "eager-suspect"),
    "183083": Reported(from_183083, _half, "wrong"),
    "183901": Reported(from_183901, _positions, "wrong"),
    "186875": Reported(from_186875, _bfloat, "wrong"),
    "186875_fmod": Reported(from_186875_fmod, _bfloat, "wrong"),
    "187340": Reported(from_187340, _steps, "wrong"),
    "188218": Reported(from_188218, _images, "raises"),
    "190421": Reported(from_190421, lambda: (torch.ones(3), drawn(3)), "raises"),
    "190421_alias": Reported(from_190421_alias, lambda: (torch.ones(3), drawn(3)), "wrong"),
    "195422": Reported(
        from_195422, lambda: (torch.ones(2, 2), drawn(2, 2)), "wrong", {"inductor.fallback_random": True}
    ),
    "197829": Reported(from_197829, lambda: (counted(3, 16), drawn(3, 16)), "wrong"),
    "197895": Reported(from_197895, lambda: (*_quotients(False), drawn(4, seed=3)), "wrong"),
    "197895_div": Reported(from_197895_div, lambda: _quotients(True), "wrong"),
    "198133": Reported(from_198133, _beside_one, "wrong"),
}
