"""In which dtype eager's kernels read a scalar: what they say, and what a replay makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from fuzzer.rounding.floors import FACTOR
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.replay import Replay
from fuzzer.rounding.scalars import eager_reading
from tests.rounding.modelled import modelled
from tests.rounding.recorded import recorded

BF16 = torch.bfloat16
# the numbers of bfloat16 next to 0.3 and 0.7, one above and one below
BESIDE = torch.tensor([0.30078125, 0.69921875, -0.30078125, -0.69921875], dtype=BF16)


def differentiated(f: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        leaf = x.detach().requires_grad_()
        out = f(leaf)
        return [out.detach(), *torch.autograd.grad(out, leaf, torch.ones_like(out))]

    return run


DECIDES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 0.3),
    "clamp": lambda x: x.clamp(-0.3, 0.7),
    "threshold": lambda x: F.threshold(x, 0.3, 0.7),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "softshrink": lambda x: F.softshrink(x, 0.7),
}


@pytest.mark.parametrize("name", DECIDES)
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_at_a_scalar_that_the_dtype_does_not_hold_eagers_gradient_alone_is_legal(name: str, dtype: torch.dtype) -> None:
    beside = torch.tensor([0.3, 0.7, -0.3, -0.7], dtype=dtype)
    x = torch.cat([beside, torch.nextafter(beside, beside + 1), torch.nextafter(beside, beside - 1)])
    model, (_, gradient) = modelled(differentiated(DECIDES[name]), x)
    assert torch.equal(model.reference[1], gradient.double())
    assert not bool(model.spread(32).floors(2.0)[1].any())


def test_a_scalar_that_only_rounds_may_still_be_read_either_way() -> None:
    model, _ = modelled(lambda x: [x * 0.3], BESIDE)
    assert bool((model.spread(8).deviation[0] > 0).all())


def readings(f: Callable[[torch.Tensor], torch.Tensor], value: float, devices: tuple[str, ...]) -> set[object]:
    trace, _, _ = recorded(lambda x: [f(x)], BESIDE)
    return {eager_reading(step, value, BF16, devices) for step in trace.steps if kernel(step).decides}


def test_what_makes_no_difference_or_cannot_be_asked_is_not_told() -> None:
    assert readings(lambda x: x <= 0.5, 0.5, ("cpu",)) == {None}
    assert readings(lambda x: x <= 0.3, 0.3, ("cpu",)) == {BF16}
    assert readings(lambda x: x <= 0.3, 0.3, ("cpu", "meta")) == {None}


def test_a_replay_without_perturbation_reads_the_scalar_as_eager_did() -> None:
    trace, refs, (eager,) = recorded(lambda x: [x <= 0.3], BESIDE)
    assert torch.equal(Replay(trace).run().value(refs[0]), eager)


@pytest.mark.parametrize("f", [lambda x: x.logit(1e-3), lambda x: x.clone().logit_(1e-3)])
def test_a_limit_of_logit_that_rounds_to_one_may_be_one_or_not(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.tensor([0.5, 1.0, 2.0], dtype=BF16)
    model, (value, gradient) = modelled(differentiated(f), x)
    assert torch.isinf(torch.stack([value, gradient])).tolist() == [[False, True, True], [False, True, False]]
    assert torch.isfinite(torch.stack(model.reference)).all()
    unstable = torch.stack(model.spread(32).unstable)
    assert unstable.tolist() == [[False, True, True], [False, True, False]]


def test_a_limit_of_logit_that_the_dtype_holds_is_finite_on_both_sides() -> None:
    model, (value, _) = modelled(differentiated(lambda x: x.logit(0.25)), torch.tensor([0.5, 1.0, 2.0], dtype=BF16))
    assert torch.isfinite(value).all()
    assert not torch.stack(model.spread(32).unstable).any()


@pytest.mark.parametrize(("scalar", "rounds"), [(-1.4, True), (0.5, False)])
@pytest.mark.parametrize("scaled", [lambda x, by: x * by, lambda x, by: x / by])
def test_a_scalar_that_float32_rounds_is_rounding_where_the_result_shows_none(
    scaled: Callable[[torch.Tensor, float], torch.Tensor], scalar: float, rounds: bool
) -> None:
    """Code that goes on in float64 multiplies by what float32 would have rounded."""
    ones = torch.ones(3)
    model, _ = modelled(lambda x: [scaled(x, scalar).double()], ones)
    exact = scaled(ones.double(), scalar)
    off = (exact - model.reference[0]).abs()
    assert bool((off > 0).all()) is rounds
    assert bool((off <= model.spread(8).floors(FACTOR)[0]).all())
