"""The rounding model of a function that a test calls: what eager computed, and the floors of its results."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzzer.rounding.floors import FACTOR, FINAL_LOOK, FIRST_LOOK, SCALE, SECOND_LOOK, Model
from fuzzer.rounding.record import Recorder

Run = Callable[..., list[torch.Tensor]]
FIRST_REPLICAS, SECOND_REPLICAS, FINAL_REPLICAS = FIRST_LOOK[0], SECOND_LOOK[0], FINAL_LOOK[0]
FIRST_FACTOR = SCALE * FACTOR  # on deviations at single units
F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16


def modelled(run: Run, *given: torch.Tensor) -> tuple[Model, list[torch.Tensor]]:
    """The rounding model of run(*given), and what eager computed."""
    recorder = Recorder()
    for t in given:
        recorder.ref(t)
    with recorder:
        results = run(*given)
    return Model(recorder.trace, [recorder.ref(t) for t in results]), results


def floors(run: Run, *given: torch.Tensor, consistent: bool = False) -> list[torch.Tensor]:
    return modelled(run, *given)[0].spread(32, consistent=consistent).floors(FIRST_FACTOR)


def floor(run: Run, *given: torch.Tensor, consistent: bool = False) -> float:
    """The largest floor of the first result."""
    return float(floors(run, *given, consistent=consistent)[0].max())


def gradient(f: Callable[[torch.Tensor], torch.Tensor]) -> Run:
    """x -> the gradient of f(x).sum() in x."""

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach().requires_grad_()
        return list(torch.autograd.grad(f(y).sum(), y))

    return run


def normal(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=F64).to(dtype)
