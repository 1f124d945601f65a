"""A ledger that cannot be used: what was found is kept beside it. Campaigns that wait for one are in test_loop."""

from __future__ import annotations

import pytest

from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects.patience import BESIDE, add_patiently, write_patiently
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.store import open_store
from tests.campaign.fakes import waiting
from tests.commands.calls import FINDING


def test_a_finding_that_the_ledger_never_took_lies_in_one_beside_it(plan: Plan) -> None:
    plan.db.write_text("no database")
    with pytest.raises(StoreError, match="no SQLite database"):
        add_patiently(FINDING, plan, "c1", lambda: True)
    with open_store(plan.own("c1") / BESIDE, create=False) as store:
        assert [found.id for found in store.list()] == [FINDING.id]
    with pytest.raises(StoreError, match="no SQLite database"):
        write_patiently(plan.db, lambda store: store.set_natural(FINDING), lambda: True)


def test_a_ledger_that_is_deleted_later_takes_no_finding_with_it(plan: Plan) -> None:
    assert add_patiently(FINDING, plan, "c1", lambda: True)
    assert not add_patiently(FINDING, plan, "c1", lambda: True)
    triage = waiting(plan)
    plan.db.unlink()
    beside = triage.beside()
    assert beside == plan.own("c1") / BESIDE
    with open_store(plan.db) as store, open_store(beside) as kept:
        assert store.merge(kept).variants == 1
    assert triage.beside() is None
    assert not beside.exists()
