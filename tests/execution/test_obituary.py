"""What the end of a worker says of the program that it was at."""

from __future__ import annotations

import pytest

from fuzzer.execution.journal import DIED_DRAWING
from fuzzer.execution.obituary import died_of, number_undrawn, report_of_death
from fuzzer.judgement.trial import DIED, TIMED_OUT, Observation, Place
from fuzzer.judgement.verdict import EAGER_DIES, side_by_class
from tests.execution.worker_faults import TEXT


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_death_in_eager_is_a_crash_of_eager(direction: str) -> None:
    seen = Observation(DIED, signal="SIGSEGV", frame="at::native::kernel")
    (verdict,) = report_of_death(Place(), seen, TEXT, f"reference {direction}").verdicts
    assert str(verdict.signature) == f"eager_survives/crashes/{direction}/eager alone: SIGSEGV at::native::kernel"
    assert side_by_class(verdict.signature) == EAGER_DIES


@pytest.mark.parametrize(
    ("outcome", "name", "phase"),
    [
        (DIED, "SIGKILL", "reference forward"),  # as the kernel does where memory is short
        (TIMED_OUT, "", "reference forward"),
        (DIED, "SIGSEGV", "reference judge"),
        (DIED, "SIGSEGV", "judge"),
    ],
)
def test_what_may_be_the_machines_doing_or_ours_accuses_nobody(outcome: str, name: str, phase: str) -> None:
    told = report_of_death(Place(), Observation(outcome, signal=name), TEXT, phase)
    assert told.verdict == "rejected"
    assert (died_of(told), number_undrawn(told)) == ("", None)


def test_a_death_while_drawing_names_the_number_and_then_what_it_died_of() -> None:
    seen = Observation(DIED, signal="SIGSEGV")
    first = report_of_death(Place(), seen, "# program 17 of seed 3, not drawn yet\n", "begin")
    assert (first.verdict, number_undrawn(first), died_of(first)) == ("rejected", 17, "")
    second = report_of_death(Place(), seen, TEXT, DIED_DRAWING)
    assert (second.verdict, number_undrawn(second), died_of(second)) == ("rejected", None, TEXT)
