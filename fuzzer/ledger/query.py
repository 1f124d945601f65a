"""Filters of variants, as SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlite_utils import Database  # slow to import, and only a type here


@dataclass(frozen=True)
class Wanted:
    """Filters of variants; "" admits all.

    verdict   the class.  state   of the fault.  op   in the program.  fault, id   ids.
    torch, device   where it was found; a release may be shortened.  lives_on   a release where the fault reproduces.
    text      words that all must occur in the stored variant or its fault's title, each as the beginning of a word.
    """

    verdict: str = ""
    state: str = ""
    op: str = ""
    torch: str = ""
    device: str = ""
    lives_on: str = ""
    text: str = ""
    fault: str = ""
    id: str = ""

    def conditions(self) -> dict[str, Any]:
        """SQL conditions on the table `variant`, each with the value for its `{}`."""
        found = {
            "case when unsupported = '' then class else 'unsupported' end = {}": self.verdict,
            "fault in (select id from fault where state = {})": self.state,
            "program like {}": self.op and f"% = {self.op}(%",
            "json_extract(place, '$.torch') like {}": self.torch and f"{self.torch}%",
            "json_extract(place, '$.device') like {}": self.device and f"{self.device}%",
            "fault in (select fault from life where shows = 'shows' and torch like {})": self.lives_on
            and f"{self.lives_on}%",
            "fault = {}": self.fault,
            "id = {}": self.id,
            "(rowid in (select rowid from variant_fts where variant_fts match {0}) or fault in (select fault.id from "
            "fault join fault_fts on fault.rowid = fault_fts.rowid where fault_fts match {0}))": _match(self.text),
        }
        return {condition: value for condition, value in found.items() if value}


def _match(text: str) -> str:
    """Words as a query of FTS5: all of them, each as the beginning of a word, none of them an operator."""
    return " ".join('"{}"*'.format(word.replace('"', '""')) for word in text.split() if re.search(r"\w", word))


def read_rows(db: Database, wanted: Wanted, columns: str = "*") -> list[dict[str, Any]]:
    """Rows of the table `variant`, oldest first."""
    chosen = wanted.conditions()
    where = "".join(f" and {condition.format(f':v{i}')}" for i, condition in enumerate(chosen))
    values = {f"v{i}": value for i, value in enumerate(chosen.values())}
    cursor = db.conn.execute(f"select {columns} from variant where 1{where} order by created, id", values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
