"""Derivatives from a forward's values alone, against closed forms and eager's own float64 gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from fuzzer.language.values import real_parts
from fuzzer.rounding.derivative import Forward, Slope, direction, needed, read, settled
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.trace import Trace

CPU = torch.device("cpu")
Run = Callable[..., torch.Tensor]
Closed = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Case:
    """A function recorded with its gradient, and what it was given."""

    forward: Forward
    trace: Trace
    leaves: list[torch.Tensor]
    cotangent: torch.Tensor
    gradients: tuple[torch.Tensor, ...]

    def slope(self, along: torch.Tensor, leaf: int = 0) -> tuple[Slope, float]:
        """The slope along the signs of a direction in a leaf, and what the recorded gradient says of it."""
        ref = self.trace.given[f"x{leaf}"]
        d = direction(self.trace, ref, along)
        seen = self.gradients[leaf]
        seen = real_parts(seen)
        return self.forward.slope(d), float((seen.double() * read(self.trace, d, ref)).sum())


def recorded(run: Run, *leaves: torch.Tensor, cotangent: torch.Tensor | None = None) -> Case:
    given = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    out = run(*given)
    seed = drawn(out.shape, 9).to(out.dtype) if cotangent is None else cotangent
    recorder = Recorder()
    recorder.given("leaf", {f"x{i}": leaf for i, leaf in enumerate(given)})
    recorder.given("cotangent", {"c0": seed})
    with recorder:
        out = run(*given)
        gradients = torch.autograd.grad(out, given, seed)
    trace = recorder.trace
    return Case(Forward(trace, [(recorder.ref(out), trace.given["c0"])], CPU), trace, given, seed, gradients)


def drawn(shape: tuple[int, ...], seed: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    """Uniform in low..high."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


# ---------------------------------------------------------------- closed forms


def normal_density(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def normal_distribution(x: torch.Tensor) -> torch.Tensor:
    return (1 + torch.erf(x / math.sqrt(2))) / 2


def p(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def s(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


def others(x: torch.Tensor) -> torch.Tensor:
    """Of each element, the product of the others of its row."""
    return torch.stack([torch.cat([x[:, :i], x[:, i + 1 :]], 1).prod(1) for i in range(x.shape[1])], 1)


def from_here(c: torch.Tensor) -> torch.Tensor:
    """Sums of c from each place to the end of its row."""
    return torch.stack([c[:, i:].sum(1) for i in range(c.shape[1])], 1)


def layer_norm_gradient(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    deviation = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    n = (x - x.mean(-1, keepdim=True)) / deviation
    return (c - c.mean(-1, keepdim=True) - n * (c * n).mean(-1, keepdim=True)) / deviation


def variance_gradient(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return c[:, None] * 2 * (x - x.mean(-1, keepdim=True)) / (x.shape[-1] - 1)


B = drawn((4, 2), 3)
# name: the function, its gradient by hand from (x, cotangent), the range of x. Found with pencil and paper
# from each function's definition in torch's documentation.
CLOSED: dict[str, tuple[Run, Closed, tuple[float, float]]] = {
    "relu": (torch.relu, lambda x, c: c * (x > 0), (-2, 2)),
    "sigmoid": (torch.sigmoid, lambda x, c: c * s(x) * (1 - s(x)), (-2, 2)),
    "tanh": (torch.tanh, lambda x, c: c * (1 - torch.tanh(x) ** 2), (-2, 2)),
    "softplus": (F.softplus, lambda x, c: c * s(x), (-2, 2)),
    "gelu": (F.gelu, lambda x, c: c * (normal_distribution(x) + x * normal_density(x)), (-2, 2)),
    "silu": (F.silu, lambda x, c: c * s(x) * (1 + x * (1 - s(x))), (-2, 2)),
    "elu": (F.elu, lambda x, c: c * torch.where(x > 0, 1.0, torch.exp(x)), (-2, 2)),
    "leaky_relu": (F.leaky_relu, lambda x, c: c * ((x > 0) + 0.01 * (x < 0).double()), (-2, 2)),
    "softmax": (lambda x: x.softmax(-1), lambda x, c: p(x) * (c - (c * p(x)).sum(-1, keepdim=True)), (-2, 2)),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x, c: c - p(x) * c.sum(-1, keepdim=True), (-2, 2)),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda x, c: c[:, None] * p(x), (-2, 2)),
    "exp": (torch.exp, lambda x, c: c * torch.exp(x), (-2, 2)),
    "expm1": (torch.expm1, lambda x, c: c * torch.exp(x), (-1e-3, 1e-3)),
    "log": (torch.log, lambda x, c: c / x, (0.1, 4)),
    "log1p": (torch.log1p, lambda x, c: c / (1 + x), (-0.5, 4)),
    "sqrt": (torch.sqrt, lambda x, c: c / (2 * torch.sqrt(x)), (0.1, 4)),
    "rsqrt": (torch.rsqrt, lambda x, c: -c / (2 * x * torch.sqrt(x)), (0.1, 4)),
    "reciprocal": (torch.reciprocal, lambda x, c: -c / x**2, (0.1, 4)),
    "pow": (lambda x: x**2.5, lambda x, c: 2.5 * c * x * torch.sqrt(x), (0.1, 4)),
    "sin": (torch.sin, lambda x, c: c * torch.cos(x), (-9, 9)),
    "cos": (torch.cos, lambda x, c: -c * torch.sin(x), (-9, 9)),
    "atan": (torch.atan, lambda x, c: c / (1 + x * x), (-9, 9)),
    "erf": (torch.erf, lambda x, c: c * 2 / math.sqrt(math.pi) * torch.exp(-x * x), (-2, 2)),
    "abs": (torch.abs, lambda x, c: c * torch.sign(x), (-2, 2)),
    "clamp": (lambda x: x.clamp(-1, 1), lambda x, c: c * (x.abs() < 1), (-2, 2)),
    "mean": (lambda x: x.mean(-1), lambda x, c: (c[:, None] / x.shape[-1]).expand_as(x), (-2, 2)),
    "var": (lambda x: x.var(-1), variance_gradient, (-2, 2)),
    "norm": (lambda x: x.norm(dim=-1), lambda x, c: c[:, None] * x / (x * x).sum(-1, keepdim=True).sqrt(), (-2, 2)),
    "prod": (lambda x: x.prod(-1), lambda x, c: c[:, None] * others(x), (-2, 2)),
    "amax": (lambda x: x.amax(-1), lambda x, c: c[:, None] * (x == x.amax(-1, keepdim=True)), (-2, 2)),
    "cumsum": (lambda x: x.cumsum(-1), lambda x, c: from_here(c), (-2, 2)),
    "cumprod": (lambda x: x.cumprod(-1), lambda x, c: from_here(c * x.cumprod(-1)) / x, (0.1, 2)),
    "matmul": (lambda x: x @ B, lambda x, c: c @ B.T, (-2, 2)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), layer_norm_gradient, (-2, 2)),
}


def agrees(slope: Slope, gradient: float) -> bool:
    return abs(slope.best.value - gradient) <= slope.best.error


@pytest.mark.parametrize("name", CLOSED)
def test_differences_forward_mode_eager_and_the_closed_form_say_the_same(name: str) -> None:
    run, closed, (low, high) = CLOSED[name]
    case = recorded(run, drawn((3, 4), 1, low, high))
    x, c = case.leaves[0].detach(), case.cotangent
    case.gradients = (closed(x, c),)
    assert torch.allclose(case.gradients[0], torch.autograd.grad(run(case.leaves[0]), case.leaves[0], c)[0], 1e-9, 0)
    one = torch.zeros_like(x)
    one[1, 2] = 1.0
    for along in (one, torch.ones_like(x), drawn((3, 4), 5)):
        slope, by_hand = case.slope(along)
        assert slope.smooth
        assert slope.confirmed, "forward-mode AD does not say so"
        assert slope.central.error <= 1e-7 * max(1.0, abs(by_hand))
        assert agrees(slope, by_hand)


@pytest.mark.parametrize("name", CLOSED)
def test_a_wrong_closed_form_is_noticed(name: str) -> None:
    run, closed, (low, high) = CLOSED[name]
    case = recorded(run, drawn((3, 4), 1, low, high))
    right = closed(case.leaves[0].detach(), case.cotangent)
    wrong = right.flatten().clone()
    at = int(wrong.abs().argmax())
    wrong[at] *= 1 + 1e-6
    case.gradients = (wrong.reshape(right.shape),)
    one = torch.zeros_like(wrong)
    one[at] = 1.0
    slope, by_hand = case.slope(one.reshape(right.shape))
    assert not agrees(slope, by_hand)


# ---------------------------------------------------------------- kinks

ZERO, TIED = torch.zeros(1, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
# Functions at a kink, where torch's documentation ("Autograd mechanics", section "Gradients for non-differentiable
# functions") promises the subgradient of least norm of what is convex there, and the like of what is concave.
LEAST: dict[str, tuple[Run, torch.Tensor]] = {
    "relu": (torch.relu, ZERO),
    "abs": (torch.abs, ZERO),
    "relu6": (F.relu6, ZERO),
    "hardtanh": (F.hardtanh, ZERO - 1),
    "hardshrink": (lambda x: (x.abs() - 0.5).relu(), ZERO + 0.5),
    "norm": (lambda x: x.norm(), ZERO),
    "l1_loss": (lambda x: F.l1_loss(x, torch.zeros_like(x)), ZERO),
    "hinge": (lambda x: (1 - x).clamp_min(0).relu(), ZERO + 1.5),
}
# "Both max/min and amax/amin evenly distribute gradients between equal values" (torch.amax, torch.maximum).
EVEN: dict[str, Run] = {
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "maximum": lambda x: torch.maximum(x[0], x[1]),
    "minimum": lambda x: torch.minimum(x[0], x[1]),
}
ONE = torch.ones((), dtype=torch.float64)


@pytest.mark.parametrize("name", LEAST)
def test_at_a_kink_eager_takes_the_subgradient_of_least_norm(name: str) -> None:
    run, x = LEAST[name]
    case = recorded(run, x, cotangent=torch.ones_like(run(x)))
    slope, by_eager = case.slope(torch.ones_like(x))
    low, high = sorted((slope.left.value, slope.right.value))
    assert by_eager == pytest.approx(min(max(0.0, low), high), abs=1e-8)


def test_some_of_them_are_kinks() -> None:
    kinks = [name for name, (run, x) in LEAST.items() if not recorded(run, x).slope(torch.ones_like(x))[0].smooth]
    assert {"relu", "abs", "relu6", "hardtanh", "norm", "l1_loss"} <= set(kinks)


def test_at_its_bounds_clamp_lets_the_gradient_through_which_is_not_the_least_norm() -> None:
    slope, by_eager = recorded(lambda x: x.clamp(0, 1), ZERO, cotangent=torch.ones(1, dtype=torch.float64)).slope(
        ZERO + 1
    )
    assert (round(slope.left.value, 6), round(slope.right.value, 6), by_eager) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("name", EVEN)
def test_among_equal_values_eager_shares_the_gradient_evenly(name: str) -> None:
    case = recorded(EVEN[name], TIED, cotangent=ONE)
    assert case.gradients[0].tolist() == [0.5, 0.5]
    alone, _ = case.slope(torch.tensor([1.0, 0.0]))
    assert sorted((round(alone.left.value, 6), round(alone.right.value, 6))) == [0.0, 1.0]
    together, by_eager = case.slope(torch.ones(2))
    assert together.smooth, "raised together they stay a tie"
    assert agrees(together, by_eager)


def test_the_documentation_says_so() -> None:
    assert "evenly distribute" in " ".join((torch.amax.__doc__ or "").split())


# ---------------------------------------------------------------- the function itself


def test_a_root_at_zero_settles_on_no_derivative() -> None:
    slope, _ = recorded(lambda x: x.abs().sqrt(), ZERO, cotangent=torch.ones(1, dtype=torch.float64)).slope(ZERO + 1)
    assert slope.right.error > abs(slope.right.value)


def test_complex_leaves_views_writes_and_half_precision_are_functions_too() -> None:
    z = torch.complex(drawn((3,), 1), drawn((3,), 2))
    cases = [
        recorded(lambda x: torch.view_as_real(x * x), z),
        recorded(lambda x: x.conj().abs(), z),
        recorded(lambda x: x.clone().mul_(3).exp_()[1:].sum(), drawn((3,), 4)),
        recorded(lambda x: x.T[1].sin(), drawn((3, 2), 4)),
        recorded(lambda x: (x.half() * 2).sin(), drawn((3,), 4).float(), cotangent=torch.ones(3).half()),
    ]
    for case in cases:
        slope, by_eager = case.slope(torch.ones_like(case.leaves[0]))
        assert slope.confirmed
        rough = 0.0 if case.leaves[0].dtype in (torch.float64, torch.complex128) else 1e-2 * abs(by_eager)
        assert abs(slope.best.value - by_eager) <= slope.best.error + rough


def test_elements_that_share_memory_move_together() -> None:
    x = torch.tensor([2.0], dtype=torch.float64).expand(3)
    recorder = Recorder()
    recorder.given("leaf", {"x0": x})
    d = direction(recorder.trace, recorder.trace.given["x0"], torch.tensor([1.0, 1.0, -1.0]))
    assert read(recorder.trace, d, recorder.trace.given["x0"]).tolist() == [2.0, 2.0, 2.0]


def test_the_backward_is_not_replayed() -> None:
    case = recorded(torch.tanh, drawn((3,), 1))
    assert [step.name for step in case.trace.steps] == ["tanh", "tanh_backward"]
    assert [step.name for step in case.forward.trace.steps] == ["tanh"]
    assert needed(case.trace, []) == []


def test_quotients_that_contradict_each_other_do_not_settle() -> None:
    assert settled([float(i % 2) for i in range(13)], (2, 4), 0.0).error >= 0.5
    assert settled([math.nan] * 13, (2, 4), 0.0).error == math.inf
    assert settled([3.0] * 13, (1, 2), 0.0) == settled([3.0] * 13, (2, 4), 0.0)


def test_what_is_written_in_place_leaves_the_direction_as_it_was() -> None:
    """The tangent of a copy that forward-mode AD takes for a view is written, too."""
    case = recorded(lambda x: torch.Tensor.sinc_(torch.view_copy(x, ())), torch.tensor(1.0))
    along = direction(case.trace, case.trace.given["x0"], torch.tensor(1.0))
    before = along[case.trace.given["x0"].storage].clone()
    slopes = [case.forward.slope(along) for _ in range(2)]
    assert torch.equal(along[case.trace.given["x0"].storage], before)
    assert all(agrees(slope, float(case.gradients[0])) for slope in slopes)
