"""What is drawn and looked at, by seed and number alone."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.execution.explore import program_task
from fuzzer.judgement.oracles import ORACLES
from tests.execution.light import LIGHT


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    asked = [bool(program_task(replace(LIGHT, seed=5), i).also) for i in range(2000)]
    assert asked == [bool(program_task(replace(LIGHT, seed=5, routes=("vjp",)), i).also) for i in range(2000)]
    assert asked != [bool(program_task(replace(LIGHT, seed=6), i).also) for i in range(2000)]
    (share,) = {oracle.share for oracle in ORACLES if oracle.share}
    assert 0.5 * share < sum(asked) / 2000 < 2 * share
