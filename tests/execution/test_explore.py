"""What is drawn and looked at, by seed and number alone."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.execution.explore import program_task
from fuzzer.execution.messages import Task
from fuzzer.judgement.oracles import ORACLES
from tests.execution.light import LIGHT


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    asked = [bool(program_task(replace(LIGHT, seed=5), i).also) for i in range(2000)]
    assert asked == [bool(program_task(replace(LIGHT, seed=5, routes=("vjp",)), i).also) for i in range(2000)]
    assert asked != [bool(program_task(replace(LIGHT, seed=6), i).also) for i in range(2000)]
    (share,) = {oracle.share for oracle in ORACLES if oracle.share}
    assert 0.5 * share < sum(asked) / 2000 < 2 * share


def test_the_share_that_is_judged_before_code_is_chosen_by_seed_and_number_alone() -> None:
    task = Task(seed=5, staged=0.6)
    staged = [program_task(task, i).place.subject.backend for i in range(1000)]
    assert set(staged) == {"inductor", "inductor:ir"}
    assert 550 < staged.count("inductor:ir") < 650
    assert staged == [program_task(replace(task, routes=("vjp",)), i).place.subject.backend for i in range(1000)]
    assert {program_task(replace(task, staged=0.0), i).place for i in range(100)} == {task.place}
