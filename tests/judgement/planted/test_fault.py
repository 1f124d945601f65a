"""What a fault is: in force for a while, or a change of what was recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from fuzzer.judgement.planted.fault import Fault, combined, unchanged
from fuzzer.judgement.trial import RAN, Observation

SEEN = Observation(RAN, seconds=1.0)


def logging(log: list[str], name: str) -> Fault:
    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        log.append(f"{name} planted")
        yield
        log.append(f"{name} gone")

    return Fault(plant, lambda seen: replace(seen, seconds=seen.seconds * 2))


def test_a_fault_by_itself_does_nothing() -> None:
    with Fault().plant():
        assert Fault().tamper(SEEN) is unchanged(SEEN) is SEEN
    assert Fault().side == "subject"


def test_faults_together_are_in_force_together_and_change_one_after_the_other() -> None:
    log: list[str] = []
    both = combined(logging(log, "a"), logging(log, "b"))
    with both.plant():
        assert log == ["a planted", "b planted"]
    assert log[2:] == ["b gone", "a gone"]
    assert both.tamper(SEEN).seconds == 4.0
