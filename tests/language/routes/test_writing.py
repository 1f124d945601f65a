"""What the routes' scripts share: the function, its inputs and its results as a person would write them."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.language.routes.writing import (
    WIDTH,
    compiled_f,
    input_names,
    write_function,
    write_into_grad,
    write_results,
)
from fuzzer.language.text import parse

PROGRAM = parse(
    'program(1)\nroute("autograd")\nx0 = leaf(f32[4], seed=1)\nx1 = leaf(f32[4], requires_grad=False, seed=2)\n'
    "v0 = mul(x0, x1)\nv1 = relu(v0)\nreturns(v0)\nbackward(v1, cotangent(f32[4], seed=3))\n"
)


def test_the_function_is_of_the_leaves_and_inputs_are_leaves_then_cotangents() -> None:
    assert input_names(PROGRAM) == ["x0", "x1", "c0"]
    lines = write_function(PROGRAM)
    assert lines[0] == "def f(x0, x1):"
    assert lines[-1] == "    return v0, v1"
    one = write_function(replace(PROGRAM, outputs=PROGRAM.outputs[1:]))
    assert one[-1].startswith("    return ")
    assert "relu" in one[-1], "one output is returned where it is computed"


def test_the_function_computes_what_the_program_says() -> None:
    import torch

    space: dict[str, object] = {"torch": torch, "F": torch.nn.functional}
    exec("\n".join(write_function(PROGRAM)), space)
    x, y = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0])
    product, positive = space["f"](x, y)  # type: ignore[operator]
    assert product.tolist() == [3.0, -8.0]
    assert positive.tolist() == [3.0, 0.0]


def test_results_stand_by_name_and_on_lines_of_their_own_where_they_are_many() -> None:
    assert write_results(PROGRAM, ["x0"]) == '{"v0": v0, "v1": v1, "x0.grad": g0}'
    many = write_results(PROGRAM, [f"x{n}" for n in range(20)])
    assert len(many.splitlines()) == 24
    assert all(len(line) < WIDTH for line in many.splitlines())


def test_gradients_that_lie_in_grad_are_read_there() -> None:
    lines = write_into_grad(PROGRAM, "gradients", lambda forward, backward: [*forward, backward])
    assert lines == [
        "def gradients(f, x0, x1, c0):",
        "    v0, v1 = f(x0, x1)",
        "    torch.autograd.backward([v1], [c0])",
        "    g0 = x0.grad",
        '    return {"v0": v0, "v1": v1, "x0.grad": g0}',
    ]


def test_only_one_side_is_compiled() -> None:
    assert compiled_f(PROGRAM, None) == "f"
    assert compiled_f(PROGRAM, ", fullgraph=True") == "torch.compile(f, fullgraph=True)"
