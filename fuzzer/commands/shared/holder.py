"""Which ledger has a fault: the one named, or the one that comes with backfuzz."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click

from fuzzer.language.errors import UsageError
from fuzzer.ledger.errors import UnknownFinding
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store


def require_own(references: Iterable[str], db: Path) -> None:
    """Raise UsageError for a fault or finding that comes with backfuzz and is not in this ledger, which alone can be
    changed."""
    for reference in references:
        if not _has(db, reference) and _has(SHIPPED, reference):
            raise UsageError(
                f"{reference} is not in {db}: it comes with backfuzz, and `backfuzz merge --shipped` takes it over"
            )


def holding(reference: str, db: Path) -> Path:
    """The ledger that has this fault or finding: this one, or else the one that comes with backfuzz, which is told."""
    if _has(db, reference) or not _has(SHIPPED, reference):
        return db
    click.echo(f"{reference}: not in {db}, but among the faults that come with backfuzz", err=True)
    return SHIPPED


def _has(path: Path, reference: str) -> bool:
    """Whether a ledger exists and has this fault or finding."""
    if not path.exists():
        return False
    with contextlib.suppress(UnknownFinding), open_store(path, create=False) as store:
        store.get(reference)
        return True
    return False
