"""The Pythons that a command line names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuzzer.commands.shared.pythons import find_pythons, outcomes
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import GONE, SHOWS


def test_those_that_are_named_are_taken_and_without_a_name_all_this_one_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.diagnosis.matrix.every_python", lambda: [Path("a")])
    monkeypatch.setattr("fuzzer.diagnosis.matrix.find_python", lambda release: Path(release) if release < "3" else None)
    assert find_pythons([], []) == [Path("a"), Path(sys.executable)]
    assert find_pythons(["2.11.0"], [Path("b")]) == [Path("2.11.0"), Path("b")]
    with pytest.raises(UsageError, match="`scripts/fuzz --torch 3` makes one"):
        find_pythons(["3"], [])


def test_outcomes_are_counted() -> None:
    rows = [{"outcome": outcome} for outcome in (SHOWS, GONE, GONE, "not run: no op x")]
    assert outcomes(rows) == "1 reproduce, 2 are gone, 1 are unknown"
