"""The conditions of a fault, in words of a title."""

from __future__ import annotations

import pytest

from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.ledger.conditions import compiled_with, dtype_needed, inputs_needed, ratio
from fuzzer.ledger.scope import AGREES, PROGRAM
from tests.ledger.varied import SHAPES, row, scope


def program(leaf: str, route: str = 'route("autograd")') -> Program:
    return parse(f"program(1)\n{route}\nx0 = leaf({leaf})\nv0 = neg(x0)\nreturns(v0)\n")


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        ("f32[2, 3]", []),
        ("f32[2, 3], stride=(1, 2)", ["a transposed input"]),
        ("f32[2, 3], stride=(0, 1)", ["an expanded input"]),
        ("f32[2, 3], stride=(6, 2)", ["a non-contiguous input"]),
        ("f32[2, 3], stride=(1, 1)", ["an overlapping input"]),
        ("f32[2, 3], offset=1", ["an input with a storage offset"]),
        ("f32[2, 3, 4], stride=(1, 2, 6)", ["a permuted input"]),
        ("f32[2, 3, 4, 5], stride=(60, 1, 15, 3)", ["a channels_last input"]),
        ("f32[1, 3, 3, 1], stride=(3, 1, 3, 1)", ["a permuted input"]),
        ("f32[2, 1, 1], stride=(1, 2, 1)", ["an input with an odd stride in a dimension of 1"]),
        ("f32[0, 3], stride=(1, 1)", ["an empty input"]),
        ('f32[2], values="subnormal"', ["subnormal numbers"]),
        ("f32[2], values=data([1.0, inf])", ["a non-finite input"]),
    ],
)
def test_layouts_and_values_have_torchs_names(leaf: str, words: list[str]) -> None:
    assert inputs_needed(program(leaf), None) == words


def test_a_dtype_is_a_condition_where_float32_does_not_do() -> None:
    assert dtype_needed(program("f16[2]"), None) == "float16"
    assert dtype_needed(program("f32[2]"), None) == ""
    assert dtype_needed(program("i64[2], requires_grad=False"), None) == ""
    assert dtype_needed(program("f64[2]"), scope(row(PROGRAM, "x"), row("dtype", "f64"))) == "", "any dtype fails"


def test_the_way_to_the_gradient_and_dynamic_sizes_are_conditions() -> None:
    assert compiled_with(program("f32[2]")) == []
    assert compiled_with(program("f32[2]", 'route("backward_twice")')) == ["backward twice"]
    assert compiled_with(program("f32[2]", 'route("autograd", dynamic=True)')) == ["dynamic=True"]


def test_a_ratio_defines_its_letters() -> None:
    told = "sums to n/(n - k) of its sum (n = x0.shape[1], k = x1.shape[1])"
    assert ratio(program("f32[2]"), scope(*SHAPES)) == told
    assert ratio(program("f32[2]"), scope(*SHAPES, row("size", "n=3", AGREES))) == told
    assert ratio(program("f32[2]"), None) == ""
