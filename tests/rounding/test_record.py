"""What is recorded of a run in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Replay
from tests.rounding.recorded import recorded, replayed, same, tensor


@pytest.mark.parametrize("stride", [(0, 1), (1, 3), (10, 2)])
def test_a_leaf_of_any_layout_is_recorded_with_its_storage(stride: tuple[int, int]) -> None:
    x = torch.as_strided(tensor(40, dtype=torch.float64), (3, 4), stride, 2)
    for mine, theirs in replayed(lambda x: [x * 2, x.sum(0)], x):
        assert same(mine, theirs)


def test_views_cost_no_step_and_steps_name_their_ops() -> None:
    trace, _, _ = recorded(lambda x: [x.t().reshape(-1)[2:].view(2, 5).expand(3, 2, 5)[0].exp_()], tensor(3, 4).clone())
    names = [step.name for step in trace.steps]
    assert names[-1] == "exp"
    assert not {"t", "view", "expand", "slice", "select"} & set(names)
    assert "exp" in str(trace)
    assert "float32[2, 5]/[5, 1]" in str(trace)


@pytest.mark.parametrize("factor", [1.5, torch.tensor(1.5)], ids=["a number", "a tensor"])
def test_a_gradient_that_torch_knows_to_be_zero_is_replayed(factor: Any) -> None:
    """Multiplied, such zeros ask the meta device for their shape: calls without data, which no replay can have."""

    def sign(x: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(torch.sgn(x * factor).sum(), x))

    [(mine, theirs)] = replayed(sign, tensor(5).requires_grad_())
    assert same(mine, theirs)
    assert same(mine, torch.zeros(5))


def test_a_tangent_that_torch_keeps_without_memory_may_be_scaled() -> None:
    y = tensor(3).requires_grad_()

    def tangent(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.func.jvp(lambda t: torch.sub(t, y, alpha=-1.0), (x,), (torch.ones_like(x),))[1].detach()]

    [(mine, theirs)] = replayed(tangent, tensor(3))
    assert same(mine, theirs)
    assert same(mine, torch.ones(3))


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_in_training_writes_its_statistics_though_its_schema_says_nothing(training: bool) -> None:
    mean, variance = torch.zeros(3), torch.ones(3)
    with Recorder() as recorder:
        torch.nn.functional.batch_norm(torch.randn(5, 3), mean, variance, training=training)
    written = [ref for step in recorder.trace.steps for ref in step.writes]
    assert written == ([recorder.ref(mean), recorder.ref(variance)] if training else [])
    replay = Replay(recorder.trace).run()
    assert torch.allclose(replay.value(recorder.ref(mean)), mean.double(), atol=1e-6)
    first = recorder.trace.initial[recorder.ref(mean).storage]
    assert not first.any()
