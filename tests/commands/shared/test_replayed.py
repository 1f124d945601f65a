"""What became of a program that was replayed."""

from __future__ import annotations

import pytest

from fuzzer.commands.shared.replayed import Replayed, replayed, unreadable
from fuzzer.judgement.verdict import Verdict
from fuzzer.language.text import ParseError
from fuzzer.workers.messages import Report
from tests.commands.calls import FINDING, RELU

WRONG = Report(
    RELU, (Verdict(FINDING.signature, FINDING.detail),), seconds={"reference": 1.0, "subject": 2.0, "cpu": 9}
)
EITHER = ("wrong", "agree")


@pytest.mark.parametrize(
    ("found", "ran", "passed", "head"),
    [
        (replayed("a.prog", Report(RELU)), True, True, "agree"),
        (replayed("a.prog", WRONG), True, False, "wrong"),
        (replayed("a.prog", WRONG, EITHER), True, True, "wrong (expected: wrong or agree)"),
        (replayed("a.prog", Report(RELU), ("wrong",)), True, False, "agree (expected: wrong)"),
        (replayed("a.prog", Report(RELU, built="route: aoti")), True, True, "agree (built: route: aoti)"),
        (replayed("a.prog", Report(RELU, rejected="no op"), ("wrong",)), False, False, "rejected (no op)"),
        (unreadable("a.prog", ParseError(4, 1, "a name")), False, False, "unreadable (line 4, column 1: a name)"),
        (unreadable("a.prog", OSError("a.prog: no text")), False, False, "unreadable (no text)"),
    ],
)
def test_a_program_passes_where_it_ran_and_showed_what_it_may(
    found: Replayed, ran: bool, passed: bool, head: str
) -> None:
    assert (found.ran, found.passed, found.head) == (ran, passed, head)


def test_a_row_and_the_evidence_hold_what_the_oracles_said() -> None:
    found = replayed("a.prog", WRONG)
    assert found.row["verdicts"] == [{"signature": str(FINDING.signature), "detail": FINDING.detail}]
    assert (found.row["class"], found.row["seconds"], found.row["expected"]) == ("wrong", 3.0, ["agree"])
    assert found.evidence == [f"  {FINDING.signature}", f"    {FINDING.detail}"]
