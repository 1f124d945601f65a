"""What programs cost alone and in batches."""

from __future__ import annotations

import pytest
from benches.batch import Arm, arm_named, batch_figures

from fuzzer.language.errors import UsageError
from fuzzer.workers.messages import Report


def report(cpu: float, **told: object) -> Report:
    return Report("program(1)", seconds={"cpu": cpu, "build": 0.5}, **told)  # type: ignore[arg-type]


def test_arms_are_named_by_size_and_share() -> None:
    assert [arm_named(text) for text in ("16", "32:0.75")] == [Arm(16), Arm(32, 0.75)]
    assert list(map(str, (Arm(16), Arm(32, 0.75)))) == ["16", "32:0.75"]


@pytest.mark.parametrize("text", ["", "0", "x", "16:2", "16:x"])
def test_what_is_no_arm_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no arm"):
        arm_named(text)


def test_arms_are_compared_with_the_first() -> None:
    alone = {0: report(3.0), 1: report(5.0), 2: Report("", rejected="killed")}  # a death tells no seconds
    mixed = {0: report(1.0), 1: report(0.6, stage="ir", gradients=3), 2: Report("", rejected="killed")}
    found = batch_figures({Arm(1): alone, Arm(32, 0.5): mixed})
    assert found["cpu_seconds_per_program"] == {"1": 4.0, "32:0.5": 0.8}
    assert found["faster"] == {"1": 1.0, "32:0.5": 5.0}
    assert (found["at_a_stage"], found["judged"]) == ({"1": 0, "32:0.5": 1}, {"1": 2, "32:0.5": 2})
    assert found["differing"] == []  # what was built in one arm only is not compared
    other = mixed | {0: report(1.0, gradients=3)}
    assert batch_figures({Arm(1): alone, Arm(32, 0.5): other})["differing"] == [
        {"arm": "32:0.5", "number": 0, "in": ["gradients"]}
    ]
