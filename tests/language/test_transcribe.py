"""A function's torch calls as a program: the same program back, and all that cannot be said by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fuzzer.language import interpret
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import NORMAL, Node, Output, Program, Route, canonical
from fuzzer.language.text import parse, show
from fuzzer.language.transcribe import Inexpressible, recipe_of, transcribe
from tests.drawn import drawn

SEEDS = Path(__file__).parents[2] / "corpus" / "seeds"


def body(program: Program) -> str:
    """The program's text without how its leaves are filled, what is differentiated and how it runs."""
    leaves = tuple(replace(leaf, values=NORMAL, seed=0) for leaf in program.leaves)
    outputs = tuple(Output(o.value) for o in program.outputs)
    return show(replace(program, leaves=leaves, outputs=outputs, route=Route(), settings=(), comment=()))


# Written with these, a program comes back as the calls that they are made of.
TAKEN_APART = {
    spec.name
    for spec in OPS.values()
    if spec.then or spec.source.startswith(("torch.masked.", "torch.nn.functional.upsample", "torch.Tensor.__"))
}


def drawn_programs(wanted: int) -> list[Program]:
    """Generated programs without what a transcript does not see: regions, functions that are made of other calls."""
    found = drawn(range(2 * wanted), limits=Limits(max_nodes=4))
    seen = [p for p in found if all(isinstance(s, Node) and s.op not in TAKEN_APART for s in p.body)]
    assert len(seen) >= wanted
    return [canonical(program) for program in seen[:wanted]]


def comes_back(program: Program) -> bool:
    leaves = interpret.materialise(program.leaves)
    try:
        found = transcribe(interpret.to_function(program), list(leaves.values())).program
    except Inexpressible:
        return False
    return body(found) == body(program)


def test_generated_programs_written_as_python_come_back() -> None:
    lost = [show(program) for program in drawn_programs(20) if not comes_back(program)]
    # a call may be another op's as well (norm with p="nuc"), and a table may learn ops that are made of other calls
    assert len(lost) <= 1, "\n".join(lost)


REPROS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "slice_scatter_sum": (
        lambda x, y: torch.slice_scatter(x, y, dim=1, start=0, end=6).sum(dim=1),
        ((4, 13, 33), (4, 6, 33)),
    ),
    "slice_scatter_sum_even": (lambda x, y: torch.slice_scatter(x, y, 1, end=4).sum(1), ((2, 8, 16), (2, 4, 16))),
    "slice_scatter_sum_middle": (lambda x, y: x.slice_scatter(y, 1, 5, 12).sum(1), ((3, 20, 7), (3, 7, 7))),
}


@pytest.mark.parametrize("name", REPROS)
def test_a_reported_repro_becomes_the_seed_program(name: str) -> None:
    function, shapes = REPROS[name]
    made = transcribe(function, [torch.randn(shape, requires_grad=True) for shape in shapes])
    seed = parse((SEEDS / f"{name}.prog").read_text())
    assert show(made.program) == show(replace(seed, comment=()))
    assert made.drawn == ("x0", "x1")


def test_a_model_brings_its_parameters_and_numbers_become_attributes_or_leaves() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))

    def step(x: torch.Tensor, index: torch.Tensor) -> Any:
        y = net(x) * 2.0 / 3
        best, where = y.max(dim=1)
        return F.interpolate(y[None, None], scale_factor=2.0), best.index_select(0, index), where

    made = transcribe(step, (torch.randn(6, 8), torch.tensor([1, 2, 2])))
    found, text = made.program, show(made.program)
    for line in (
        "x1 = leaf(i64[3], values=data([1, 2, 2]))",
        "v0 = linear(x0, x2, x3)",
        "v2 = layer_norm(v1, x4, x5, normalized_shape=(4,))",
        "v3 = mul_scalar(v2, other=2.0)",
        "x6 = leaf(f32[()], requires_grad=False, values=data([3.0]))",
        "v4 = div(v3, x6)",
        "v5, v6 = max(v4, dim=1)",
        "interpolate_nearest(v8, scale_factor=2.0)",
        "returns(v6)",
    ):
        assert line in text
    assert not made.drawn
    assert made.constants == ("x6 (3)",)
    outputs = interpret.to_function(found)(*interpret.materialise(found.leaves).values())
    torch.manual_seed(0)
    assert outputs[0].shape == (1, 1, 12, 8)


def layouts() -> tuple[torch.Tensor, ...]:
    store = torch.arange(24.0)
    return store.as_strided((2, 3), (8, 2), 3).requires_grad_(), store.as_strided((4,), (1,), 2), torch.ones(3, 1)


def test_leaves_keep_type_layout_sharing_and_values() -> None:
    found = transcribe(lambda a, b, c: a.sum() + b.sum() + c.sum(), layouts()).program
    lines = show(found).splitlines()
    numbers = ", ".join(str(float(3 + 8 * i + 2 * j)) for i in range(2) for j in range(3))
    assert lines[2] == f"x0 = leaf(f32[2, 3], stride=(8, 2), offset=3, values=data([{numbers}]))"
    assert lines[3] == "x1 = leaf_view(x0, f32[4], offset=2, requires_grad=False)"
    assert lines[4] == 'x2 = leaf(f32[3, 1], requires_grad=False, values="ones")'


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_values_are_kept_exactly_or_drawn_from_their_range(dtype: torch.dtype) -> None:
    few, many = (torch.arange(-3, n - 3).to(dtype) for n in (12, 100))
    recipe, exact = recipe_of(few)
    name = {torch.float32: "f32", torch.int64: "i64", torch.bool: "bool"}[dtype]
    assert exact
    assert torch.equal(interpret.fill(recipe, 0, name, (12,)), few)
    recipe, exact = recipe_of(many)
    drawn = interpret.fill(recipe, 5, name, (100,))
    assert not exact
    assert dtype != torch.int64 or (drawn.min() >= -3 and drawn.max() <= 96)


def several(x: torch.Tensor) -> torch.Tensor:
    y = torch.special.bessel_j0(x).abs()
    x[0] = 1.0
    return y * x.sum().item() + y.new_tensor(3.0)


def autocast(x: torch.Tensor) -> torch.Tensor:
    column, row = x[:, None], x[None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(column, row)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gs: torch.Tensor) -> Any:
        return gs[0] / 2


class Passed(Halved):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.sin().cos()
    return y * x


def both(x: torch.Tensor) -> torch.Tensor:
    column, row = x[:, None], x[None]
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        y = torch.mm(column, row)
    return y * x


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.register_hook(lambda g: g / 2)
    return y


MISSING: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "all of it at once": (
        lambda x: several(x.clone()),
        ["special_bessel_j0(f32[4])", "item("],
    ),
    "a call in a region": (
        lambda x: torch.no_grad()(torch.special.bessel_j0)(x) * x,
        ["special_bessel_j0(f32[4]) in no_grad"],
    ),
    "a custom Function": (
        lambda x: Halved.apply(x).sin(),
        ["the backward of the Function Halved"],
    ),
    "a Function that only changes gradients": (
        lambda x: Passed.apply(x).sin(),
        ["the backward of the Function Passed"],
    ),
    "a hook": (hooked, ["register_hook(f32[4]"]),
    "vmap": (lambda x: torch.vmap(torch.sin)(x[None]), ["sin(f32[4]) within torch.func"]),
    "grad": (torch.func.grad(lambda x: x.sin().sum()), ["sin(f32[4]) within torch.func"]),
    "no tensor": (lambda x: 3, ["a function that returns no tensor"]),
    "no gradient": (lambda x: x > 0, ["a function without a differentiable result"]),
}


@pytest.mark.parametrize(("function", "words"), MISSING.values(), ids=MISSING)
def test_what_cannot_be_expressed_is_named_all_of_it(function: Callable[..., Any], words: list[str]) -> None:
    with pytest.raises(Inexpressible) as caught:
        transcribe(function, (torch.rand(4, requires_grad=True),))
    assert len(caught.value.calls) == len(words)
    assert all(any(word in call for call in caught.value.calls) for word in words), caught.value.calls


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        (without_gradients, ["with no_grad():", "    v0 = sin(x0)", "v1 = cos(v0)", "v2 = mul(v1, x0)"]),
        (autocast, ["with autocast(dtype=bf16):", "    v2 = mm(v0, v1)"]),
        (both, ["with autocast(dtype=bf16):", "    with no_grad():", "        v2 = mm(v0, v1)"]),
    ],
)
def test_regions_are_written(function: Callable[..., Any], lines: list[str]) -> None:
    text = show(transcribe(function, (torch.rand(4, requires_grad=True),)).program)
    assert "\n".join(lines) in text


def test_a_function_of_complex_numbers_comes_back() -> None:
    x = torch.complex(torch.ones(3), torch.arange(3.0)).conj().requires_grad_()
    made = transcribe(lambda x: torch.fft.fft(x).abs(), (x,))
    lines = show(made.program).splitlines()
    assert lines[2] == "x0 = leaf(c64[3], conj=True, values=data([1.0, 0.0, 1.0, 1.0, 1.0, 2.0]))"
    assert [node.op for node in made.program.nodes] == ["fft_complex", "abs"]
    assert not made.drawn


def test_constants_that_the_function_makes_are_told_from_its_inputs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.arange(4.0) + torch.ones(4) - torch.Tensor([1, 2, 3, 4]) + torch.arange(4000.0)[-4:]

    made = transcribe(function, (torch.rand(4, requires_grad=True),))
    assert made.constants == ("x1 (arange)", "x2 (made outside torch's calls)", "x3 (arange)")
    assert made.made_inside == (f"Leaves here, made within the function: {', '.join(made.constants)}.",)
    assert [leaf.requires_grad for leaf in made.program.leaves] == [True, False, False, False]
    assert torch.equal(interpret.materialise(made.program.leaves)["x3"], torch.arange(4000.0))
    assert "v1 = new_ones(x0, size=(4,), dtype=f32)" in show(made.program)
