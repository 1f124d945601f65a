"""A trace: what its steps read and write, and the lines that show them."""

from __future__ import annotations

import torch

from fuzzer.rounding.trace import mapped, refs_in, show_step, widened
from tests.rounding.recorded import recorded, tensor


def test_a_step_that_writes_in_place_names_what_it_wrote_and_what_it_read() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x.mul_(y)]

    trace, (ref,), _ = recorded(run, tensor(3), tensor(3, dtype=torch.float64))
    (step,) = trace.steps
    assert step.name == "mul"
    assert step.written == {ref.storage}
    assert [(r.dtype, r.shape) for r in step.inputs] == [(torch.float32, (3,)), (torch.float64, (3,))]
    assert [r.storage for r in step.results] == [ref.storage]


def test_a_step_is_shown_as_its_call_with_the_dtype_sizes_and_strides_of_every_tensor() -> None:
    trace, (ref,), _ = recorded(lambda x: [x.sum(1, dtype=torch.float64)], tensor(2, 3).t())
    shown = show_step(trace.steps[-1])
    assert shown.startswith(f"s{ref.storage}:float64[3]/[1] = aten::sum(")
    assert ":float32[3, 2]/[1, 3], [1]" in shown
    assert str(trace) == shown


def test_trees_are_walked_in_the_order_of_their_leaves() -> None:
    _, (a, b), _ = recorded(lambda x: [x + 1, x + 2], tensor(2))
    tree = [a, {"b": (b, 3)}, None]
    assert list(refs_in(tree)) == [a, b]
    assert mapped(tree, lambda leaf: leaf if leaf == 3 else "ref") == ["ref", {"b": ("ref", 3)}, "ref"]


def test_the_reference_is_wide_where_eager_rounds() -> None:
    kinds = {torch.float16: torch.float64, torch.complex64: torch.complex128, torch.int32: torch.int32}
    assert {dtype: widened(torch.ones(2, dtype=dtype)).dtype for dtype in kinds} == kinds


def test_a_digest_is_of_the_steps_and_of_what_no_step_made() -> None:
    def told(x: torch.Tensor, dim: int = 1) -> str:
        return recorded(lambda x: [x.sum(dim), torch.rand(2)], x)[0].digest()

    def seeded(x: torch.Tensor, dim: int = 1, seed: int = 0) -> str:
        torch.manual_seed(seed)
        return told(x, dim)

    x = tensor(2, 3)
    assert seeded(x) == seeded(x.clone())
    others = [seeded(x + 1), seeded(x, 0), seeded(x, seed=1), seeded(x.to(torch.bfloat16)), seeded(tensor(3, 2).t())]
    assert len({seeded(x), *others}) == 1 + len(others)
