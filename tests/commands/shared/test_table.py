"""Faults as a table."""

from __future__ import annotations

import pytest

from fuzzer.commands.shared.table import Console, fault_table, finding_table, print_proposals
from fuzzer.ledger.faults import Fault, State
from fuzzer.ledger.proposals import Proposal

FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu",))


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    names = {width: [column.header for column in fault_table([FAULT], width).columns] for width in (80, 120, 160)}
    assert set(names[120]) - set(names[80]) == {"side"}
    assert set(names[160]) - set(names[120]) == {"first seen", "seen"}


def test_a_finding_has_a_row_with_what_differs_and_the_state_of_its_fault(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "f1", "fault": "F1", "class": "wrong", "where": "2.13.0 cpu", "state": "known"}
    rows = [row | {"oracle": "gradients_agree", "direction": "backward", "pattern": "all-zero"}]
    Console().print(finding_table(rows))
    told = ["f1", "F1", "wrong", "known", "2.13.0", "cpu", "backward", "all-zero", "gradients_agree"]
    assert capsys.readouterr().out.splitlines()[1].split() == told


def test_no_color_leaves_colours_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        Console().print(fault_table([FAULT], 80))
        assert ("\x1b[31m" in capsys.readouterr().out) == coloured


def test_a_table_that_nobody_reads_ends_as_a_pipe_does() -> None:
    with pytest.raises(BrokenPipeError):
        Console().on_broken_pipe()


def test_a_proposal_on_a_terminal_is_its_command_with_the_reason_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fuzzer.commands.shared.table._is_terminal", lambda told: True)
    print_proposals(
        [Proposal("merge", ("F1", "F2"), (), "why not"), Proposal("split", ("F1",), ("a1",), "two kernels")]
    )
    lines = ["backfuzz triage --merge F1 F2", "  why not", "backfuzz triage --split F1 a1", "  two kernels"]
    assert capsys.readouterr().out.splitlines() == [*lines, "2 proposal(s): 1 merge(s), 1 split(s)"]
