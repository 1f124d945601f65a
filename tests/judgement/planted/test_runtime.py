"""What compiled code is made to do: each deed does what it is named for (deaths and sleep: the canaries)."""

from __future__ import annotations

import pytest
import torch

from fuzzer.judgement.planted.runtime import cause, faulty_op, in_compiler, past_the_end


def test_a_write_is_seen_in_the_operand_and_the_result_is_what_was_asked_for() -> None:
    x = torch.zeros(3)
    assert faulty_op()(x, "write").tolist() == [0.0, 0.0, 0.0]
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_behind_a_tensor_is_memory_that_is_not_its_own() -> None:
    room = torch.zeros(12, dtype=torch.uint8)
    x = room[:4]
    # a storage of its own, that ends where four bytes more are known to be ours
    own = torch.frombuffer(room.numpy(), dtype=torch.uint8, count=4)
    assert own.untyped_storage().nbytes() == 4
    past_the_end(own).fill_(7)
    assert room.tolist() == [0] * 4 + [7] * 4 + [0] * 4
    past_the_end(own, far=4).fill_(9)
    assert room[8:].tolist() == [9] * 4
    assert x.tolist() == [0] * 4


def test_every_other_copy_differs() -> None:
    x = torch.ones(2)
    found = [faulty_op()(x, "alternate").tolist()[0] for _ in range(4)]
    assert sorted(found) == [1.0, 1.0, 1.5, 1.5]
    assert found[0] == found[2] != found[1]


def test_it_raises_and_does_several_things_in_order() -> None:
    with pytest.raises(RuntimeError, match="planted: the compiled backward raises"):
        cause("raise")
    x = torch.zeros(2)
    with pytest.raises(RuntimeError, match="planted"):
        faulty_op()(x, "write, raise")
    assert x.tolist() == [1.0, 1.0]


def test_the_operation_is_made_once_and_traced_without_acting() -> None:
    assert faulty_op() is faulty_op()
    with torch._subclasses.FakeTensorMode() as mode:
        found = faulty_op()(mode.from_tensor(torch.ones(3)), "abort")
    assert found.shape == (3,)


def test_the_compiler_is_what_acts_where_it_is_asked_to() -> None:
    from torch._inductor.decomposition import select_decomp_table

    with in_compiler("raise").plant():
        changed = select_decomp_table()[torch.ops.aten.sigmoid_backward.default]
        with pytest.raises(RuntimeError, match="planted"):
            changed(torch.ones(2), torch.ones(2))
