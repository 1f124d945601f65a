"""Programs drawn from a set of ops."""

from __future__ import annotations

from contextlib import suppress

from fuzzer.generation.draft import Rejected
from fuzzer.generation.sets import SETS, parse_ops
from fuzzer.trial.draw import draw_program
from fuzzer.workers.messages import Task


def test_programs_of_a_set_hold_no_other_op() -> None:
    task, programs = Task(ops=parse_ops("core"), seed=1), []
    for number in range(40):
        with suppress(Rejected):
            programs.append(draw_program(task, number))
    assert len(programs) >= 36
    seen = {node.op for program in programs for node in program.nodes}
    assert seen <= set(SETS["core"])
    assert len(seen) > 20
