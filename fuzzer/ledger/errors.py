"""The errors of a ledger: every one is a `StoreError` whose message is one line for people."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzzer.language.errors import UsageError


class StoreError(UsageError):
    """A store cannot do the requested operation; the message is one line for people."""


class MissingStore(StoreError):
    """There is no file to read."""


class LockedStore(StoreError):
    """Another program kept the write lock for longer than `file.BUSY_SECONDS`."""


class CorruptStore(StoreError):
    """The file is damaged, or is not one of our stores."""


class NewerStore(StoreError):
    """The file's schema is newer than this backfuzz."""


class UnwritableStore(StoreError):
    """The file, its folder or its disk refuses to be opened or written."""


class UnknownFinding(StoreError):
    """No finding and no fault has this id."""


class AmbiguousFinding(StoreError):
    """Several findings or faults have ids that begin like this."""


class UnverifiedFinding(StoreError):
    """A finding that did not reproduce in each of `rows.LEAST_RUNS` runs or more, or of an invalid class or program."""


_EXPLANATIONS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (LockedStore, "is locked by another program (another campaign?); try again when it is done"),
    sqlite3.SQLITE_LOCKED: (LockedStore, "is locked by another program (another campaign?); try again when it is done"),
    sqlite3.SQLITE_NOTADB: (CorruptStore, "is no SQLite database; move it away, or name another with --db"),
    sqlite3.SQLITE_CORRUPT: (CorruptStore, "is damaged; restore it (git checkout) or try sqlite3's .recover"),
    sqlite3.SQLITE_CANTOPEN: (UnwritableStore, "cannot be opened; check its permissions and those of its folder"),
    sqlite3.SQLITE_READONLY: (UnwritableStore, "is read-only; check its permissions and those of its folder"),
    sqlite3.SQLITE_PERM: (UnwritableStore, "may not be opened; check its permissions"),
    sqlite3.SQLITE_FULL: (UnwritableStore, "cannot grow: the disk is full"),
    sqlite3.SQLITE_IOERR: (UnwritableStore, "cannot be read or written: the disk reports an error"),
    sqlite3.SQLITE_ERROR: (CorruptStore, "does not have the tables of its schema"),
}


@contextmanager
def row_errors(path: Path) -> Iterator[None]:
    """Turn the exceptions of reading malformed rows into a `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RecursionError) as error:
        raise CorruptStore(f"{path} is damaged: a row holds unexpected values ({error!r})") from error


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a `StoreError` whose message names a remedy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without the extended part
        kind, advice = _EXPLANATIONS.get(code, (CorruptStore, "cannot be used"))
        raise kind(f"{path} {advice} ({error})") from error
    except json.JSONDecodeError as error:
        raise CorruptStore(f"{path} is damaged: a row holds no JSON ({error})") from error
    except UnicodeDecodeError as error:
        raise CorruptStore(f"{path} is damaged: its names are not text ({error})") from error
