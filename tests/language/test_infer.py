"""Types are torch's: what it refuses is refused with its reason, and no data is touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, is_fake

from fuzzer.language import private
from fuzzer.language.infer import IllTyped, check_cotangents, infer, type_of
from fuzzer.language.interpret import apply
from fuzzer.language.program import Node, TensorType
from fuzzer.language.text import parse

HEAD = 'program(1)\nroute("autograd")\n'

TYPED = [
    ("x0 = leaf(f32[2, 3])\nv0 = transpose(x0, dim0=0, dim1=1)", "v0", TensorType("f32", (3, 2), (1, 3))),
    ("x0 = leaf(bf16[2, 3])\nx1 = leaf(f32[3])\nv0 = add(x0, x1)", "v0", TensorType("f32", (2, 3), (3, 1))),
    ("x0 = leaf(f32[1, 3])\nv0 = expand(x0, size=(4, 3))", "v0", TensorType("f32", (4, 3), (0, 1))),
    ("x0 = leaf(i64[5], values=below(3))\nv0 = sum(x0)", "v0", TensorType("i64", (), ())),
    (
        "x0 = leaf(f32[6])\nx1 = leaf_view(x0, f32[2, 2], stride=(0, 1), offset=4)",
        "x1",
        TensorType("f32", (2, 2), (0, 1)),
    ),
    ("x0 = leaf(f32[4])\nv0, v1 = max(x0, dim=0)", "v1", TensorType("i64", (), ())),
    # torch 2.11 must see values for this
    ("x0 = leaf(f32[4, 5])\nv0 = nanquantile(x0, q=0.5, dim=0)\nv1 = neg(v0)", "v1", TensorType("f32", (5,), (1,))),
]


@pytest.mark.parametrize(("text", "name", "expected"), TYPED)
def test_a_value_has_the_type_that_torch_gives_it(text: str, name: str, expected: TensorType) -> None:
    assert infer(parse(HEAD + text))[name] == expected


ILL = [
    ("x0 = leaf(f32[2, 3])\nx1 = leaf(f32[2, 3])\nv0 = mm(x0, x1)", "v0 = mm(...): "),
    ("x0 = leaf(f32[2])\nv0 = frobnicate(x0)", "no op 'frobnicate'"),
    ("x0 = leaf(f32[2])\nv0 = relu(x0, colour=1)", "v0 = relu(...): "),
    ("x0 = leaf(f32[2])\nv0 = exp(x0)\nv1 = sum(v0, dim=3)", "v1 = sum(...): "),
    ("x0 = leaf(f32[4])\nx1 = leaf_view(x0, f32[4], offset=1)", "x1: "),
    ("x0 = leaf(f32[4])\nv0, v1 = relu(x0)", "v0, v1 = relu(...): "),
    ("x0 = leaf(f32[4])\nwith autocast(dtype=bf16):\n    v0 = frobnicate(x0)", "no op"),
]


@pytest.mark.parametrize(("text", "words"), ILL)
def test_what_torch_refuses_is_ill_typed_with_the_statement_in_the_message(text: str, words: str) -> None:
    with pytest.raises(IllTyped) as caught:
        infer(parse(HEAD + text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dtype_that_programs_cannot_hold_is_refused() -> None:
    with pytest.raises(IllTyped, match="complex32"):
        type_of(torch.empty(2, dtype=torch.complex32))


def test_a_node_that_fake_tensors_cannot_type_is_typed_on_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(node: Node, env: dict[str, Any]) -> None:
        if node.op == "sub" and is_fake(env["x0"]):
            raise RuntimeError("setStorage: sizes [3, 4] are out of bounds")
        apply(node, env)

    monkeypatch.setattr("fuzzer.language.infer.apply", blind)
    seen = infer(parse(HEAD + "x0 = leaf(f32[3, 4], stride=(1, 3))\nv0 = sub(x0, x0)\nv1 = exp(v0)"))
    assert seen["v0"] == seen["v1"] == TensorType("f32", (3, 4), (1, 3))


FORWARD = """x0 = leaf(f32[3, 4])
with jvp(x0):
    v0 = {0}
backward(v0, cotangent(f32[{1}]))
"""


def test_forward_mode_that_fake_tensors_lack_is_typed_on_values_and_leaves_nothing_behind() -> None:
    for made, shape in (("quantile(x0, dim=1, q=0.25)", (3,)), ("sin(x0)", (3, 4))):
        program = parse(HEAD + FORWARD.format(made, ", ".join(map(str, shape))))
        assert infer(program)["v0"].shape == shape
    assert (torch.ones((), requires_grad=True) * 2).requires_grad


def test_inference_allocates_no_data() -> None:
    leaves = "x0 = leaf(f32[268435456, 1])\nx1 = leaf(f32[1, 268435456])\n"  # the largest there may be
    huge = infer(parse(HEAD + leaves + "v0 = mul(x0, x1)\nv1 = exp(v0)"))
    assert huge["v1"].numel == 2**56


COTANGENTS = [("f32[4]", True), ("f64[4]", False), ("f32[5]", False), ("f32[4], stride=(0,)", True)]


@pytest.mark.parametrize(("given", "fits"), COTANGENTS)
def test_a_cotangent_has_the_dtype_and_shape_of_its_output(given: str, fits: bool) -> None:
    program = parse(HEAD + f"x0 = leaf(f32[4])\nv0 = relu(x0)\nbackward(v0, cotangent({given}))")
    if fits:
        check_cotangents(program, infer(program))
    else:
        with pytest.raises(IllTyped, match="the cotangent of v0"):
            check_cotangents(program, infer(program))


@pytest.mark.parametrize("op", ["multilabel_margin_loss", "multi_margin_loss"])
@pytest.mark.parametrize("values", ["between(3, 3)", "between(-9, -2)", "data([0, 3])", "below(99)"])
def test_labels_that_do_not_exist_are_refused_because_eager_may_read_beyond_them(op: str, values: str) -> None:
    shape = "2, 3" if op == "multilabel_margin_loss" else "2"
    numbers = values.replace("[0, 3]", "[0, 0, 0, 0, 0, 3]" if shape == "2, 3" else "[0, 3]")
    text = HEAD + f"x0 = leaf(f32[2, 3])\nx1 = leaf(i64[{shape}], values={{}})\nv0 = {op}(x0, x1)\n"
    text += "backward(v0, cotangent(f32[()]))\n"
    with pytest.raises(IllTyped, match=f"x1: {op} takes values from"):
        infer(parse(text.format(numbers)))
    infer(parse(text.format("below(3)")))


def test_random_samples_are_those_that_torch_would_draw() -> None:
    text = HEAD + 'x0 = leaf(f32[1, 2, 2, 2, 5])\nx1 = leaf(f32[1, 2, 3], requires_grad=False, values="{}")\n'
    text += "v0 = fractional_max_pool3d(x0, x1, kernel_size=(1, 1, 2), output_size=(1, 1, 3))\n"
    text += "backward(v0, cotangent(f32[1, 2, 1, 1, 3]))\n"
    infer(parse(text.format("uniform")))
    for beyond in ("normal", "ones"):
        with pytest.raises(IllTyped, match="x1: fractional_max_pool3d takes values from"):
            infer(parse(text.format(beyond)))


@pytest.mark.parametrize("values", ["between(0, -1)", "below(0)", "data([0, 1])"])
def test_labels_that_cannot_be_drawn_are_refused_with_the_reason(values: str) -> None:
    text = HEAD + f"x0 = leaf(f32[2, 3])\nx1 = leaf(i64[2, 3], values={values})\nv0 = multilabel_margin_loss(x0, x1)\n"
    with pytest.raises(IllTyped, match="x1: "):
        infer(parse(text + "backward(v0, cotangent(f32[()]))\n"))


def test_what_torch_remembers_of_types_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTensorMode.cache_clear()
    typed = [infer(parse(f"{HEAD}x0 = leaf(f32[{n}])\nv0 = exp(x0)")) for n in range(1, 20)]
    held = FakeTensorMode.cache_info().size
    assert held >= 19, "every size is remembered"
    monkeypatch.setattr(private, "MOST_FAKES", 10)
    assert infer(parse(f"{HEAD}x0 = leaf(f32[7])\nv0 = exp(x0)")) == typed[6]
    assert FakeTensorMode.cache_info().size < 10
