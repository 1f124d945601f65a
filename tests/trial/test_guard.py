"""Guarded leaves: the same tensors in memory of their own, whose bands tell of writes out of bounds."""

from __future__ import annotations

import pytest
import torch

from fuzzer.judgement.planted.runtime import past_the_end
from fuzzer.language.interpret import cotangents, materialise
from fuzzer.language.text import parse
from fuzzer.trial.guard import BAND_BYTES, Guard

PROGRAM = parse("""program(1)
route("autograd")
x0 = leaf(f32[3, 4], stride=(1, 4), offset=2, seed=1)
x1 = leaf_view(x0, f32[3], offset=2, requires_grad=False)
x2 = leaf(bf16[5], stride=(0,), seed=2)
x3 = leaf(c64[2], conj=True, seed=3)
x4 = leaf(bool[7], values=below(2), seed=4)
x5 = leaf(f64[0, 3])
x6 = leaf(i64[()], values=data([3]))
v0 = sin(x0)
backward(v0, cotangent(f32[3, 4], stride=(0, 1), seed=5))
""")


def test_a_guarded_tensor_is_the_same_tensor_elsewhere() -> None:
    guard = Guard()
    plain = [*materialise(PROGRAM.leaves).values(), *cotangents(PROGRAM)]
    guarded = [
        *materialise(PROGRAM.leaves, allocate=guard.allocate).values(),
        *cotangents(PROGRAM, allocate=guard.allocate),
    ]
    for a, b in zip(plain, guarded, strict=True):
        assert torch.equal(a, b)
        assert (a.dtype, a.stride(), a.storage_offset(), a.is_conj(), a.requires_grad, a.is_leaf) == (
            b.dtype, b.stride(), b.storage_offset(), b.is_conj(), b.requires_grad, b.is_leaf)  # fmt: skip
        assert a.untyped_storage().nbytes() == b.untyped_storage().nbytes()
        assert b.untyped_storage().data_ptr() % 64 == 0
    assert guarded[1].untyped_storage().data_ptr() == guarded[0].untyped_storage().data_ptr()


def test_writes_are_told_by_name_and_place() -> None:
    guard = Guard()
    named = materialise(PROGRAM.leaves, allocate=guard.allocate)
    assert list(guard.written(named)) == []
    with torch.no_grad():
        torch.as_strided(named["x0"], (1,), (1,), 0).fill_(9)  # a gap before its first element
    past_the_end(named["x2"]).fill_(1)
    assert list(guard.written(named)) == ["x0", "x1", "around x2"]


@pytest.mark.parametrize("far", [0, BAND_BYTES - 4])
def test_a_write_anywhere_in_a_band_is_seen(far: int) -> None:
    guard = Guard()
    x = guard.allocate(torch.zeros(8))
    past_the_end(x, far).fill_(1)
    assert list(guard.written({"x": x})) == ["around x"]


def test_what_was_written_is_restored_with_its_bands() -> None:
    guard = Guard()
    leaves = materialise(PROGRAM.leaves, allocate=guard.allocate)
    with torch.no_grad():
        leaves["x0"].fill_(7)
        past_the_end(leaves["x2"]).fill_(7)
    assert {*guard.written(leaves)} >= {"x0", "around x2"}
    guard.restore()
    assert not [*guard.written(leaves)]
    assert torch.equal(leaves["x0"], materialise(PROGRAM.leaves)["x0"])
