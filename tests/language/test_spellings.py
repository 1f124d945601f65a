"""Ordinary spellings of tensor code in a transcript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fuzzer.language.program import written_leaves
from fuzzer.language.text import show
from fuzzer.language.transcribe import Inexpressible, transcribe

MASK = torch.tensor([[True, False, True], [False, True, False]])
WHOLE = torch.tensor([[0, 1, 2], [3, 4, 5]])


def setting(index: Any, value: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """y[index] = value, which may depend on x."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2.0
        y[index] = value(x) if callable(value) else value
        return y

    return function


def augmented(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.0
    y += 1
    y *= x
    y -= 2.0
    y /= 3
    y **= 2
    y %= 0.5
    return y


def augmented_masks(x: torch.Tensor) -> torch.Tensor:
    b = x > 0
    b &= x < 0.5
    b |= x > 0.9
    b ^= MASK
    return x * b


def floored(x: torch.Tensor) -> torch.Tensor:
    y = x.detach() * 8.0
    y //= 3
    return x * y


Function = Callable[[torch.Tensor], Any]
# A function of float32[2, 3], and the calls that its program must hold.
SPELLED: dict[str, tuple[Function, list[str]]] = {
    "x ** 2.0": (lambda x: x**2.0, ["pow_scalar(x0, exponent=2.0)"]),
    "2 ** x": (lambda x: 2**x, ["rpow_scalar(x0, other=2)"]),
    "x ** x": (lambda x: x**x, ["pow(x0, x0)"]),
    "//": (lambda x: x * (WHOLE // 2), ["floor_divide(x1, x2)"]),
    "// reflected": (lambda x: x * (7 // (WHOLE + 1)), ["floor_divide("]),
    "//=": (floored, ['div_(v1, x1, rounding_mode="floor")']),
    "%": (lambda x: x % 0.3 + WHOLE % 2, ["remainder_scalar(x0, other=0.3)", "remainder_scalar(x1, other=2)"]),
    "&": (lambda x: x * ((x > 0.2) & MASK), ["logical_and(v0, x1)"]),
    "|": (lambda x: x * ((x > 0.2) | MASK), ["logical_or(v0, x1)"]),
    "^": (lambda x: x * ((x > 0.2) ^ MASK), ["logical_xor(v0, x1)"]),
    "~": (lambda x: x * ~MASK, ["logical_not(x1)"]),
    "== a number": (lambda x: x * (x == 0), ["eq(x0, x1)"]),
    "an integer == a fraction": (
        lambda x: x * (WHOLE == 2.5),
        ["values=data([2.5])"],
    ),
    "!=, <, <=, >, >= a number": (
        lambda x: x * (x != 1) * (x < 2) * (x <= 3) * (x > 0) * (x >= -1),
        ["ne(x0, x1)", "lt(x0, x2)", "le_scalar(x0, other=3)", "gt_scalar(x0, other=0)", "ge(x0, x3)"],
    ),
    "a number in half precision": (
        lambda x: x.bfloat16() * 3.3,
        ["mul_scalar(v0, other=3.3)"],
    ),
    "view(-1)": (lambda x: x.view(-1), ["view(x0, size=(-1,))"]),
    "view(b, -1)": (lambda x: x.view(3, -1), ["view(x0, size=(3, -1))"]),
    "reshape(-1)": (lambda x: x.reshape(-1), ["reshape(x0, shape=(-1,))"]),
    "addmm": (lambda x: torch.addmm(x[0], x, x.mT @ x), ["addmm(x0, v2, v0)"]),
    "addmm as a method": (lambda x: x[0].addmm(x, x.mT @ x, alpha=2), ["addmm(x0, v2, v0, alpha=2)"]),
    "y[mask] = 0": (setting(MASK, 0), ["index_put_(v0, [x1], v1)"]),
    "y[mask] = a tensor": (setting(MASK, lambda x: x[:, 0].sum()), ["index_put_("]),
    "y[i] = a number": (setting(1, 2.0), ["v1 = select(v0, dim=0, index=1)", "fill_(v1, value=2.0)"]),
    "y[i] = a row": (setting(1, lambda x: x[:1]), ["copy_("]),
    "y[i] = an element": (setting(1, lambda x: x.sum()), ["fill_tensor_(v2, v1)"]),
    "y[1:3] = rows": (setting(slice(1, 3), lambda x: x[:1]), ["slice(v0, start=1, end=3)", "copy_(v2, v1)"]),
    "y[..., 1] = a number": (setting((..., 1), 0.5), ["select(v0, dim=1, index=1)"]),
    "y[list] = a number": (setting([0, 1], 1.0), ["x1 = leaf(i64[2], values=data([0, 1]))"]),
    "y[indices] = rows": (setting(torch.tensor([1, 0]), lambda x: x * 3), ["index_put_(v0, [x1], v1)"]),
    "x[list]": (lambda x: x[[1, 0]], ["index(x0, [x1])"]),
    "x[:, indices]": (lambda x: x[1:, torch.tensor([0, 2])], ["index(v0, [None, x1])"]),
    "augmented": (
        augmented,
        ["add_scalar_(v0", "mul_(v1, x0)", "sub_(v2", "div_(v3", "pow_scalar_(v4", "remainder_(v5"],
    ),
    "augmented masks": (augmented_masks, ["logical_and(", "logical_or(", "logical_xor(", "copy_("]),
    "relu in place": (lambda x: F.relu(x - 0.5, inplace=True), ["relu_(v0)"]),
    "ReLU in place": (lambda x: nn.ReLU(inplace=True)(x - 0.5), ["relu_(v0)"]),
    "relu6 in place": (lambda x: F.relu6(x * 9, inplace=True), ["hardtanh_(v0, min_val=0.0, max_val=6.0)"]),
    "elu in place": (lambda x: F.elu(x - 0.5, inplace=True), ["elu_(v0)"]),
    "selu in place": (lambda x: F.selu(x - 0.5, True), ["selu_(v0)"]),
    "celu in place": (lambda x: F.celu(x - 0.5, inplace=True), ["celu_(v0)"]),
    "hardtanh in place": (lambda x: F.hardtanh(x * 2, inplace=True), ["hardtanh_(v0)"]),
    "threshold in place": (lambda x: F.threshold(x * 2, 0.5, 0.1, True), ["threshold_(v0, "]),
    "dropout that is off": (
        lambda x: F.dropout(x * 2, training=False, inplace=True) * 2,
        ["v1 = mul_scalar(v0"],
    ),
    "BatchNorm without statistics": (
        nn.BatchNorm1d(3, track_running_stats=False),
        ["batch_norm(x0, x1, x2, running_mean=None, running_var=None, training=True)"],
    ),
    "BatchNorm in eval": (nn.BatchNorm1d(3).eval(), ["batch_norm_eval(x0, x1, x2, x3, x4)"]),
    "attention without dropout": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.0),
        ["scaled_dot_product_attention(v0, v1, v2)"],
    ),
    "attention without its weights": (
        lambda x: attention(x, x, x, need_weights=False)[0],
        ["chunk(", "scaled_dot_product_attention("],
    ),
    "flags that are off": (
        lambda x: F.interpolate(x[None], scale_factor=2.0, align_corners=None, antialias=False),
        ["interpolate_nearest(v0, scale_factor=2.0)"],
    ),
    "variance": (lambda x: x.var(-1, unbiased=False), ["var(x0, dim=-1, correction=0)"]),
    "types": (
        lambda x: WHOLE.type_as(x) * x * MASK.long() * WHOLE.bool() + x.type(torch.float64),
        ["to(x1, dtype=f32)", "to(x2, dtype=i64)", "to(x1, dtype=bool)", "to(x0, dtype=f64)"],
    ),
    "split": (lambda x: x.split(1)[1], ["v0, v1 = split(x0, split_size_or_sections=1)"]),
    "data": (lambda x: x.data * x, ["detach(x0)"]),
    "zeros, ones, full, a number": (
        lambda x: x + torch.zeros(3) + torch.ones(2, 3) + torch.full((3,), 2.0) + torch.tensor(0.5),
        ["new_zeros(x0", "new_ones(x0", "new_full(x0, size=(3,)", "new_full(x0, size=(), fill_value=0.5, dtype=f32)"],
    ),
    "dropout": (F.dropout, ["dropout(x0)", 'settings({"inductor.fallback_random": True})']),
    "without gradients, of integers": (lambda x: x * torch.no_grad()(lambda: WHOLE * 2)(), ["mul_scalar(x1, other=2)"]),
}
torch.manual_seed(0)
attention = nn.MultiheadAttention(3, 1)


@pytest.mark.parametrize("name", SPELLED)
def test_a_spelling_becomes_calls_that_the_tables_say(name: str) -> None:
    function, calls = SPELLED[name]
    text = show(transcribe(function, (torch.rand(2, 3) + 0.01,)).program)
    assert [call for call in calls if call not in text] == [], text


def test_an_in_place_call_is_a_write() -> None:
    program = transcribe(
        lambda x, y: x * y.mul_(2.0).relu_(), (torch.rand(3, requires_grad=True), torch.rand(3))
    ).program
    assert written_leaves(program) == ["x1"]


# What the tables do not say, by the call that is named.
REFUSED: dict[str, tuple[Function, str]] = {
    "silu in place": (lambda x: F.silu(x * 2, inplace=True), "silu_(f32[2, 3])"),
    "bits": (lambda x: x * (WHOLE & 1), "__and__(i64[2, 3], 1)"),
    "LSTM": (nn.LSTM(3, 2), "lstm("),
    "BatchNorm that writes statistics": (
        nn.BatchNorm1d(3),
        "batch_norm(f32[2, 3], f32[3], f32[3], f32[3], f32[3], True",
    ),
    "dropout in attention": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
        "dropout_p=0.5",
    ),
    "an output given": (lambda x: x * torch.mul(WHOLE, 2, out=torch.empty(2, 3)), "out=f32[2, 3]"),
    "sizes that values decide": (lambda x: x[x > 0.5], "no types: v1 = index(...)"),
    "a checkpoint": (
        lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False),
        "sin(f32[2, 3]) under a checkpoint",
    ),
    "a value": (lambda x: x if 3 in WHOLE else -x, "any(bool[2, 3])"),
    "an attribute": (lambda x: setattr(x, "data", x * 2), "__set__(f32[2, 3], f32[2, 3])"),
    "a backward inside": (lambda x: x * x.sum().backward(), "backward(f32[]"),
    "a leaf made inside": (lambda x: x * torch.zeros(3).requires_grad_(), "requires_grad_(f32[3])"),
    "an unknown result": (lambda x: Function, "a result of type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_spelling_is_refused_by_name(name: str) -> None:
    function, word = REFUSED[name]
    with pytest.raises(Inexpressible) as caught:
        transcribe(function, (torch.rand(2, 3, requires_grad=True),))
    assert word in str(caught.value)
