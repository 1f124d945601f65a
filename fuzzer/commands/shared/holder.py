"""Which ledger has a fault: the one named, or the one that comes with backfuzz."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from fuzzer.ledger.errors import UnknownFinding
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store


def holding(reference: str, db: Path) -> Path:
    """The ledger that has this fault or finding: this one, or else the one that comes with backfuzz, which is told."""
    for path in (db, SHIPPED):
        if not path.exists():
            continue
        with contextlib.suppress(UnknownFinding), open_store(path, create=False) as store:
            store.get(reference)
            if path == SHIPPED:
                click.echo(f"{reference}: not in {db}, but among the faults that come with backfuzz", err=True)
            return path
    return db
