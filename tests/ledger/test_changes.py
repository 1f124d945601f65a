"""What became of a ledger's faults between two moments."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.ledger.changes import change_lines, changes, encode_changes
from fuzzer.ledger.faults import Fault, State

FAULT = Fault("F1", "sum loses a row", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu",))
FIXED = replace(FAULT, id="F2", state=State("fixed", fixed_in="2.14.0"))
NEW = replace(FAULT, id="F3", verdict="crashes", lives_on=("2.15.0 cpu",), gone_on=("2.13.0 cpu",))


def test_what_is_new_came_back_or_moved_is_told_apart() -> None:
    back = replace(FIXED, state=State("confirmed", note="came back on 2.15.0"))
    gone = replace(FAULT, state=State("fixed", fixed_in="2.15.0"))
    told = changes([FAULT, FIXED], [gone, back, NEW])
    assert (told.came_back, told.moved, told.new) == ((back,), ((FAULT.state, gone),), (NEW,))
    assert told.bad
    assert encode_changes(told) == {
        "came_back": ["F2"],
        "new": ["F3"],
        "moved": [{"fault": "F1", "from": "new", "to": "fixed 2.15.0"}],
    }
    assert list(change_lines(told)) == [
        "came back:",
        "  F2  S1  wrong  sum loses a row (cpu 2.13)",
        "new:",
        "  F3  S1  crashes  sum loses a row (cpu 2.15, not 2.13)",
        "moved:",
        "  F1  S1  wrong  sum loses a row (cpu 2.13): new -> fixed 2.15.0",
    ]


def test_that_nothing_changed_is_told_too() -> None:
    told = changes([FAULT, FIXED], [FAULT, FIXED])
    assert not told.bad
    assert list(change_lines(told)) == ["no fault is new, came back or moved"]


def test_what_moved_for_the_better_is_not_bad_and_what_became_one_with_another_is_not_told() -> None:
    told = changes([FAULT, NEW], [replace(FAULT, state=State("fixed", fixed_in="2.15.0"))])
    assert [fault.id for _, fault in told.moved] == ["F1"]
    assert not told.bad
