"""Transcripts compared with their functions, bit by bit; and the functions' own tensors afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import pytest
import torch
from torch.nn import functional as F

from fuzzer.language import interpret
from fuzzer.language import transcribe as module
from fuzzer.language.program import substitute_node
from fuzzer.language.routes.writing import write_function
from fuzzer.language.text import show
from fuzzer.language.transcribe import Inexpressible, transcribe
from tests.drawn import drawn

X = torch.rand(2, 3)


@torch.jit.script
def in_a_script(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def out_of_sight(x: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        y = x.sin()
    return y * x


class Counting(torch.nn.Module):
    """A module that writes to a buffer, and draws."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.detach().sum(0)
        self.kept.copy_(x.sum(0) * random.choice([1.0]) * numpy.random.choice([1.0]))
        return F.dropout(x * self.weight) + self.kept


HIDDEN: dict[str, tuple[Callable[..., Any], str]] = {
    "a script": (in_a_script, "f32[2, 3], which no call in sight made"),
    "a script's result": (lambda x: in_a_script(x) * x, "f32[2, 3], which no call in sight made"),
    "no torch functions": (out_of_sight, "f32[2, 3], which no call in sight made"),
    "a seed": (lambda x: (torch.manual_seed(1), F.dropout(x))[1], "output 0: "),
    "a history": (lambda x: x * HISTORY, "f32[3], which no call in sight made"),
    "no derivative": (lambda x: x * (x // 0.3), "a function whose backward raises RuntimeError: derivative for"),
}
HISTORY = torch.rand(3, requires_grad=True) * 2


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_transcript_would_hide_is_refused(name: str) -> None:
    function, word = HIDDEN[name]
    with pytest.raises(Inexpressible) as caught:
        transcribe(function, (X.clone(),))
    assert word in str(caught.value)


def lost_write(x: torch.Tensor) -> torch.Tensor:
    BUFFER.add_(1.0)
    return x * 2


BUFFER = torch.zeros(3)


@pytest.mark.parametrize(
    ("function", "op", "planted_op", "told"),
    [
        (lambda x: x.sin() * x, "sin", "cos", "output 0: 6 of 6 elements differ from the transcript's"),
        (lambda x: x * x.detach(), "detach", "clone", "the gradient of x0: 6 of 6 elements differ"),
        (lost_write, "add_scalar_", "add_scalar", "what x1 holds afterwards: 3 of 3 elements differ"),
        (lambda x: (x * 1.5, x.double()), "double", "cos", "output 1: f64[2, 3] of strides (3, 1) with a gradient, in"),
    ],
)
def test_a_transcript_that_differs_is_refused_with_the_first_result(
    function: Callable[..., Any], op: str, planted_op: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the program has another op."""
    as_said = module.to_function

    def planted(program: Any) -> Callable[..., Any]:
        (node,) = [node for node in program.nodes if node.op == op]
        return as_said(replace(program, body=substitute_node(program.body, node, replace(node, op=planted_op))))

    monkeypatch.setattr(module, "to_function", planted)
    with pytest.raises(Inexpressible) as caught:
        transcribe(function, (X.clone(),))
    assert told in str(caught.value)


def test_a_function_leaves_everything_as_it_was() -> None:
    net, x = Counting(), X.clone()
    net.weight.grad = torch.ones(3)
    held, version = x.clone(), net.weight.grad
    states = [torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()]  # type: ignore[index]
    text = show(transcribe(net, (x,)).program)
    assert "x2 = leaf(f32[3], requires_grad=False, values=data([0.0, 0.0, 0.0]))" in text
    assert not net.seen.any()
    assert not net.kept.any()
    assert net.kept.grad_fn is None
    assert net.weight.grad is version
    assert torch.equal(net.weight, torch.ones(3))
    assert torch.equal(x, held)
    assert not x.requires_grad
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert numpy.random.get_state()[1].tolist() == states[2]  # type: ignore[index]


def test_an_input_that_is_written_has_no_gradient_and_the_others_have() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2.0)
        return x * y

    x, y = X.clone(), X.clone()
    program = transcribe(function, (x, y)).program
    assert [leaf.requires_grad for leaf in program.leaves] == [True, False]
    assert torch.equal(y, X)


def test_values_are_compared_before_they_are_replaced() -> None:
    many = torch.rand(200)
    made = transcribe(lambda x: x.sort()[0], (many,))
    assert made.drawn == ("x0",)


@dataclass
class Answer:
    first: torch.Tensor
    count: int


def test_results_in_dicts_and_dataclasses_count_and_one_returned_twice_counts_once() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return {"a": Answer(y, 3), "b": [y, (x.cos(), None)]}

    assert [output.value for output in transcribe(function, (X.clone(),)).program.outputs] == ["v0", "v1"]


def test_a_write_to_an_input_with_a_history_is_refused() -> None:
    with pytest.raises(Inexpressible, match="an input with a history"):
        transcribe(lambda x: x.mul_(2.0), (X.clone().requires_grad_() * 2,))


def test_what_a_function_raises_comes_through() -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        transcribe(lambda x: x + torch.ones(5), (X.clone(),))


def transcribed(seeds: Sequence[int]) -> tuple[int, list[str]]:
    """How many of the programs drawn from these seeds, written as Python functions, become programs; and why the others
    are refused. AssertionError where a result is not the function's, bit by bit."""
    identical, refused = 0, list[str]()
    for program in drawn(seeds):
        space: dict[str, Any] = {"torch": torch, "F": F, "inf": float("inf"), "nan": float("nan")}
        exec("\n".join(write_function(program)), space)
        try:
            found = transcribe(space["f"], list(interpret.materialise(program.leaves).values())).program
        except Inexpressible as error:
            refused += error.calls[:1]
            continue
        needs = {leaf.name for leaf in found.leaves if leaf.requires_grad}
        given = [replace(leaf, requires_grad=f"x{i}" in needs) for i, leaf in enumerate(program.leaves)]
        own = results(space["f"], [*interpret.materialise(given).values()])
        rest = [*interpret.materialise(found.leaves).values()][len(given) :]
        said = results(interpret.to_function(found), [*interpret.materialise(given).values(), *rest])
        assert own == said[: len(own)], show(program)
        identical += 1
    return identical, refused


def results(function: Callable[..., Any], leaves: list[torch.Tensor]) -> list[Any]:
    """The bits of the outputs, of the gradients of the leaves and of what these hold afterwards."""
    torch.manual_seed(0)
    returned = function(*leaves)
    outputs = {id(t): t for t in (returned if isinstance(returned, tuple) else (returned,))}.values()
    held = [t.detach().clone() for t in outputs]
    seeded, wanted = [t for t in outputs if t.requires_grad], [t for t in leaves if t.requires_grad]
    grads = torch.autograd.grad(seeded, wanted, [torch.ones_like(t) for t in seeded], allow_unused=True)
    bits = [None if t is None else t.detach().resolve_conj().numpy(force=True).tobytes() if t.dtype != torch.bfloat16
            else t.view(torch.int16).numpy(force=True).tobytes() for t in (*held, *grads, *leaves)]  # fmt: skip
    return bits


def test_generated_programs_as_functions_are_identical_or_refused() -> None:
    """No other exception, and not most of them refused."""
    identical, refused = transcribed(range(20))
    assert identical >= 10, refused
