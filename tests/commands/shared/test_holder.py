"""Which ledger has a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.commands.shared.holder import holding
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING


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
