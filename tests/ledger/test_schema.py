"""The schema: every step leads to the same, and the views are there to be read."""

from __future__ import annotations

import re
import shlex
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlite_utils import Database
from sqlite_utils.cli import cli

from fuzzer.ledger.schema import MIGRATIONS
from fuzzer.ledger.store import CampaignRecord, open_store
from tests.ledger import varied
from tests.ledger.found import TWO_OPS, finding


def test_the_views_say_what_is_in_the_ledger_and_sqlite_utils_searches_it(tmp_path: Path) -> None:
    path = tmp_path / "findings.db"
    with open_store(path) as opened:
        opened.add(finding(TWO_OPS, created="2026-01-01", campaign="c1"))
        place = {"torch": "2.13.0", "device": "cpu"}
        totals = {"programs": 9, "findings": {"wrong": 2, "raises": 1}}
        opened.add_campaign(CampaignRecord("c1", "backfuzz fuzz", 7, "2026-01-01", 90.0, totals, place))
        opened.set_scope(varied.scope(*varied.SHAPES, finding=opened.list()[0].id))
    db = Database(sqlite3.connect(path))
    assert set(db.view_names()) == {"faults", "variants", "occurrences", "campaigns", "scopes", "neighbours", "rulings"}
    [fault], [variant], [occurrence], [campaign] = (list(db[f"{name}s"].rows) for name in
                                                    ("fault", "variant", "occurrence", "campaign"))  # fmt: skip
    assert fault["title"] == "zero gradient of torch.slice_scatter(end=2) + torch.sum"
    assert (fault["state"], fault["occurrences"], fault["lives_on"]) == ("new", 1, "2.13.0 cpu")
    assert (variant["fault"], variant["class"], variant["device"]) == (fault["id"], "wrong", "cpu")
    assert (occurrence["variant"], occurrence["campaign"]) == (variant["id"], "c1")
    assert (campaign["programs"], campaign["torch"], campaign["minutes"]) == (9, "2.13.0", 1.5)
    assert campaign["new_findings"] == "2 wrong, 1 raises"
    [scope], neighbours = list(db["scopes"].rows), list(db["neighbours"].rows)
    assert (scope["fault"], scope["formula"]) == (fault["id"], "n / (n - k), n = x0.shape[1], k = x1.shape[1]")
    assert [row["outcome"] for row in neighbours] == ["fails"] * len(varied.SHAPES)
    assert (neighbours[1]["changed_to"], neighbours[1]["largest_relative_error"]) == ("n=40", 1.0)
    assert [row["id"] for row in db["variant"].search("slice_scatter")] == [variant["id"]]
    assert [row["id"] for row in db["fault"].search("gradient")] == [fault["id"]]
    db.conn.close()


def recipes() -> list[list[str]]:
    """The commands of docs/recipes.md."""
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    return [shlex.split(line)[1:] for line in page.splitlines() if line.startswith("    sqlite-utils ")]


@pytest.mark.parametrize("recipe", recipes(), ids=range(len(recipes())))
def test_every_recipe_answers(recipe: list[str], tmp_path: Path) -> None:
    path = tmp_path / "findings.db"
    with open_store(path) as opened:
        opened.add(finding(TWO_OPS, created="2026-01-01", campaign="c1"))
        totals = {"programs": 9, "progress": [{"seconds": 1.0, "programs": 1, "new": {}, "features": {}}]}
        opened.add_campaign(CampaignRecord("c1", "backfuzz fuzz", 7, "2026-01-01", 2.0, totals, {}))
    done = CliRunner().invoke(cli, [str(path) if word == "findings.db" else word for word in recipe])
    assert done.exit_code == 0, done.output


def test_the_page_of_recipes_names_the_columns_of_each_view(tmp_path: Path) -> None:
    db = Database(sqlite3.connect(":memory:", isolation_level=None))
    for step in MIGRATIONS:
        step(db)
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|$", page, re.MULTILINE))
    assert told == {view: ", ".join(c.name for c in db[view].columns) for view in db.view_names()}


def test_a_new_ledger_takes_every_step() -> None:
    db = Database(sqlite3.connect(":memory:", isolation_level=None))
    for step in MIGRATIONS:
        step(db)
    assert "natural" in db["variant"].columns_dict
    assert {"fault", "variant", "occurrence", "campaign", "mark", "life", "history"} <= set(db.table_names())
