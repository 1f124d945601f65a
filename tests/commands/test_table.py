"""Faults as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.commands.table import by_promise, devices, fault_table, releases, short_issue, urgency
from fuzzer.findings.faults import Fault, State

LIVES = ("2.13.0 cpu", "2.13.0 cuda", "2.11.0 cuda")
FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), LIVES, ("2.15.0 cpu",))
APART = Fault("F2", "t", "unsupported", "", "", "", "2026", 1, 1, State("new"))


def test_a_fault_tells_its_devices_and_the_releases_on_which_it_lives() -> None:
    assert devices(FAULT) == ["cpu", "cuda"]
    assert releases(FAULT) == ["2.11.0", "2.13.0"]


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    names = {width: [column.header for column in fault_table([FAULT], width).columns] for width in (80, 120)}
    assert set(names[120]) - set(names[80]) == {"first seen", "seen"}


def test_the_most_urgent_comes_first() -> None:
    often = replace(FAULT, id="F3", occurrences=9)
    known = replace(FAULT, id="F4", occurrences=99, state=State("known"))
    assert [f.id for f in sorted((APART, known, FAULT, often), key=urgency)] == ["F3", "F1", "F4", "F2"]


def test_what_is_not_promised_comes_apart() -> None:
    assert by_promise([APART, FAULT]) == ([FAULT], [APART])


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("https://github.com/pytorch/pytorch/issues/180164", "pytorch#180164"),
        ("https://github.com/pytorch/pytorch/pull/7", "pytorch#7"),
        ("https://example.org/x", "https://example.org/x"),
    ],
)
def test_an_issue_is_short(url: str, short: str) -> None:
    assert short_issue(url) == short
