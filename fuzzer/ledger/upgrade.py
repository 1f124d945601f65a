"""The upgrade of a ledger of findings alone: variants, faults by their causes, and the states given in notes.

Migrations call these functions; the columns that the first one reads are gone afterwards.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from sqlite_utils import Database

from fuzzer.language.text import parse
from fuzzer.ledger import faults
from fuzzer.ledger.query import Wanted, read_rows
from fuzzer.ledger.rows import decode, from_row

_KNOWN = "known:"
_PYTORCH = "https://github.com/pytorch/pytorch"


def fill_faults(db: Database) -> None:
    """Put every variant into a fault, oldest first, with one occurrence; take states over from notes."""
    from fuzzer.judgement.promise import why_unsupported  # needs torch, which a ledger of the newest schema does not

    cursor = db.conn.execute("select * from variant order by created, id")
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    for row in rows:
        finding = decode(from_row(row))
        reason = why_unsupported(parse(finding.program), finding.signature.pattern)
        if reason:
            finding = replace(finding, unsupported=reason)
            db.conn.execute("update variant set unsupported = ? where id = ?", [reason, finding.id])
        faults.enter(db, finding)
        times = {"times": row["seen"]}
        db.conn.execute("update occurrence set times = :times where variant = :id", times | {"id": row["id"]})
    for row in rows:
        _take_over(db, row)


def join_anew(db: Database) -> None:
    """Put every variant, oldest first, into the fault that the present rule gives."""
    for (name,) in db.conn.execute("select id from variant order by created, id").fetchall():
        faults.assign(db, decode(from_row(read_rows(db, Wanted(id=name))[0])))


def promise_anew(db: Database) -> None:
    """Ask the present rule whether torch promises anything about findings that were called an internal operator's."""
    from fuzzer.judgement.promise import why_unsupported  # needs torch, which a ledger of the newest schema does not

    internal = "select id, program, pattern from variant where unsupported like 'operator %'"
    for id, program, pattern in db.conn.execute(internal).fetchall():
        reason = why_unsupported(parse(program), pattern)
        db.conn.execute("update variant set unsupported = ? where id = ?", [reason, id])


def _take_over(db: Database, row: dict[str, Any]) -> None:
    """Take over the note of a finding: its fault is known, with the issues that the note names."""
    if not row["note"].startswith(_KNOWN):
        return
    (fault,) = db.conn.execute("select fault from variant where id = ?", [row["id"]]).fetchone()
    (before,) = db.conn.execute("select issue from fault where id = ?", [fault]).fetchone()
    urls = list(dict.fromkeys([*before.split(), *_urls(row["note"])]))
    faults.set_state(db, fault, faults.State("known", " ".join(urls)), row["created"], "the note of " + row["id"])


def _urls(note: str) -> list[str]:
    """The issues and pull requests of pytorch that a note names."""
    told = re.split(r"(?=FlagGems)", note)[0]  # numbers behind another project's name are that project's
    pulls = re.findall(r"pull requests? (\d+)", told)
    return [f"{_PYTORCH}/issues/{n}" for n in re.findall(r"#(\d+)", told)] + [f"{_PYTORCH}/pull/{n}" for n in pulls]
