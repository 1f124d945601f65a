"""The evaluator: the Python it writes, and the storage geometry of the tensors it makes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fuzzer.language.errors import UnknownOp
from fuzzer.language.interpret import (
    apply,
    call,
    cotangents,
    line,
    materialise,
    python_value,
    strided,
    to_function,
    to_source,
    value_recipes,
)
from fuzzer.language.ops import OPS
from fuzzer.language.program import Dtype, Node, Value
from fuzzer.language.text import parse
from fuzzer.language.values import fill

HEAD = 'program(1)\nroute("autograd")\n'

VALUES: list[tuple[Value, str]] = [
    (True, "True"),
    (None, "None"),
    (-0.0, "-0.0"),
    (1e-5, "1e-05"),
    (math.inf, 'float("inf")'),
    (-math.inf, 'float("-inf")'),
    ((), "()"),
    ((1,), "(1,)"),
    ((1, (2, 3)), "(1, (2, 3))"),
    ("mean", "'mean'"),
    (Dtype("bf16"), "torch.bfloat16"),
]


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_an_attribute_is_written_as_python_that_gives_it_back(value: Value, expected: str) -> None:
    assert python_value(value) == expected
    back = eval(expected, {"torch": torch})
    assert back == (torch.bfloat16 if isinstance(value, Dtype) else value)


def test_a_nan_is_written_so_that_python_reads_it() -> None:
    assert math.isnan(eval(python_value(math.nan)))


LINES = [
    ("v0 = relu(x0)", "v0 = torch.nn.functional.relu(x0)"),
    ("v0, v1 = topk(x0, k=2)", "v0, v1 = torch.topk(x0, k=2)"),
    ("v0 = cat([x0, x1], dim=-1)", "v0 = torch.cat([x0, x1], dim=-1)"),
]


@pytest.mark.parametrize(("text", "expected"), LINES)
def test_a_node_is_the_torch_call_that_a_person_would_write(text: str, expected: str) -> None:
    program = parse(HEAD + "x0 = leaf(f32[4])\nx1 = leaf(f32[4])\n" + text)
    assert line(program.nodes[0]) == expected


def test_a_program_is_a_function_of_its_leaves_that_returns_its_outputs() -> None:
    program = parse(
        HEAD + "x0 = leaf(f32[3])\nx1 = leaf(f32[3])\nv0 = mul(x0, x1)\nv1 = exp(v0)\n"
        "returns(v0)\nbackward(v1, cotangent(f32[3]))"
    )
    assert to_source(program).splitlines()[0] == "def f(x0, x1):"
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -1.0, 0.0])
    first, second = to_function(program)(a, b)
    assert torch.equal(first, a * b)
    assert torch.equal(second, (a * b).exp())


def test_applying_nodes_one_by_one_gives_what_the_function_gives() -> None:
    program = parse(
        HEAD + "x0 = leaf(f32[3, 4])\nv0, v1 = max(x0, dim=1)\nv2 = sub(v0, v0)\nv3 = cat([v0, v2])\nreturns(v3)"
    )
    env: dict[str, Any] = dict(materialise(program.leaves))
    for node in program.nodes:
        apply(node, env)
    assert torch.equal(env["v3"], to_function(program)(*materialise(program.leaves).values())[0])


def test_an_unknown_op_is_named() -> None:
    with pytest.raises(UnknownOp, match="frobnicate"):
        to_source(parse(HEAD + "x0 = leaf(f32[4])\nv0 = frobnicate(x0)"))


def test_a_result_that_is_no_tensor_is_refused() -> None:
    env: dict[str, Any] = {"x0": torch.ones(4)}
    with pytest.raises(TypeError, match="v0 is a max, not a tensor"):
        apply(Node(("v0",), "max", ("x0",), (("dim", 0),)), env)


def test_an_optional_operand_left_out_is_not_passed() -> None:
    optional = next(s for s in OPS.values() if any(o.keyword for o in s.operands))
    position = next(i for i, o in enumerate(optional.operands) if o.keyword)
    args = tuple("x0" if i != position else None for i in range(position + 1))
    assert f"{optional.operands[position].keyword}=" not in call(Node(("v0",), optional.name, args))


# shape, stride, offset; whether several elements share a place
LAYOUTS = [
    ((), (), 0, False),
    ((3,), (1,), 0, False),
    ((3,), (2,), 5, False),
    ((2, 3), (1, 2), 0, False),
    ((2, 3, 4), (1, 8, 2), 3, False),
    ((0, 3), (3, 1), 1, False),
    ((1, 3), (0, 1), 0, False),
    ((4, 3), (0, 1), 0, True),
    ((4, 3), (1, 0), 2, True),
    ((3, 3), (1, 1), 0, True),
    ((4, 2), (2, 2), 1, True),
    ((2, 2, 2), (0, 0, 0), 0, True),
]


@pytest.mark.parametrize(("shape", "stride", "offset", "overlapping"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["f64", "bf16", "i64", "bool"])
def test_a_leaf_has_exactly_its_declared_geometry(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int, overlapping: bool, dtype: str
) -> None:
    recipe = "coins" if dtype == "bool" else "arange()"
    head = f"x0 = leaf({dtype}[{', '.join(map(str, shape)) or '()'}], stride={stride}, offset={offset}, "
    text = HEAD + head + (f'values="{recipe}")' if recipe == "coins" else f"values={recipe})")
    leaf = parse(text).leaves[0]
    tensor = materialise((leaf,))["x0"]
    assert (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) == (shape, stride, offset)
    assert tensor.is_leaf
    assert tensor.requires_grad == leaf.requires_grad
    wanted = fill(leaf.values, leaf.seed, dtype, shape)
    written: dict[int, Any] = {}
    for index in (
        torch.cartesian_prod(*[torch.arange(n) for n in shape]).reshape(-1, len(shape)).tolist() if shape else [[]]
    ):
        written[offset + sum(i * s for i, s in zip(index, stride, strict=True))] = wanted[tuple(index)].item()
    if 0 not in shape:
        assert overlapping == (len(written) < tensor.numel())
    flat = torch.as_strided(tensor.detach(), (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
    assert flat.tolist() == [written.get(i, 0) for i in range(len(flat))]


def test_room_is_added_behind_a_tensor() -> None:
    assert strided(torch.ones(2, 2), (1, 2), 1, room=40).untyped_storage().nbytes() == 40 * 4


def test_a_view_shares_its_bases_storage_and_is_a_leaf_of_its_own() -> None:
    program = parse(
        HEAD + "x0 = leaf(f32[6], values=arange())\n"
        "x1 = leaf_view(x0, f32[2, 2], stride=(2, 1), offset=1)\nx2 = leaf_view(x1, f32[3], stride=(0,))\n"
        "v0 = mul(x1, x1)\nbackward(v0, cotangent(f32[2, 2]))"
    )
    leaves = materialise(program.leaves)
    assert leaves["x1"].tolist() == [[2, 3], [4, 5]]
    assert len({t.untyped_storage()._cdata for t in leaves.values()}) == 1
    assert all(t.is_leaf and t.requires_grad for t in leaves.values())
    with torch.no_grad():
        leaves["x0"][1] = 9.0
    assert float(leaves["x1"][0, 0].detach()) == 9.0
    gradients = torch.autograd.grad((leaves["x1"] ** 2).sum(), [leaves["x1"], leaves["x0"]], allow_unused=True)
    assert gradients[0].tolist() == [[18, 6], [8, 10]]
    assert gradients[1] is None


def test_every_call_gives_fresh_tensors_of_the_same_bits() -> None:
    leaves = parse(HEAD + "x0 = leaf(f32[64], seed=3)").leaves
    first, second = materialise(leaves)["x0"], materialise(leaves)["x0"]
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


def test_cotangents_come_in_the_order_of_the_outputs_with_their_layouts() -> None:
    program = parse(
        HEAD + "x0 = leaf(f32[2, 3])\nv0 = relu(x0)\nv1 = exp(x0)\nv2 = sin(x0)\n"
        'backward(v0, cotangent(f32[2, 3], stride=(0, 1), values="integers", seed=4))\nreturns(v1)\n'
        "backward(v2, cotangent(f32[2, 3], stride=(1, 2)))"
    )
    first, second = cotangents(program)
    assert (first.stride(), second.stride()) == ((0, 1), (1, 2))
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[1], fill(program.outputs[0].cotangent.values, 4, "f32", (2, 3))[1])


def test_a_property_is_read_an_equation_leads_and_complex_results_are_seen_as_real() -> None:
    assert call(Node(("v0",), "mT", ("x0",))) == "x0.mT"
    equation = (("equation", "ij,jk->ik"),)
    assert call(Node(("v0",), "einsum", ("x0", "x1"), equation)) == "torch.einsum('ij,jk->ik', x0, x1)"
    assert call(Node(("v0",), "fft", ("x0",))) == "torch.view_as_real(torch.resolve_conj(torch.fft.fft(x0)))"


def test_a_program_that_may_overwrite_every_value_runs_and_records_none() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f32[3], values="ones")
v0 = neg(x0)
v1 = expand_as(v0, x0)
v2 = fill_(v1, value=0.1)
returns(v0)
"""
    assert value_recipes(parse(text)) == {}
    with pytest.raises(RuntimeError, match="expand"):
        value_recipes(parse(text.replace("expand_as(v0, x0)", "expand(v0, size=(2,))")))


def test_of_values_that_share_an_element_the_last_one_stands_on_any_number_of_threads() -> None:
    values = torch.randn(5, 12, 640)
    before = torch.get_num_threads()
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            found = strided(values, (1, 0, 0))
            assert torch.equal(found[:, 0, 0], values[:, -1, -1])
    finally:
        torch.set_num_threads(before)
