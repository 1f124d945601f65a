"""Operations of inductor's loops: by eager's functions; reductions, scans and sorts along several dimensions."""

from __future__ import annotations

import operator

import pytest
import torch

from fuzzer.stages.cannot import Cannot
from fuzzer.stages.elementwise import compute_dtype, elementwise, reduced, scanned, sorted_together

# What the evaluator computes itself, and what no stage runs.
OWN = {
    "bucketize", "ceil_to_int", "check_bounds", "constant", "device_assert_async", "floor_to_int", "index_expr",
    "indirect_indexing", "load", "masked", "reduction", "round_to_int", "scan", "sort", "store", "store_reduction",
    "to_dtype", "to_dtype_bitcast", "trunc_to_int", "value_expr",
}  # fmt: skip
CANNOT = {
    "dot", "halide_clamp", "inline_asm_elementwise", "load_seed", "output", "partial_accumulate", "placeholder",
    "rand", "rand_eager", "randint64", "randn",
}  # fmt: skip


def test_every_operation_of_this_torch_is_run_or_known_not_to_be() -> None:
    from torch._inductor.ops_handler import OP_NAMES

    refused = set()
    for name in OP_NAMES:
        try:
            elementwise(name)
        except Cannot:
            refused.add(name)
    assert not refused - OWN - CANNOT
    assert not OWN & CANNOT


def test_random_numbers_are_not_drawn_as_torchs_functions_of_that_name_do() -> None:
    with pytest.raises(Cannot, match="operation: rand"):
        elementwise("rand")


def test_half_precision_is_computed_in_float32() -> None:
    assert [compute_dtype(d) for d in (torch.bfloat16, torch.float16)] == [torch.float32] * 2
    assert [compute_dtype(d) for d in (torch.float64, torch.int8, torch.bool)] == [
        torch.float64,
        torch.int8,
        torch.bool,
    ]


def test_a_fused_product_is_rounded_once() -> None:
    a = torch.tensor(1 + 2.0**-12)
    exact = torch.tensor(2.0**-24)
    assert float(elementwise("fma")(a, a, -torch.tensor(1 + 2.0**-11))) == float(exact)
    assert float(a * a - (1 + 2.0**-11)) == 0


def test_integers_are_divided_as_c_and_as_python_do() -> None:
    a, b = torch.tensor([-7, 7]), torch.tensor([2, -2])
    assert elementwise("truncdiv")(a, b).tolist() == [-3, -3]
    assert elementwise("floordiv")(a, b).tolist() == [-4, -4]
    assert elementwise("mod")(a, b).tolist() == [-1, 1]
    assert elementwise("int_truediv")(a, b).dtype == torch.float32


def test_polygamma_is_of_one_order() -> None:
    x = torch.tensor([0.5, 2.0])
    assert torch.equal(elementwise("polygamma")(torch.ones(1), x), torch.polygamma(1, x))
    with pytest.raises(Cannot, match="several orders"):
        elementwise("polygamma")(torch.ones(2), x)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_a_reduction_is_over_all_inner_loops(kind: str) -> None:
    x = torch.rand(2, 3, 4, generator=torch.manual_seed(1))
    (found,) = reduced(kind, torch.float32, (x,), 2)
    own = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}[kind]
    assert found.shape == (2, 1, 1)
    assert torch.equal(found.flatten(), own(x.reshape(2, 12), 1))


def test_the_first_of_equal_extremes_is_named_and_nan_is_the_most_extreme() -> None:
    x = torch.tensor([[1.0, 5.0, 5.0], [float("nan"), 9.0, float("nan")]])
    assert reduced("argmax", torch.int64, (x,), 1)[0].tolist() == [[1], [0]]
    assert reduced("argmin", torch.int64, (-x,), 1)[0].tolist() == [[1], [0]]
    index = torch.tensor([[2, 1, 0], [2, 0, 1]])  # loops that run through the elements in another order
    assert reduced("argmax", torch.int64, (x, index), 1)[0].tolist() == [[0], [1]]


def test_moments_in_parts_join_to_those_of_the_whole() -> None:
    x = torch.rand(4, 6, dtype=torch.float64, generator=torch.manual_seed(1))
    parts = tuple(part.reshape(1, 4) for part in reduced("welford_reduce", torch.float64, (x,), 1))
    joined = [float(part) for part in reduced("welford_combine", torch.float64, parts, 1)]
    whole = [float(part) for part in reduced("welford_reduce", torch.float64, (x.reshape(1, 24),), 1)]
    assert joined == pytest.approx(whole)
    assert whole == pytest.approx([float(x.mean()), float(x.var(correction=0) * 24), 24.0])


def test_a_reduction_that_is_not_known_cannot_be_run() -> None:
    with pytest.raises(Cannot, match="reduction: median"):
        reduced("median", torch.float32, (torch.ones(2),), 1)


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_a_scan_combines_every_element_with_all_before_it(length: int) -> None:
    x = torch.arange(2 * length).reshape(2, length) + 1
    (found,) = scanned(lambda a, b: (operator.add(a[0], b[0]),), (x,), 1)
    assert torch.equal(found, x.cumsum(1))


def test_values_are_sorted_by_the_first_of_them() -> None:
    keys, others = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[30, 10, 20]])
    assert sorted_together((keys, others), 1, False)[1].tolist() == [[10, 20, 30]]
    assert sorted_together((keys, others), 1, True)[0].tolist() == [[3.0, 2.0, 1.0]]
