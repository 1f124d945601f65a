"""A ledger that cannot be used now, or is gone: it is waited for, and what was found is kept beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fuzzer.campaign.plan import Plan
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.store import Store, open_store

RETRY_SECONDS = 2.0  # after the five that SQLite itself waits for a lock
_T = TypeVar("_T")
BESIDE = "findings.db"  # in the campaign's folder


def require_ledgers(plan: Plan) -> None:
    """Read the ledger and those that are only read: a bad one is told before anything runs. Raises StoreError."""
    with open_store(plan.db) as store:
        store.list()
    for path in plan.known:
        with open_store(path, create=False) as store:
            store.list()


def add_patiently(finding: Finding, plan: Plan, campaign: str, expired: Callable[[], bool]) -> bool:
    """Store a verified finding in the ledger, whenever that can be written; whether it was new. Raises StoreError once
    there is no time left. It is in a ledger in the campaign's folder first, for `backfuzz merge` where that of the
    campaign is locked, damaged or deleted to the end."""
    beside = plan.own(campaign) / BESIDE
    beside.parent.mkdir(parents=True, exist_ok=True)
    with open_store(beside) as store:
        store.add(finding)
    return write_patiently(plan.db, lambda store: store.add(finding), expired)


def write_patiently(db: Path, work: Callable[[Store], _T], expired: Callable[[], bool]) -> _T:
    """What some work on a ledger gives, done once that can be written. Raises StoreError once there is no time left."""
    while True:
        try:
            with open_store(db) as store:
                return work(store)
        except StoreError:
            if expired():
                raise
            time.sleep(RETRY_SECONDS)
