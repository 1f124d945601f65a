"""Merge another ledger into this one. A second merge of the same ledger changes nothing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from sqlite_utils import Database

from fuzzer.ledger import faults, file, regroup, rulings
from fuzzer.ledger.diagnosed import diagnosed_by, keep_earlier
from fuzzer.ledger.faults import State
from fuzzer.ledger.rows import decode, from_row


@dataclass(frozen=True)
class Merged:
    """The numbers of new faults, variants, occurrences (programs) and campaigns."""

    faults: int
    variants: int
    occurrences: int
    campaigns: int


def merge(db: Database, other: Database) -> Merged:
    """Take over the contents of another ledger, within the caller's transaction.

    A variant joins the fault to which its marks tie it. A state set there holds where nobody set one here; where both
    did, ours stays and the history holds theirs. Where both counted a program, the larger count holds. Where both
    diagnosed a finding, the newer version of the diagnosis holds. People's merges and splits of faults hold here too,
    of two on the same variants the newer.
    """
    before = _counts(db)
    for row in _rows(other, "select * from campaign"):
        if not _holds(db, "campaign", row["id"]):
            file.put(db, "campaign", row)
    fresh = regroup.take_over(db, rulings.all_rulings(other))
    touched = set[str]()
    for row in _rows(other, "select * from variant order by created, id"):
        if not _holds(db, "variant", row["id"]):
            file.put(db, "variant", row | {"fault": ""})
            told = other.conn.execute("select mark, probe from mark where variant = ?", [row["id"]]).fetchall()
            marks = [name for name, probe in told if not probe]
            touched.add(faults.join(db, row["id"], row["created"], marks, [name for name, probe in told if probe]))
            continue
        if row["natural"] != "null":
            db.conn.execute(
                "update variant set natural = ? where id = ? and natural = 'null'", [row["natural"], row["id"]]
            )
            touched.add(faults.one(db, "select fault from variant where id = ?", row["id"])[0])
        _take_diagnosis(db, row)
    for row in _rows(other, "select * from scope"):
        db.conn.execute(
            "insert into scope values (:variant, :torch, :device, :created, :told) "
            "on conflict (variant, torch, device) do update "
            "set created = excluded.created, told = excluded.told where excluded.created > created",
            row,
        )
    for ruling in fresh:
        regroup.carry_out(db, ruling)
    ours = _our_faults(db, other)
    _take_occurrences(db, other, ours)
    for theirs, mine in ours.items():
        _take_history(db, other, theirs, mine)
    for fault in sorted(touched):
        faults.refresh(db, fault)
    after = _counts(db)
    return Merged(*(now - then for now, then in zip(after, before, strict=True)))


def _rows(db: Database, question: str, *values: str) -> list[dict[str, Any]]:
    cursor = db.conn.execute(question, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _holds(db: Database, table: str, name: object) -> bool:
    return db.conn.execute(f"select 1 from {table} where id = ?", [name]).fetchone() is not None


def _counts(db: Database) -> list[int]:
    return [faults.one(db, f"select count(*) from {t}")[0] for t in ("fault", "variant", "occurrence", "campaign")]


def _take_diagnosis(db: Database, theirs: dict[str, Any]) -> None:
    """For a finding in both ledgers take the diagnosis of the newer version of the diagnoser; of the same version
    ours."""
    [mine] = _rows(db, "select * from variant where id = ?", theirs["id"])
    if mine["diagnosis"] == theirs["diagnosis"]:
        return
    known, told = decode(from_row(mine)), decode(from_row(theirs))
    if diagnosed_by(told) > diagnosed_by(known):
        told = replace(told, attachments=keep_earlier(told, known))
        faults.set_diagnosis(db, known, told)


def _our_faults(db: Database, other: Database) -> dict[str, str]:
    """For each fault of theirs, our fault of its oldest variant."""
    found: dict[str, str] = {}
    mine = dict(db.conn.execute("select id, fault from variant").fetchall())
    for variant, fault in other.conn.execute("select id, fault from variant order by created desc, id desc"):
        found[fault] = mine[variant]
    return found


_AT_ONCE = 1000  # rows


def _take_occurrences(db: Database, other: Database, ours: dict[str, str]) -> None:
    mine = dict(db.conn.execute("select id, fault from variant").fetchall())
    theirs = other.conn.execute(
        "select id, fault, variant, program, campaign, torch, device, created, times from occurrence"
    )
    rows = ((row[0], mine.get(row[2], ours.get(row[1])), *row[2:]) for row in theirs)
    while some := list(itertools.islice(rows, _AT_ONCE)):
        db.conn.executemany(
            "insert into occurrence values (?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update "
            "set times = excluded.times where excluded.times > times",
            [row for row in some if row[1] is not None],
        )


def _take_history(db: Database, other: Database, theirs: str, mine: str) -> None:
    """Take over a fault's first time, where it lives, and its history."""
    created = faults.one(other, "select created from fault where id = ?", theirs)
    db.conn.execute("update fault set created = ?1 where id = ?2 and created > ?1", [*created, mine])
    lives = other.conn.execute("select torch, device, shows, seen from life where fault = ?", [theirs]).fetchall()
    for torch, device, shows, seen in lives:
        faults.note_life(db, mine, torch, device, shows, seen)
    for time, what, who in other.conn.execute(
        "select time, what, who from history where fault = ? order by time", [theirs]
    ).fetchall():
        faults.remember(db, mine, time, what, who)
    said, here = faults.state_of(other, theirs), faults.state_of(db, mine)
    if said != here and here == State("new"):
        db.conn.execute(
            "update fault set state = ?, issue = ?, note = ?, fixed_in = ? where id = ?",
            [said.name, said.issue, said.note, said.fixed_in, mine],
        )
