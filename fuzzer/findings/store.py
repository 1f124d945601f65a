"""The ledger: verified findings, and the campaigns they came from, in one SQLite file.

The file is tracked in git, so it is written only when something is added or changed: a store that is opened, read and
closed stays byte-identical, and a missing one is created by the first write. One writer at a time, default journal
mode. Every error is a `StoreError` whose message is one line for people; none of them loses what is stored.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from sqlite_utils import Database
from sqlite_utils.db import Table

from fuzzer.judgement.verdict import FINDINGS, Comparison, Finding, Signature
from fuzzer.language.text import parse

TRIAGE = ("new", "confirmed", "duplicate", "fixed", "dismissed")
_LEAST_RUNS = 3  # a finding enters only after it reproduced in all of at least this many fresh processes
BUSY_SECONDS = 5.0  # a campaign holds the write lock for milliseconds; longer means another program keeps it
_APPLICATION_ID = 0x62667A7A  # "bfzz" in SQLite's application_id: tells our files from any other database


class StoreError(ValueError):
    """A store that cannot do what was asked; the message is one line for people."""


class MissingStore(StoreError):
    """There is no file to read."""


class LockedStore(StoreError):
    """Another program kept the write lock for longer than `BUSY_SECONDS`."""


class CorruptStore(StoreError):
    """The file is damaged, or no store of ours."""


class NewerStore(StoreError):
    """The file's schema is newer than this backfuzz."""


class UnwritableStore(StoreError):
    """The file, its folder or its disk refuses to be opened or written."""


class UnknownFinding(StoreError):
    """No finding has this id."""


class AmbiguousFinding(StoreError):
    """Several findings have ids that begin like this."""


class UnverifiedFinding(StoreError):
    """A finding that did not reproduce in every one of at least `_LEAST_RUNS` runs, or that says nonsense."""


@dataclass(frozen=True)
class CampaignRecord:
    """One run of `backfuzz fuzz`. `totals` is the JSON object of its last line; `seconds` is its wall time."""

    id: str
    command: str
    seed: int
    started: str
    seconds: float = 0.0
    totals: dict[str, Any] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- migrations

Migration = Callable[[Database], None]
MIGRATIONS: list[Migration] = []  # in order; the schema version of a file is the number of those it has seen


def _migration(step: Migration) -> Migration:
    """Append a step to `MIGRATIONS`. A step that was released is never edited: a new one is added."""
    MIGRATIONS.append(step)
    return step


@_migration
def _findings_and_campaigns(db: Database) -> None:
    _table(db, "findings").create(
        {
            "id": str,
            "oracle": str,
            "class": str,
            "direction": str,
            "pattern": str,
            "detail": str,
            "original": str,
            "program": str,
            "place": str,
            "reproduced": int,
            "runs": int,
            "comparisons": str,
            "stages": str,
            "ablation": str,
            "campaign": str,
            "created": str,
            "triage": str,
            "note": str,
            "seen": int,
            "last_seen": str,
        },
        pk="id",
    )
    _table(db, "campaigns").create(
        {
            "id": str,
            "command": str,
            "seed": str,  # text: seeds may exceed SQLite's 64 bits
            "started": str,
            "seconds": float,
            "totals": str,
            "place": str,
        },
        pk="id",
    )


@_migration
def _add_original_detail(db: Database) -> None:
    _table(db, "findings").add_column("before", str, not_null_default="")


@_migration
def _add_diagnosis(db: Database) -> None:
    for name in ("diagnosis", "attachments"):
        _table(db, "findings").add_column(name, str, not_null_default="{}")


def _table(db: Database, name: str) -> Table:
    return cast(Table, db[name])


# ---------------------------------------------------------------- rows


def encode(finding: Finding) -> dict[str, Any]:
    """A finding as plain values for JSON; numbers that JSON does not know are the strings "nan", "inf" and "-inf"."""
    signature = finding.signature
    fields = asdict(finding)
    del fields["signature"]
    return {
        "id": finding.id,
        "oracle": signature.oracle,
        "class": signature.verdict,
        "direction": signature.direction,
        "pattern": signature.pattern,
        **fields,
        "comparisons": [_plain(asdict(comparison)) for comparison in finding.comparisons],
    }


def decode(fields: dict[str, Any]) -> Finding:
    """The finding that `encode` wrote; other keys are ignored."""
    return Finding(
        signature=Signature(fields["oracle"], fields["class"], fields["direction"], fields["pattern"]),
        comparisons=tuple(map(_comparison, fields["comparisons"])),
        **{key: fields[key] for key in _PLAIN_FIELDS},
    )


_PLAIN_FIELDS = (
    *("detail", "original", "program", "place", "reproduced", "runs", "stages", "ablation"),
    *("campaign", "created", "triage", "note", "before", "diagnosis", "attachments"),
)
_DIAGNOSED = ("stages", "ablation", "diagnosis", "attachments")
_JSON_COLUMNS = ("place", "comparisons", "totals", *_DIAGNOSED)


def _plain(comparison: dict[str, Any]) -> dict[str, Any]:
    def value(v: Any) -> Any:
        if isinstance(v, tuple):
            return list(v)
        return str(v) if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))) else v

    return {key: value(v) for key, v in comparison.items()}


def _comparison(fields: dict[str, Any]) -> Comparison:
    numbers = {key: float(fields[key]) for key in ("eager", "compiled", "float64", "floor")}
    return Comparison(fields["name"], tuple(fields["index"]), wrong=fields["wrong"], total=fields["total"], **numbers)


def _to_row(fields: dict[str, Any]) -> dict[str, Any]:
    # orders are kept: stages stand in pipeline order
    return {key: json.dumps(v) if key in _JSON_COLUMNS else v for key, v in fields.items()}


def _from_row(row: dict[str, Any]) -> dict[str, Any]:
    return {key: json.loads(v) if key in _JSON_COLUMNS else v for key, v in row.items()}


def _require_verified(finding: Finding) -> None:
    """Raise `UnverifiedFinding` unless this finding may enter a store."""
    if finding.signature.verdict not in FINDINGS:
        raise UnverifiedFinding(f"{finding.id}: {finding.signature.verdict!r} is no class of finding")
    if not finding.reproduced == finding.runs >= _LEAST_RUNS:
        raise UnverifiedFinding(
            f"{finding.id}: reproduced {finding.reproduced} of {finding.runs}; a finding is stored only when it "
            f"reproduced in all of at least {_LEAST_RUNS} runs"
        )
    _require_triage(finding.triage)
    for text in (finding.program, finding.original):
        try:
            parse(text)
        except ValueError as error:
            raise UnverifiedFinding(f"{finding.id}: its program does not parse: {error}") from None


def _require_triage(state: str) -> None:
    if state not in TRIAGE:
        raise StoreError(f"unknown triage state {state!r}; known are {', '.join(TRIAGE)}")


# ---------------------------------------------------------------- the store


class Store:
    """Findings and campaigns of one file. Made by `open_store`; close it, or use it in a `with` block."""

    def __init__(self, path: Path, db: Database | None, current: bool = True):
        self.path = path
        self._db = db
        self._current = current  # else what is open is a copy in memory, of the newest schema

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._db is not None:
            self._db.conn.close()
            self._db = None

    def add(self, finding: Finding) -> bool:
        """Store a verified finding. False if its id was known: then only its `seen` and `last_seen` change."""
        _require_verified(finding)
        with self._writing() as db:
            rows = _table(db, "findings")
            row = next(rows.rows_where("id = ?", [finding.id]), None)
            if row is None:
                rows.insert(_to_row(encode(finding)) | {"seen": 1, "last_seen": finding.created})
            else:
                last = max(row["last_seen"], finding.created)
                rows.update(finding.id, {"seen": row["seen"] + 1, "last_seen": last})
            return row is None

    def get(self, prefix: str) -> Finding:
        """The finding with this id, or whose id alone begins like this."""
        return decode(_from_row(self._row(prefix)))

    def seen(self, prefix: str) -> int:
        """How often campaigns have shown this finding."""
        return int(self._row(prefix)["seen"])

    def list(self, verdict: str | None = None, triage: str | None = None) -> list[Finding]:
        """All findings, oldest first; of one class and one triage state where these are given."""
        wanted = {key: value for key, value in (("class", verdict), ("triage", triage)) if value is not None}
        where = " and ".join(f"[{key}] = :{key}" for key in wanted) or None
        with self._reading() as db:
            if db is None:
                return []
            rows = _table(db, "findings").rows_where(where, wanted or None, order_by="created, id")
            return [decode(_from_row(row)) for row in rows]

    def set_triage(self, prefix: str, state: str, note: str | None = None) -> Finding:
        """Set the triage state (one of `TRIAGE`) and, where given, the note; returns the finding as it is now."""
        _require_triage(state)
        finding = self.get(prefix)
        changed = replace(finding, triage=state, note=finding.note if note is None else note)
        if changed != finding:
            with self._writing() as db:
                _table(db, "findings").update(finding.id, {"triage": changed.triage, "note": changed.note})
        return changed

    def set_diagnosis(self, finding: Finding) -> bool:
        """Store stages, ablation, diagnosis and attachments of a known finding. False if they were as they are."""
        known = self.get(finding.id)
        if all(getattr(known, name) == getattr(finding, name) for name in _DIAGNOSED):
            return False
        with self._writing() as db:
            row = _to_row({name: getattr(finding, name) for name in _DIAGNOSED})
            _table(db, "findings").update(finding.id, row)
        return True

    def add_campaign(self, campaign: CampaignRecord) -> None:
        """Store a campaign, or replace what was stored under its id."""
        with self._writing() as db:
            row = _to_row(asdict(campaign)) | {"seed": str(campaign.seed)}
            _table(db, "campaigns").upsert(row, pk="id")

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """All campaigns, oldest first."""
        with self._reading() as db:
            rows = [] if db is None else list(_table(db, "campaigns").rows_where(order_by="started, id"))
        return tuple(CampaignRecord(**_from_row(row) | {"seed": int(row["seed"])}) for row in rows)

    def _row(self, prefix: str) -> dict[str, Any]:
        if not re.fullmatch("[0-9a-f]{1,10}", prefix):
            raise UnknownFinding(f"{prefix!r} is no finding's id: an id is up to 10 hexadecimal digits")
        with self._reading() as db:
            rows = [] if db is None else list(_table(db, "findings").rows_where("id like ?", [prefix + "%"], "id"))
        if not rows:
            raise UnknownFinding(f"no finding {prefix} in {self.path}; `backfuzz list` shows those there are")
        if len(rows) > 1:
            ids = ", ".join(row["id"] for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
            raise AmbiguousFinding(f"{prefix} could be {ids}; give more digits")
        return rows[0]

    @contextmanager
    def _reading(self) -> Iterator[Database | None]:
        with _store_errors(self.path):
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[Database]:
        """One transaction: everything in the block is stored, or nothing is."""
        with _store_errors(self.path):
            if self._db is None or not self._current:
                self.close()
                self._db, self._current = _connect(self.path), True
                _migrate(self._db, self.path)
            with _transaction(self._db) as db:
                yield db


def open_store(path: str | Path, create: bool = True) -> Store:
    """The store in this file. A missing file is `MissingStore` without `create`, else made by the first write.

    A file of an older schema is read as if it were new, and brought up to date by the first write, in one transaction.
    """
    path = Path(path)
    if not path.exists():
        if not create:
            raise MissingStore(f"there is no {path}: run `backfuzz fuzz` to make one, or name another with --db")
        if not path.parent.is_dir():
            raise UnwritableStore(f"{path} cannot be made: there is no folder {path.parent}")
        return Store(path, None)
    if path.is_dir():
        raise CorruptStore(f"{path} is a folder, not a store of findings")
    with _store_errors(path):
        db = _connect(path)
        try:
            current = _is_current(db, path)
            return Store(path, db if current else _migrated_copy(db, path), current)
        except BaseException:
            db.conn.close()
            raise


def _connect(path: Path) -> Database:
    # no implicit transactions: those of `_transaction` are the only ones, and DDL takes part in them
    return Database(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None))


@contextmanager
def _transaction(db: Database) -> Iterator[Database]:
    db.conn.execute("begin immediate")
    try:
        yield db
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("rollback")
        raise
    if db.conn.in_transaction:
        db.conn.execute("commit")


def _pragma(db: Database, name: str) -> int:
    return int(db.conn.execute(f"pragma {name}").fetchone()[0])


def _migrated_copy(db: Database, path: Path) -> Database:
    """The database of the newest schema, in memory; the file is closed and stays as it is."""
    copy = Database(sqlite3.connect(":memory:", isolation_level=None))
    db.conn.backup(copy.conn)
    db.conn.close()
    _migrate(copy, path)
    return copy


def _is_current(db: Database, path: Path) -> bool:
    """Whether the schema is the newest. Raises CorruptStore for a file that is not ours, NewerStore."""
    version = _pragma(db, "user_version")
    if _pragma(db, "application_id") != _APPLICATION_ID and (version or _pragma(db, "schema_version")):
        raise CorruptStore(f"{path} is a database of some other program, not a store of findings")
    if version > len(MIGRATIONS):
        raise NewerStore(
            f"{path} has schema {version} and this backfuzz knows up to {len(MIGRATIONS)}: update backfuzz to read it"
        )
    return version == len(MIGRATIONS)


def _migrate(db: Database, path: Path) -> None:
    """Bring the schema up to date; a database that is up to date is only read."""
    if _is_current(db, path):
        return
    with _transaction(db):
        for step in MIGRATIONS[_pragma(db, "user_version") :]:  # read again: another process may have been faster
            step(db)
        db.conn.execute(f"pragma application_id = {_APPLICATION_ID}")
        db.conn.execute(f"pragma user_version = {len(MIGRATIONS)}")


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
def _store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a `StoreError` that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # extended codes keep theirs below
        kind, advice = _EXPLANATIONS.get(code, (CorruptStore, "cannot be used"))
        raise kind(f"{path} {advice} ({error})") from error
    except json.JSONDecodeError as error:
        raise CorruptStore(f"{path} is damaged: a row holds no JSON ({error})") from error
