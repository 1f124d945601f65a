"""The schema: every step leads to the same, and the views are there to be read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlite_utils import Database

from fuzzer.findings.schema import MIGRATIONS
from fuzzer.findings.store import CampaignRecord, open_store
from tests.findings.found import TWO_OPS, finding


def test_the_views_say_what_is_in_the_ledger_and_sqlite_utils_searches_it(tmp_path: Path) -> None:
    path = tmp_path / "findings.db"
    with open_store(path) as opened:
        opened.add(finding(TWO_OPS, created="2026-01-01", campaign="c1"))
        place = {"torch": "2.13.0", "device": "cpu"}
        opened.add_campaign(CampaignRecord("c1", "backfuzz fuzz", 7, "2026-01-01", 2.0, {"programs": 9}, place))
    db = Database(sqlite3.connect(path))
    assert set(db.view_names()) == {"faults", "variants", "occurrences", "campaigns"}
    [fault], [variant], [occurrence], [campaign] = (list(db[f"{name}s"].rows) for name in
                                                    ("fault", "variant", "occurrence", "campaign"))  # fmt: skip
    assert fault["title"] == "silent: zero gradient of torch.slice_scatter + torch.sum"
    assert (fault["state"], fault["occurrences"], fault["lives_on"]) == ("new", 1, "2.13.0 cpu")
    assert (variant["fault"], variant["class"], variant["device"]) == (fault["id"], "wrong", "cpu")
    assert (occurrence["variant"], occurrence["campaign"]) == (variant["id"], "c1")
    assert (campaign["programs"], campaign["torch"]) == (9, "2.13.0")
    assert [row["id"] for row in db["variant"].search("slice_scatter")] == [variant["id"]]
    assert [row["id"] for row in db["fault"].search("gradient")] == [fault["id"]]
    db.conn.close()


def test_a_new_ledger_takes_every_step() -> None:
    db = Database(sqlite3.connect(":memory:", isolation_level=None))
    for step in MIGRATIONS:
        step(db)
    assert "natural" in db["variant"].columns_dict
    assert {"fault", "variant", "occurrence", "campaign", "mark", "life", "history"} <= set(db.table_names())
