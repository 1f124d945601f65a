"""Named sets of ops, and programs drawn from them."""

from __future__ import annotations

import pytest

from fuzzer.execution.worker import Task, draw
from fuzzer.generate import CLOSING, Rejected
from fuzzer.interpret import UnknownOp
from fuzzer.ops import OPS
from fuzzer.vocabulary import SETS, named


@pytest.mark.parametrize("name", SETS)
def test_a_set_names_each_op_once_and_only_ops_that_exist(name: str) -> None:
    assert set(SETS[name]) <= OPS.keys()
    assert len(set(SETS[name])) == len(SETS[name])


def test_every_op_that_may_close_a_program_is_core() -> None:
    """Else programs of the set would end in fewer layouts than others."""
    assert set(CLOSING) <= set(SETS["core"])


def test_a_list_names_sets_and_ops_in_order_and_each_once() -> None:
    assert named("sort, core ,sum") == ("sort", *SETS["core"])


@pytest.mark.parametrize("text", ["", "core,", "pointwise"])
def test_what_is_no_op_is_refused(text: str) -> None:
    with pytest.raises(UnknownOp, match="no op or set of ops"):
        named(text)


def test_programs_of_a_set_hold_no_other_op() -> None:
    task, seen = Task(ops=named("core"), seed=1), set()
    for number in range(40):
        try:
            seen |= {node.op for node in draw(task, number).nodes}
        except Rejected:
            continue
    assert seen <= set(SETS["core"])
    assert len(seen) > 20
