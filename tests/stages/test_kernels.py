"""Kernels of several nodes: lanes are compared where memory is shared, under whatever names."""

from __future__ import annotations

import pytest
import torch
from torch.utils._sympy.functions import FloorDiv

from tests.stages.bodies import body, faulty, kernel, ops, run

EXP = body(lambda i, _: ops.store("mid", i[0], ops.exp(ops.load("x", i[0]))), (4,))
SAME = body(lambda i, _: ops.store("out", i[0], ops.load("mid", i[0])), (4,))
FLIPPED = body(lambda i, _: ops.store("out", i[0], ops.load("mid", 3 - i[0])), (4,))
TOTALS = body(
    lambda i, r: ops.store_reduction(
        "mid", i[0], ops.reduction(torch.float32, torch.float32, "sum", ops.load("x", 3 * i[0] + r[0]))
    ),
    (4,),
    (3,),
)
CENTRED = body(
    lambda i, _: ops.store("out", i[0], ops.sub(ops.load("x", i[0]), ops.load("mid", FloorDiv(i[0], 3)))), (12,)
)


def memory(size: int = 4) -> dict[str, torch.Tensor]:
    return {"x": torch.arange(float(size)), "mid": torch.zeros(4), "out": torch.zeros(size)}


def test_nodes_of_one_nest_run_in_order() -> None:
    tensors = memory()
    run(kernel(EXP, SAME), tensors)
    assert torch.equal(tensors["out"], tensors["x"].exp())


def test_a_fusion_across_lanes_is_faulty() -> None:
    faulty(kernel(EXP, FLIPPED), memory(), "lane 3 of 4 stores to mid what lane 0 loads from mid")


def test_so_is_one_through_a_buffer_that_only_this_kernel_has() -> None:
    tensors = memory()
    del tensors["mid"]
    made = {"local": {"mid": (4, torch.float32)}}
    run(kernel(EXP, SAME, **made), tensors)
    assert torch.equal(tensors["out"], tensors["x"].exp())
    faulty(kernel(EXP, FLIPPED, **made), tensors, "stores to mid")


def test_nests_that_follow_each_other_may_cross() -> None:
    tensors = memory()
    run(kernel(EXP, FLIPPED, nests=(0, 1)), tensors)
    assert torch.equal(tensors["out"], tensors["x"].exp().flip(0))
    faulty(kernel(EXP, FLIPPED, nests=(0, 1), outer=(4,)), memory(), "of 4")


def test_memory_that_is_reused_under_another_name_counts_as_one() -> None:
    tensors = memory()
    run(kernel(FLIPPED), tensors)
    faulty(kernel(FLIPPED), {"mid": tensors["mid"], "out": tensors["mid"]}, "stores to out .* loads from mid")
    run(kernel(SAME), {"mid": tensors["mid"], "out": tensors["mid"]})
    both = torch.zeros(8)
    run(kernel(FLIPPED), {"mid": both[:4], "out": both[4:]})


def test_a_reductions_result_is_late_in_cpp_and_not_in_triton() -> None:
    tensors = memory(12)
    run(kernel(TOTALS, CENTRED, late=False), tensors)
    sums = tensors["x"].reshape(4, 3).sum(1, keepdim=True)
    assert torch.equal(tensors["out"].reshape(4, 3), tensors["x"].reshape(4, 3) - sums)
    faulty(kernel(TOTALS, CENTRED), memory(12), "within the loop")


def test_nothing_was_stored_yet_in_a_buffer_of_the_kernels_own() -> None:
    out = torch.zeros(4)
    run(kernel(SAME, local={"mid": (4, torch.float32)}), {"out": out})
    assert bool(out.isnan().all())


def test_a_kernel_is_found_by_its_number() -> None:
    from fuzzer.stages import kernels

    number, tensors = kernels.register(kernel(EXP)), memory()
    kernels.run(number, tensors, {})
    assert torch.equal(tensors["mid"], tensors["x"].exp())
    assert kernels.register(kernel(EXP)) > number
    kernels.KERNELS.clear()
    with pytest.raises(KeyError):
        kernels.run(number, tensors, {})
