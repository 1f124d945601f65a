"""The faults that come with backfuzz."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.ledger.errors import CorruptStore, UnwritableStore
from fuzzer.ledger.shipped import SHIPPED, ship
from fuzzer.ledger.store import Store, open_store

LEDGER = Path(__file__).parents[2] / "findings.db"
HOW = "run scripts/known"


def told(store: Store) -> dict[str, object]:
    return {fault.id: (fault.state, fault.title) for fault in store.faults()}


def test_they_are_those_of_the_projects_ledger() -> None:
    with open_store(LEDGER, create=False) as project, open_store(SHIPPED, create=False) as shipped:
        assert told(shipped) == told(project), HOW
        assert {f.id for f in shipped.list()} == {f.id for f in project.list()}, HOW
        assert not any(f.attachments for f in shipped.list())
        assert not shipped.campaigns()


@pytest.mark.slow
def test_suspects_are_compared_with_them_as_with_the_ledger(tmp_path: Path) -> None:
    ship(LEDGER, tmp_path / "known.db.xz")
    assert (tmp_path / "known.db.xz").stat().st_size < 500_000
    with open_store(LEDGER, create=False) as project, open_store(tmp_path / "known.db.xz", create=False) as shipped:
        assert set(shipped.known_faults()) == set(project.known_faults())


def test_a_packed_ledger_is_only_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    with open_store(SHIPPED, create=False) as store:
        some = store.list()[0]
        with pytest.raises(UnwritableStore, match="packed and only read: merge it into another"):
            store.add(some)
    damaged = tmp_path / "known.db.xz"
    damaged.write_bytes(SHIPPED.read_bytes()[:1000])
    with pytest.raises(CorruptStore, match="is no packed ledger"):
        open_store(damaged)
