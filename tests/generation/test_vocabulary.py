"""Named sets of ops, and programs drawn from them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from fuzzer.execution.explore import draw_program
from fuzzer.execution.messages import Task
from fuzzer.generation.draft import Rejected
from fuzzer.generation.generate import CLOSING
from fuzzer.generation.vocabulary import SETS, parse_ops
from fuzzer.language.interpret import UnknownOp
from fuzzer.language.ops import OPS


@pytest.mark.parametrize("name", SETS)
def test_a_set_names_each_op_once_and_only_ops_that_exist(name: str) -> None:
    assert set(SETS[name]) <= OPS.keys()
    assert len(set(SETS[name])) == len(SETS[name])


def test_every_op_that_may_close_a_program_is_core() -> None:
    """Else programs of the set would end in fewer layouts than others."""
    assert set(CLOSING) <= set(SETS["core"])


def test_a_list_names_sets_and_ops_in_order_and_each_once() -> None:
    assert parse_ops("sort, core ,sum") == ("sort", *SETS["core"])


@pytest.mark.parametrize("text", ["", "core,", "pointwise"])
def test_what_is_no_op_is_refused(text: str) -> None:
    with pytest.raises(UnknownOp, match="no op or set of ops"):
        parse_ops(text)


def test_programs_of_a_set_hold_no_other_op() -> None:
    task, programs = Task(ops=parse_ops("core"), seed=1), []
    for number in range(40):
        with suppress(Rejected):
            programs.append(draw_program(task, number))
    assert len(programs) >= 36
    seen = {node.op for program in programs for node in program.nodes}
    assert seen <= set(SETS["core"])
    assert len(seen) > 20
