"""A node over all its iterations: values in the dtype that inductor computes in, and accesses that are checked."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch.utils._sympy.functions import IntTrueDiv

from fuzzer.stages.cannot import Cannot
from tests.stages.bodies import body, faulty, kernel, ops, run


def buffers(**named: torch.Tensor) -> dict[str, torch.Tensor]:
    return named


def test_a_body_stores_what_its_operations_compute_from_what_it_loads() -> None:
    made = kernel(body(lambda i, _: ops.store("out", 3 * i[0] + i[1], ops.exp(ops.load("x", i[0] + 2 * i[1]))), (2, 3)))
    x, out = torch.arange(6.0), torch.zeros(2, 3)
    run(made, buffers(x=x, out=out))
    assert torch.equal(out, x.reshape(3, 2).t().exp())


def test_half_precision_is_rounded_where_it_is_stored_and_where_the_ir_says_so() -> None:
    x, third = torch.ones(2, dtype=torch.float16), torch.tensor(1 / 3, dtype=torch.float16)

    def function(rounds: bool) -> torch.Tensor:
        def third_of(i: list[object], _: object) -> object:
            value = ops.truediv(ops.load("x", i[0]), ops.constant(3, torch.float16))
            value = ops.to_dtype(value, torch.float16, use_compute_types=False) if rounds else value
            return ops.store("out", i[0], ops.mul(value, ops.constant(3, torch.float32)))

        out = torch.zeros(2)
        run(kernel(body(third_of, (2,))), buffers(x=x, out=out))
        return out

    assert function(rounds=False).tolist() == [1.0, 1.0]
    assert function(rounds=True).tolist() == [3 * float(third)] * 2


def test_a_quotient_of_sizes_is_a_double() -> None:
    third = IntTrueDiv(sympy.Integer(1), sympy.Symbol("s0", integer=True, positive=True))

    def filled(i: list[object], _: object) -> object:
        return ops.store("out", i[0], ops.index_expr(third, torch.float64))

    out = torch.zeros(2, dtype=torch.float64)
    kernel(body(filled, (2,))).run(buffers(out=out), {"s0": 3})
    assert out.tolist() == [1 / 3] * 2


def test_a_node_that_only_asserts_stores_nothing() -> None:
    def asserts(i: list[object], _: object) -> object:
        positive = ops.gt(ops.load("x", i[0]), ops.constant(0, torch.float32))
        return ops.store("out", i[0], ops.device_assert_async(positive, "not positive"))

    made, out = kernel(body(asserts, (2,))), torch.zeros(2, dtype=torch.bool)
    run(made, buffers(x=torch.ones(2), out=out))
    assert not out.any()
    faulty(made, buffers(x=torch.zeros(2), out=out), "not positive")


def test_a_reduction_keeps_its_outer_loops() -> None:
    def total(i: list[object], r: list[object]) -> object:
        value = ops.reduction(torch.float32, torch.float32, "sum", ops.load("x", 4 * i[0] + r[0]))
        return ops.store_reduction("out", i[0], value)

    x, out = torch.arange(12.0), torch.zeros(3)
    run(kernel(body(total, (3,), (4,))), buffers(x=x, out=out))
    assert torch.equal(out, x.reshape(3, 4).sum(1))


def test_what_is_masked_may_lie_outside() -> None:
    def padded(i: list[object], _: object) -> object:
        inside = ops.lt(ops.index_expr(i[0], torch.int64), ops.constant(3, torch.int64))
        return ops.store("out", i[0], ops.masked(inside, lambda: ops.load("x", i[0]), 7.0))

    out = torch.zeros(5)
    run(kernel(body(padded, (5,))), buffers(x=torch.ones(3), out=out))
    assert out.tolist() == [1, 1, 1, 7, 7]


def test_what_is_not_masked_must_lie_inside() -> None:
    made = kernel(body(lambda i, _: ops.store("out", i[0], ops.load("x", i[0] + 1)), (3,)))
    run(made, buffers(x=torch.ones(4), out=torch.zeros(3)))
    faulty(made, buffers(x=torch.ones(3), out=torch.zeros(3)), "load of x at p0 \\+ 1: outside its 3 elements")
    faulty(made, buffers(x=torch.ones(4), out=torch.zeros(2)), "store to out")


def test_an_index_from_data_must_be_in_range() -> None:
    def gathered(i: list[object], _: object) -> object:
        return ops.store("out", i[0], ops.load("x", ops.indirect_indexing(ops.load("index", i[0]), 4)))

    made, out = kernel(body(gathered, (3,))), torch.zeros(3)
    run(made, buffers(x=torch.arange(4.0), index=torch.tensor([3, -1, 0]), out=out))
    assert out.tolist() == [3, 3, 0]
    faulty(made, buffers(x=torch.arange(4.0), index=torch.tensor([4, 0, 0]), out=out), "out of range of 4")


def test_lanes_may_store_one_value_into_one_element_but_not_several() -> None:
    made = kernel(body(lambda i, _: ops.store("out", i[0], ops.load("x", i[1])), (2, 3)))
    run(made, buffers(x=torch.full((3,), float("nan")), out=torch.zeros(2)))
    faulty(made, buffers(x=torch.arange(3.0), out=torch.zeros(2)), "different values into one element")


def test_atomic_stores_add_up() -> None:
    made = kernel(body(lambda i, _: ops.store("out", i[0], ops.load("x", i[1]), "atomic_add"), (2, 3)))
    out = torch.ones(2)
    run(made, buffers(x=torch.arange(3.0), out=out))
    assert out.tolist() == [4, 4]


def test_boundaries_are_searched() -> None:
    def bucket(i: list[object], _: object) -> object:
        edges = ("edges", 3, 3, 1)
        found = ops.bucketize(ops.load("x", i[0]), edges, ops.constant(0, torch.int64), torch.int64, True)
        return ops.store("out", i[0], found)

    out = torch.zeros(4, dtype=torch.int64)
    run(kernel(body(bucket, (4,))), buffers(x=torch.tensor([0.0, 1, 2.5, 9]), edges=torch.tensor([1.0, 2, 3]), out=out))
    assert out.tolist() == [0, 1, 2, 3]


def test_a_false_assertion_is_found() -> None:
    def asserted(i: list[object], _: object) -> object:
        value = ops.load("x", i[0])
        ops.device_assert_async(ops.gt(value, ops.constant(0, torch.float32)), "not positive")
        return ops.store("out", i[0], value)

    made = kernel(body(asserted, (2,)))
    run(made, buffers(x=torch.ones(2), out=torch.zeros(2)))
    faulty(made, buffers(x=torch.zeros(2), out=torch.zeros(2)), "not positive")


def test_random_numbers_of_inductors_own_cannot_be_drawn() -> None:
    made = kernel(
        body(
            lambda i, _: ops.store("out", i[0], ops.rand(ops.load_seed("seeds", 0), ops.index_expr(i[0], torch.int32))),
            (2,),
        )
    )
    with pytest.raises(Cannot, match="operation: load_seed"):
        run(made, buffers(seeds=torch.ones(1, dtype=torch.int64), out=torch.zeros(2)))
    assert made.reasons == ["operation: load_seed"]


def test_a_kernel_reaches_from_a_tensors_first_element_to_its_last() -> None:
    from fuzzer.stages.evaluator import reachable

    whole = torch.arange(20)
    assert reachable(whole.as_strided((2, 3), (7, 2), 1)).tolist() == list(range(1, 13))
    assert reachable(whole[:0]).numel() == 0
