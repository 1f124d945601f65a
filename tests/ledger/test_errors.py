"""What SQLite's errors become."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from fuzzer.ledger.errors import CorruptStore, LockedStore, store_errors


def test_an_error_of_sqlite_is_one_line_that_names_the_file() -> None:
    with pytest.raises(CorruptStore, match=r"^a\.db is damaged: a row holds no JSON"), store_errors(Path("a.db")):
        json.loads("{")
    locked = sqlite3.OperationalError("database is locked")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
    with pytest.raises(LockedStore, match=r"^a\.db is locked by another program"), store_errors(Path("a.db")):
        raise locked


def test_damage_that_sqlite_tells_in_no_text_is_told_as_damage() -> None:
    with pytest.raises(CorruptStore, match=r"^a\.db is damaged: its names are not text"), store_errors(Path("a.db")):
        b"\xc9\x01".decode()
