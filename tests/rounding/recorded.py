"""A function recorded and replayed in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.trace import Ref, Trace


def recorded(
    run: Callable[..., list[torch.Tensor]], *given: torch.Tensor
) -> tuple[Trace, list[Ref], list[torch.Tensor]]:
    """The trace of run(*given), and its results as Refs and as tensors."""
    recorder = Recorder()
    for tensor in given:
        recorder.ref(tensor)
    with recorder:
        results = run(*given)
    return recorder.trace, [recorder.ref(t) for t in results], results


def replayed(run: Callable[..., list[torch.Tensor]], *given: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(replayed in float64, eager) for each result."""
    trace, refs, results = recorded(run, *given)
    replay = Replay(trace).run()
    return [(replay.value(ref), t) for ref, t in zip(refs, results, strict=True)]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).to(dtype) / 3
