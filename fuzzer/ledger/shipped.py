"""The faults that come with backfuzz: the project's ledger without its evidence, which campaigns count as known.

`python -m fuzzer.ledger.shipped LEDGER` writes it from a ledger.
"""

from __future__ import annotations

import lzma
import sqlite3
import sys
import tempfile
from pathlib import Path

SHIPPED = Path(__file__).with_name("known.db.xz")
# What recognises a fault, names it and says its state stays: programs, marks, experiments, releases, history.
_EVIDENCE = (
    "update variant set original = program, attachments = '{}', note = '', "
    "diagnosis = json_remove(diagnosis, '$.excludes', '$.suspect')",
    "delete from occurrence",
    "delete from campaign",
    "delete from scope",
    "insert into variant_fts(variant_fts) values ('delete-all')",
)


def ship(ledger: Path, target: Path = SHIPPED) -> None:
    """Write the faults of a ledger, of the newest schema, as a packed one. Equal ledgers give equal files."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as source:
        source.backup(copy)
    for change in _EVIDENCE:
        copy.execute(change)
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "known.db"
        copy.execute("vacuum into ?", [str(small)])
        target.write_bytes(lzma.compress(small.read_bytes(), preset=9))
    copy.close()


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
