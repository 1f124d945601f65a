"""Faults as a table."""

from __future__ import annotations

from fuzzer.commands.table import fault_table
from fuzzer.findings.faults import Fault, State

FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu",))


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    names = {width: [column.header for column in fault_table([FAULT], width).columns] for width in (80, 120, 160)}
    assert set(names[120]) - set(names[80]) == {"side"}
    assert set(names[160]) - set(names[120]) == {"first seen", "seen"}
