"""The ledger's file: connecting, one transaction at a time, and bringing an older file up to date."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from fuzzer.ledger import schema
from fuzzer.ledger.errors import CorruptStore, NewerStore

BUSY_SECONDS = 5.0  # a campaign holds the write lock for milliseconds; any longer and another program has it
_APPLICATION_ID = 0x62667A7A  # "bfzz" in SQLite's application_id, which marks our files


PACKED = ".xz"  # a ledger of this suffix is compressed, and only read


def connect(path: Path) -> Database:
    """The database in this file; a missing file is created. A packed one is unpacked in memory. Raises CorruptStore."""
    if path.suffix == PACKED:
        held = sqlite3.connect(":memory:", isolation_level=None)
        try:
            held.deserialize(lzma.decompress(path.read_bytes()))
        except lzma.LZMAError as error:
            raise CorruptStore(f"{path} is no packed ledger: {error}") from None
        return Database(held)
    # no implicit transactions: only those of `transaction`, and DDL takes part in them
    return Database(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None))


@contextmanager
def transaction(db: Database) -> Iterator[Database]:
    """Everything in the block is stored, or nothing is; no other process writes meanwhile."""
    db.conn.execute("begin immediate")
    try:
        yield db
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("rollback")
        raise
    if db.conn.in_transaction:
        db.conn.execute("commit")


def put(db: Database, table: str, row: dict[str, Any]) -> None:
    """Insert a row, or set the given columns of the row with its id. Commits nothing by itself."""
    names = [f"[{name}]" for name in row]
    if db.conn.execute(f"select 1 from {table} where id = ?", [row["id"]]).fetchone():
        changes = ", ".join(f"{name} = ?" for name in names)
        db.conn.execute(f"update {table} set {changes} where id = ?", [*row.values(), row["id"]])
    else:
        places = ", ".join("?" * len(names))
        db.conn.execute(f"insert into {table} ({', '.join(names)}) values ({places})", list(row.values()))


def _pragma(db: Database, name: str) -> int:
    return int(db.conn.execute(f"pragma {name}").fetchone()[0])


def migrated_copy(db: Database, path: Path) -> Database:
    """A copy of the database in memory, with the newest schema; the file is closed and stays as it is."""
    copy = Database(sqlite3.connect(":memory:", isolation_level=None))
    db.conn.backup(copy.conn)
    db.conn.close()
    migrate(copy, path)
    return copy


def is_current(db: Database, path: Path) -> bool:
    """Whether the schema is the newest. Raises CorruptStore for a file that is not ours, NewerStore."""
    version = _pragma(db, "user_version")
    if _pragma(db, "application_id") != _APPLICATION_ID and (version or db.table_names()):
        raise CorruptStore(f"{path} is a database of some other program, not a store of findings")
    if version > len(schema.MIGRATIONS):
        raise NewerStore(
            f"{path} has schema {version} and this backfuzz knows up to {len(schema.MIGRATIONS)}: "
            "update backfuzz to read it"
        )
    return version == len(schema.MIGRATIONS)


def migrate(db: Database, path: Path) -> None:
    """Bring the schema up to date; a database that is up to date is only read."""
    if is_current(db, path):
        return
    with transaction(db):
        # read again: another process may have been faster
        for step in schema.MIGRATIONS[_pragma(db, "user_version") :]:
            step(db)
        db.conn.execute(f"pragma application_id = {_APPLICATION_ID}")
        db.conn.execute(f"pragma user_version = {len(schema.MIGRATIONS)}")
