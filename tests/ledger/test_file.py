"""The file: transactions and rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fuzzer.ledger.file import connect, put, transaction


def test_put_inserts_a_row_and_then_changes_only_the_columns_that_it_names(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db")
    db.conn.execute("create table t (id text primary key, a int, b int)")
    put(db, "t", {"id": "x", "a": 1, "b": 2})
    put(db, "t", {"id": "x", "b": 3})
    assert db.conn.execute("select * from t").fetchall() == [("x", 1, 3)]


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db")
    db.conn.execute("create table t (id text primary key)")
    with pytest.raises(sqlite3.IntegrityError), transaction(db):
        db.conn.executemany("insert into t values (?)", [("x",), ("x",)])
    assert db.conn.execute("select count(*) from t").fetchone() == (0,)
