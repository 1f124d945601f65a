"""The big programs that `scripts/bench minimize` starts from."""

from __future__ import annotations

import pytest
from benches.minimize import programs_in

from fuzzer.export.script import repro
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.interpret import materialise, to_function
from fuzzer.language.text import show
from tests.ledger.found import finding

STARTS = programs_in("starts")


def test_programs_are_chosen_by_name() -> None:
    assert list(programs_in("starts", ["relu_accuracy", "no such"])) == ["relu_accuracy"]
    assert len(programs_in("planted")) > 20


@pytest.mark.parametrize("name", STARTS)
def test_a_start_is_big_says_what_is_wrong_with_it_and_runs_in_eager(name: str) -> None:
    program = STARTS[name]
    assert len(program.nodes) >= 20
    assert any(word in " ".join(program.comment) for word in FINDINGS)
    assert len(to_function(program)(*materialise(program.leaves).values())) == len(program.outputs)
    compile(repro(finding(show(program))), name, "exec")
