"""Which ledger has a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.commands.shared.holder import holding, require_own
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, call, refused


def test_a_fault_is_looked_for_in_the_ledger_and_then_among_those_that_come_along(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(SHIPPED, create=False) as store:
        known = store.faults()[0].id
    assert holding(FINDING.id, db) == db
    assert not capsys.readouterr().err
    assert holding(known, db) == SHIPPED
    assert "among the faults that come with backfuzz" in capsys.readouterr().err
    assert holding(known, db.parent / "no.db") == SHIPPED
    assert holding("F0000000", db) == db


def test_a_fault_that_comes_along_is_taken_over_before_it_is_changed(db: Path) -> None:
    with open_store(SHIPPED, create=False) as store:
        known = store.faults()[0].id
    told = f"{known} is not in {db}: it comes with backfuzz, and `backfuzz merge --shipped` takes it over"
    for words in ((known, "confirmed"), ("--merge", FINDING.id, known), ("--undo", known)):
        assert refused(call("triage", *words, "--db", db)) == f"backfuzz: {told}"
    require_own([FINDING.id, "F0000000"], db)
    assert ": 1 fault(s)" not in call("merge", "--shipped", "--db", db).stdout
    assert call("triage", known, "confirmed", "--db", db).stdout.startswith(f"{known}  confirmed")
