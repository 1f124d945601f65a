"""The inputs that a script makes."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from fuzzer.export.script import repro
from fuzzer.language.interpret import cotangents, materialise
from fuzzer.language.text import parse
from tests.ledger.found import RELU, finding, storage

LAYOUTS = """program(1)
route("autograd")
x0 = leaf(f64[()], values=data([-1.5]))
x1 = leaf(bf16[8, 0])
x2 = leaf(i64[3], values=below(7), seed=4)
x3 = leaf(f16[2, 2], stride=(1, 2), offset=5, values=data([inf, -inf, nan, -0.0]))
x4 = leaf_view(x3, f16[2], stride=(2,), offset=5, requires_grad=False)
x5 = leaf(bool[3], values="coins", seed=1)
x6 = leaf(bf16[5, 7], seed=9)
x7 = leaf(f32[9, 11], stride=(1, 9), values="subnormal", seed=5)
x8 = leaf(f32[9, 11], stride=(0, 1), offset=3, values="normal", seed=5)
x9 = leaf(f32[90, 11], stride=(2, 181), values="corners", seed=6)
x10 = leaf(f32[70], values="ones")
x11 = leaf(f64[3, 3, 3], values="tiny", seed=2)
x12 = leaf(f32[4, 6], stride=(0, 0), values="normal", seed=1)
x13 = leaf(f32[100], stride=(1,), offset=1)
x14 = leaf(f32[40, 40], stride=(20, 1), seed=8)
x15 = leaf(u8[2, 2], values=between(200, 255))
v0 = relu(x7)
backward(v0, cotangent(f32[9, 11], stride=(0, 1), seed=11))
"""


def function_of(text: str, name: str) -> Any:
    """One function of a script, with what it needs, without running the rest."""
    tree = ast.parse(text)
    tree.body = [s for s in tree.body if isinstance(s, ast.Import | ast.FunctionDef)]
    space: dict[str, Any] = {}
    exec(compile(tree, "repro", "exec"), space)
    return space[name]


@pytest.mark.parametrize(("device", "arguments"), [("cpu", ()), ("cuda", ("cpu",))])
def test_the_script_rebuilds_every_tensor_to_the_bit(device: str, arguments: tuple[str, ...]) -> None:
    program = parse(LAYOUTS)
    script = repro(finding(LAYOUTS, place={"backend": "inductor", "against": "eager", "device": device}))
    built = function_of(script, "inputs")(*arguments)
    wanted = [*materialise(program.leaves).values(), *cotangents(program)]
    assert len(built) == len(wanted)
    for ours, theirs in zip(built, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours.shape, ours.requires_grad) == (theirs.shape, theirs.requires_grad)
        if 0 not in ours.shape:
            assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
        a, b = storage(ours).contiguous(), storage(theirs).contiguous()
        assert torch.equal(a.isnan(), b.isnan())
        assert torch.equal(a[~a.isnan()].view(torch.uint8), b[~b.isnan()].view(torch.uint8))
    assert built[4].untyped_storage().data_ptr() == built[3].untyped_storage().data_ptr()


def test_constants_and_small_tensors_are_written_out() -> None:
    text = repro(finding(RELU))
    assert "torch.ones(3)" in text
    assert "torch.tensor([" in text
    assert "randint" not in text


DRAWN = """program(1)
route("autograd")
x0 = leaf(f32[1, 3, 7, 1], stride=(3, 1, 3, 1))
x1 = leaf(bf16[()], seed=1)
x2 = leaf(f32[4, 6], stride=(0, 1), values="ones")
x3 = leaf(f32[3], stride=(2,), values=data([1.0, 2.0, 3.0]))
x4 = leaf(c64[2, 2])
x5 = leaf(i64[2], values=below(7))
v0 = relu(x0)
backward(v0, cotangent(f32[1, 3, 7, 1], seed=11))
"""


def test_as_people_write_it_normal_numbers_are_torchs_and_layouts_are_views() -> None:
    text = repro(finding(DRAWN), drawn=True)
    for words in (
        "torch.manual_seed(0)",
        "x0 = torch.randn(7, 3).t()[None, :, :, None].requires_grad_()",
        "torch.randn((), dtype=torch.bfloat16)",
        "torch.ones(6)[None].expand(4, 6)",
        "torch.tensor([1.0, 0.0, 2.0, 0.0, 3.0]).as_strided",
        "torch.randn(2, 2, dtype=torch.complex64)",
    ):
        assert words in text
    first, again = (function_of(text, "inputs")() for _ in range(2))
    assert first[0].stride() == (3, 1, 3, 1)
    for ours, theirs, leaf in zip(first, again, parse(DRAWN).leaves, strict=False):
        assert torch.equal(ours, theirs)
        assert (ours.shape, ours.stride(), ours.requires_grad) == (leaf.shape, leaf.stride, leaf.requires_grad)
    assert "randn" not in repro(finding(DRAWN))


def test_a_script_as_people_write_it_tells_no_numbers_of_the_trial_and_keeps_its_name() -> None:
    head = repro(finding(RELU), drawn=True, name="0123456789").splitlines()
    assert head[0].startswith("# backfuzz 0123456789: zero gradient of F.relu")
    assert head[1].startswith("# Found on torch 2.13.0, cpu. Exits 1")
