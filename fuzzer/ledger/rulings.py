"""A person's rulings on which variants are one fault, and which are not: merges and splits.

A ruling speaks of variants, whose ids are the same in every ledger, and outranks their marks. Of two rulings on the
same pair of variants the newer holds. These are functions of an open database, within the caller's transaction.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlite_utils import Database  # slow to import, and only a type here

MERGE, SPLIT = "merge", "split"


@dataclass(frozen=True)
class Ruling:
    """A person's word on some variants: those of one group are one fault, those of different groups are not.

    kind    MERGE (one group) or SPLIT (the variants that were split off, and the rest).
    fault   the fault that was merged into, or split.  reason   the person's; "" where none was given.
    undone  when it was undone; "" while it stands.
    """

    kind: str
    fault: str
    groups: tuple[tuple[str, ...], ...]
    time: str
    who: str
    reason: str = ""
    undone: str = ""

    @property
    def id(self) -> str:
        """The same in every ledger that holds this ruling."""
        return hashlib.sha256(f"{self.time} {self.who} {self.kind} {self.groups}".encode()).hexdigest()[:10]

    @property
    def variants(self) -> set[str]:
        """All variants that it names."""
        return {name for group in self.groups for name in group}

    @property
    def because(self) -> str:
        """The reason as the end of a line of history."""
        return f": {self.reason}" if self.reason else ""


_COLUMNS = "kind, fault, groups, time, who, reason, undone"


def all_rulings(db: Database) -> list[Ruling]:
    """Every ruling, also those that were undone, oldest first; none in a ledger that is older than rulings."""
    if db.conn.execute("select 1 from sqlite_master where type = 'table' and name = 'ruling'").fetchone() is None:
        return []
    rows = db.conn.execute(f"select {_COLUMNS} from ruling order by time, rowid").fetchall()
    return [Ruling(kind, fault, tuple(map(tuple, json.loads(groups))), *more) for kind, fault, groups, *more in rows]


def standing(db: Database) -> list[Ruling]:
    """The rulings that hold, oldest first."""
    return [ruling for ruling in all_rulings(db) if not ruling.undone]


def record(db: Database, ruling: Ruling) -> None:
    """Store a ruling, in place of the same one that was undone. Nothing is carried out (`regroup`)."""
    groups = json.dumps(ruling.groups)
    values = [ruling.id, ruling.kind, ruling.fault, groups, ruling.reason, ruling.time, ruling.who, ruling.undone]
    db.conn.execute(
        "insert or replace into ruling (id, kind, fault, groups, reason, time, who, undone) "
        "values (?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )


def set_before(db: Database, ruling: Ruling, before: dict[str, Any]) -> None:
    """Store the plain values from which an undo restores what the ruling changed here."""
    db.conn.execute("update ruling set before = ? where id = ?", [json.dumps(before), ruling.id])


def before(db: Database, ruling: Ruling) -> dict[str, Any] | None:
    """The values that `set_before` stored; None where the ruling changed nothing here."""
    [(told,)] = db.conn.execute("select before from ruling where id = ?", [ruling.id]).fetchall()
    found: dict[str, Any] | None = json.loads(told)
    return found


def mark_undone(db: Database, ruling: Ruling, time: str) -> None:
    """Let a ruling hold no more."""
    db.conn.execute("update ruling set undone = ? where id = ?", [time, ruling.id])


def word_on(db: Database, variant: str) -> tuple[set[str], set[str]]:
    """(the variants that belong to one fault with this one, those that belong to another fault), as people ruled."""
    fellows, strangers = set[str](), set[str]()
    for ruling in standing(db):
        if variant in ruling.variants:
            own = {name for group in ruling.groups if variant in group for name in group} - {variant}
            others = ruling.variants - own - {variant}
            fellows, strangers = (fellows - others) | own, (strangers - own) | others
    return fellows, strangers


def homes(db: Database, variants: Collection[str]) -> list[str]:
    """The faults that hold any of these variants, oldest first; variants that the ledger lacks have none."""
    held = "select fault from variant where id in (select value from json_each(?))"
    found = db.conn.execute(
        f"select id from fault where id in ({held}) order by created, id", [json.dumps([*variants])]
    )
    return [fault for (fault,) in found]


def kept_apart(db: Database, faults: Iterable[str]) -> set[frozenset[str]]:
    """The pairs among these faults that people ruled to be two."""
    named, apart = set(faults), set[frozenset[str]]()
    for ruling in standing(db) if len(named) > 1 else []:
        held = [named & set(homes(db, group)) for group in ruling.groups]
        apart -= {frozenset(pair) for some in held for pair in combinations(some, 2)}
        apart |= {
            frozenset((one, other))
            for some, others in combinations(held, 2)
            for one in some
            for other in others - {one}
        }
    return apart
