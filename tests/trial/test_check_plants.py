"""Code that is wrong only under the compiler, in small modules, is heard by `check`; the same modules without it agree,
and are left as they were."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backfuzz
from fuzzer.language.private import replaced_decomposition

# The plants are gross: what is asked here is that they are heard, and by which name.
pytestmark = pytest.mark.usefixtures("fewer_replicas")


# ---------------------------------------------------------------- three modules, each with a place for a part


class Perceptron(nn.Module):
    def __init__(self, part: nn.Module):
        super().__init__()
        self.first, self.part, self.last = nn.Linear(6, 5), part, nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.part(self.first(x)))


class Convolutional(nn.Module):
    def __init__(self, part: nn.Module):
        super().__init__()
        self.first, self.norm, self.part = nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), part
        self.last = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.part(self.norm(self.first(x))).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, part: nn.Module):
        super().__init__()
        self.first, self.part, self.last = nn.Linear(4, 12), part, nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.first(x).chunk(3, dim=-1)
        return self.last(self.part(F.scaled_dot_product_attention(queries, keys, values)))


HOSTS: dict[Callable[[nn.Module], nn.Module], tuple[int, ...]] = {  # shape of the input; the part meets 5 channels
    Perceptron: (7, 6),
    Convolutional: (3, 2, 5, 5),
    Attention: (2, 5, 4),
}

# ---------------------------------------------------------------- parts, each with a plant or without


class Silu(nn.Module):
    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return F.silu(h * 2, inplace=self.inplace)


def silu_gradient(slope: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The gradient of silu; wrong where slope is not 1."""

    def gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        s = torch.sigmoid(x)
        return grad * s * (1 + slope * x * (1 - s))

    return gradient


def silu_decomposed(slope: float) -> AbstractContextManager[None]:
    return replaced_decomposition(torch.ops.aten.silu_backward.default, silu_gradient(slope))


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(h)
        ctx.factor = factor
        return h.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (h,) = ctx.saved_tensors
        factor = ctx.factor if torch.compiler.is_compiling() else 1.0
        return grad * (h.abs() <= 1) * factor, None


class Clipped(nn.Module):
    """A custom Function whose backward is times a factor under the compiler."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return _Clipped.apply(h, self.factor)


class Branching(nn.Module):
    """Under the compiler a share of the gradient is cut; the values stay."""

    def __init__(self, cut: float):
        super().__init__()
        self.cut = cut

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return self.cut * h.detach().tanh() + (1 - self.cut) * h.tanh()
        return h.tanh()


class Counting(nn.Module):
    """Running mean squares of the channels (dimension 1), with another momentum under the compiler."""

    def __init__(self, momentum: float):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("running", torch.zeros(5))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        momentum = self.momentum if torch.compiler.is_compiling() else 0.25
        with torch.no_grad():
            self.running.lerp_(h.square().transpose(0, 1).flatten(1).mean(1), momentum)
        return h.tanh()


@torch.jit.script
def gated(h: torch.Tensor) -> torch.Tensor:
    return h * torch.sigmoid(h)


class Scripted(nn.Module):
    """A callee of torch.jit, whose result may lose its gradient under the compiler."""

    def __init__(self, dropped: bool):
        super().__init__()
        self.dropped = dropped

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        made = gated(h)
        return made.detach() if self.dropped and torch.compiler.is_compiling() else made


@dataclass(frozen=True)
class Plant:
    """A part with a plant, the same without it, and what is in force while either runs.

    buffer  the plant is in what this tensor of the part holds afterwards, else in the gradients before the part.
    backends  that have it: one that builds code, for the smallest module alone, and the last, which builds none.
    hosts  the modules that it stands in.
    """

    planted: Callable[[], nn.Module]
    sound: Callable[[], nn.Module]
    force: tuple[Callable[[], AbstractContextManager[None]], ...] = (contextlib.nullcontext,) * 2
    buffer: str = ""
    backends: tuple[str, ...] = ("aot_eager",)
    hosts: tuple[Callable[[nn.Module], nn.Module], ...] = (Perceptron, Convolutional)


_DECOMPOSED = (lambda: silu_decomposed(0.5), lambda: silu_decomposed(1.0))
_LOWERED = ("aot_eager_decomp_partition",)
_ELSEWHERE = (Perceptron, Attention)
# each in two modules, and each module has three of them at least; one has its code built
PLANTS = {
    "silu": Plant(Silu, Silu, _DECOMPOSED, backends=_LOWERED),
    "silu in place": Plant(lambda: Silu(True), lambda: Silu(True), _DECOMPOSED, "", _LOWERED, _ELSEWHERE),
    "custom Function": Plant(lambda: Clipped(1.25), lambda: Clipped(1.0), hosts=_ELSEWHERE),
    "branch": Plant(lambda: Branching(0.25), lambda: Branching(0.0)),
    "buffer": Plant(lambda: Counting(0.5), lambda: Counting(0.25), buffer="part.running"),
    "jit callee": Plant(
        lambda: Scripted(True), lambda: Scripted(False), backends=("inductor", "aot_eager"), hosts=_ELSEWHERE
    ),
}
CASES = [
    pytest.param(plant, host, backend, id=f"{name}-{host.__name__}-{backend}", marks=marks)
    for name, plant in PLANTS.items()
    for host in plant.hosts
    for backend in (plant.backends if host is Perceptron else plant.backends[-1:])
    for marks in [[pytest.mark.slow] if backend == "inductor" or host is not Perceptron else []]
]


def made(host: Callable[[nn.Module], nn.Module], part: Callable[[], nn.Module]) -> tuple[nn.Module, torch.Tensor]:
    """A module in training mode and its input."""
    torch.manual_seed(3)
    return host(part()), torch.randn(HOSTS[host])


def everything(module: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """The author's things, in a form that `==` compares to the bit; a tensor also by its identity."""

    def told(tensor: torch.Tensor | None) -> Any:
        return None if tensor is None else (id(tensor), tensor.detach().numpy().tobytes())

    return {
        "parameters": {name: (told(p), told(p.grad), p.requires_grad) for name, p in module.named_parameters()},
        "buffers": {name: told(b) for name, b in module.named_buffers()},
        "training": {name: m.training for name, m in module.named_modules()},
        "attributes": {name: sorted(vars(m)) for name, m in module.named_modules()},
        "input": (told(x), told(x.grad), x.requires_grad),
        "random": (torch.get_rng_state().numpy().tobytes(), random.getstate()),
        "gradients are recorded": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize(("plant", "host", "backend"), CASES)
def test_a_plant_is_heard_by_the_name_of_a_tensor_that_it_spoils(plant: Plant, host: Any, backend: str) -> None:
    module, x = made(host, plant.planted)
    before_part = [name for name, _ in module.named_parameters() if not name.startswith("last.")]
    before = everything(module, x)
    with plant.force[0]():
        told = backfuzz.check(module, x, backend=backend)
    assert everything(module, x) == before
    spoilt = [plant.buffer] if plant.buffer else [f"{name}.grad" for name in before_part]
    assert told.signature.verdict == "wrong"
    assert f"in part ({type(module.part).__name__}) alone: " in told.detail
    assert told.detail.startswith(tuple(f"{name}[" for name in spoilt) + tuple(f"{name} " for name in spoilt))


@pytest.mark.parametrize(("plant", "host", "backend"), CASES)
def test_without_the_plant_the_same_module_agrees(plant: Plant, host: Any, backend: str) -> None:
    module, x = made(host, plant.sound)
    first = next(module.parameters())
    first.grad = torch.ones_like(first)
    before = everything(module, x)
    with plant.force[1]():
        told = backfuzz.check(module, x, backend=backend)
    assert told.agrees, told
    assert everything(module, x) == before


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("plant", "host"),
    [
        ("buffer", Perceptron),
        ("custom Function", Perceptron),
        pytest.param("buffer", Convolutional, marks=pytest.mark.slow),
        pytest.param("custom Function", Attention, marks=pytest.mark.slow),
    ],
)
def test_a_module_that_is_not_in_training_is_left_as_it_was(plant: str, host: Any, sound: bool) -> None:
    module, x = made(host, PLANTS[plant].sound if sound else PLANTS[plant].planted)
    module.eval()
    first = next(module.parameters())
    first.grad = torch.ones_like(first)
    before = everything(module, x)
    assert backfuzz.check(module, x, backend="aot_eager").agrees == sound
    assert everything(module, x) == before


def test_a_module_that_cannot_be_judged_is_left_as_it_was_too() -> None:
    module, x = made(Perceptron, lambda: nn.Sequential(Counting(0.25), nn.Linear(4, 4)))
    first = next(module.parameters())
    first.grad = torch.ones_like(first)
    before = everything(module, x)
    with pytest.raises(backfuzz.Uncheckable, match="raises in eager, in the forward: RuntimeError"):
        backfuzz.check(module, x, backend="aot_eager")
    assert everything(module, x) == before
