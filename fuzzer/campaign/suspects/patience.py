"""Writing to a ledger that is locked, damaged or deleted for a while: the finding is kept beside it until then."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fuzzer.campaign.plan import Plan
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.errors import MissingStore, StoreError
from fuzzer.ledger.store import Store, open_store

RETRY_SECONDS = 2.0  # after the five that SQLite itself waits for a lock
_T = TypeVar("_T")
BESIDE = "findings.db"  # in the campaign's folder


def require_ledgers(plan: Plan) -> None:
    """Read the ledger and those that are only read, so that a bad one is reported before anything runs. Raises
    StoreError."""
    with open_store(plan.db) as store:
        store.list()
    for path in plan.known:
        if not path.exists():
            raise MissingStore(f"there is no {path}: --known takes a ledger that exists")
        with open_store(path, create=False) as store:
            store.list()


def add_patiently(finding: Finding, plan: Plan, campaign: str, expired: Callable[[], bool]) -> bool:
    """Store a verified finding in the ledger as soon as that can be written; whether it was new. Raises StoreError once
    there is no time left.

    The finding is first stored in a ledger in the campaign's folder: `backfuzz merge` takes it from there if the
    campaign's ledger stays locked, damaged or deleted.
    """
    beside = plan.own(campaign) / BESIDE
    beside.parent.mkdir(parents=True, exist_ok=True)
    with open_store(beside) as store:
        store.add(finding)
    return write_patiently(plan.db, lambda store: store.add(finding), expired)


def write_patiently(db: Path, work: Callable[[Store], _T], expired: Callable[[], bool]) -> _T:
    """Do some work on a ledger as soon as that can be written, and return its result. Raises StoreError once there is
    no time left."""
    while True:
        try:
            with open_store(db) as store:
                return work(store)
        except StoreError:
            if expired():
                raise
            time.sleep(RETRY_SECONDS)
