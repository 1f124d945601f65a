"""What would be built, in words: what decides the generated code tells programs apart, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch

from fuzzer.coverage.loops import Target, fit, kernel_words
from tests.stages.bodies import body, ops

F32, F64, F16 = torch.float32, torch.float64, torch.float16


def target(dtype: torch.dtype = F32, lanes: int = 16) -> Target:
    return Target(lambda name: dtype, lambda dtype: lanes * (2 if dtype == F16 else 1))


def exponential(n: int, source: str = "x", result: str = "out") -> Any:
    """An exp of a matrix of three rows, row by row."""

    def one(i: Any, _: Any) -> Any:
        return ops.store(result, n * i[0] + i[1], ops.exp(ops.load(source, n * i[0] + i[1])))

    return body(one, (3, n)).traced


def test_programs_that_differ_in_names_and_numbers_have_the_same_words() -> None:
    assert kernel_words([exponential(32)], target()) == kernel_words([exponential(64, "y", "z")], target())
    assert kernel_words([exponential(33)], target()) == kernel_words([exponential(47)], target())


def test_a_kernel_with_a_tail_has_other_words_than_one_without() -> None:
    whole, tail = (kernel_words([exponential(n)], target()) for n in (32, 33))
    assert tail - whole == {"exp f32 at tail", "pointwise f32 part tail"}


@pytest.mark.parametrize(("size", "fits"), [(15, "part"), (16, "one"), (17, "tail"), (48, "whole"),
                         (sympy.Integer(48), "whole"), (sympy.Symbol("s0"), "symbolic")])  # fmt: skip
def test_a_loop_is_held_against_the_vectors(size: Any, fits: str) -> None:
    assert fit(size, 16) == fits
    assert fit(size, 0) == "scalar"


def test_dtypes_are_kept_and_half_precision_has_twice_the_lanes() -> None:
    single, double, half = (kernel_words([exponential(32)], target(dtype)) for dtype in (F32, F64, F16))
    assert "exp f64(load)" in double - single
    assert "pointwise f16 part one" in half


def test_an_access_tells_its_step_along_each_loop() -> None:
    def access(index: Callable[[Any], Any]) -> set[str]:
        made = body(lambda i, _: ops.store("out", 8 * i[0] + i[1], ops.load("x", index(i))), (4, 8)).traced
        return {word for word in kernel_words([made], target()) if word.startswith("load f32")}

    assert access(lambda i: 8 * i[0] + i[1]) == {"load f32 [N 1]"}
    assert access(lambda i: i[1]) == {"load f32 [0 1]"}
    assert access(lambda i: i[0] + 4 * i[1]) == {"load f32 [1 N]"}
    assert access(lambda i: 8 * i[0] - i[1] + 7) == {"load f32 [N -1] offset"}


def test_an_index_read_from_data_is_told() -> None:
    def gather(i: Any, _: Any) -> Any:
        at = ops.indirect_indexing(ops.load("at", i[0]), sympy.Integer(9))
        return ops.store("out", i[0], ops.load("x", at))

    assert "load f32 [0] indirect" in kernel_words([body(gather, (5,)).traced], target())


def test_what_a_kernel_hands_on_within_itself_is_told() -> None:
    total = body(
        lambda i, r: ops.store_reduction(
            "sum", i[0], ops.reduction(F32, F32, "sum", ops.load("out", 32 * i[0] + r[0]))
        ),
        (3,),
        (32,),
    )
    together = kernel_words([exponential(32), total.traced], target())
    apart = kernel_words([exponential(32)], target()) | kernel_words([total.traced], target())
    assert together - apart == {"pointwise then sum", "sum f32(load of exp)"}
    assert "sum f32 part | whole" in together
    assert "store_reduction f32(sum)" in together


def test_what_stands_behind_a_mask_is_read_too() -> None:
    def masked(i: Any, _: Any) -> Any:
        inside = ops.lt(ops.index_expr(i[0], torch.int64), ops.constant(3, torch.int64))
        return ops.store("out", i[0], ops.masked(inside, lambda: ops.exp(ops.load("x", i[0])), 0.0))

    words = kernel_words([body(masked, (5,)).traced], target())
    assert {"masked f32(exp, lt)", "exp f32(load)", "lt bool(index_expr, constant)"} <= words


def test_a_choice_has_the_dtype_of_what_is_chosen_from() -> None:
    def chosen(i: Any, _: Any) -> Any:
        x = ops.load("x", i[0])
        return ops.store("out", i[0], ops.where(ops.isnan(x), ops.to_dtype(x, F64), ops.to_dtype(x, F64)))

    assert "where f64(isnan, to_dtype, to_dtype)" in kernel_words([body(chosen, (5,)).traced], target())
