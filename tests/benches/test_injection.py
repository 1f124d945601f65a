"""The bench of injected faults: what it counts as lost, and that a campaign loses nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benches.injection import INJECTIONS, Running, can_mount, fill_disk, inject_each, kill_parent

from fuzzer.campaign.suspects.shelf import Shelf
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.language.text import parse
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING


def test_what_is_neither_in_a_ledger_nor_on_a_shelf_is_lost(tmp_path: Path) -> None:
    own = tmp_path / "disk" / "own" / "campaigns" / "c1"
    own.mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    other = replace(FINDING, program=FINDING.program.replace("relu", "exp"))
    (tmp_path / "stored").write_text(f"{FINDING.id}\n{other.id}\n")
    kept = FINDING.program.replace("relu", "sin")
    rows = [{"class": "wrong", "text": text} for text in (FINDING.original, kept, "nowhere")]
    (own / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"class": "wr')
    with open_store(tmp_path / "disk" / "ledger.db") as store:
        store.add(FINDING)
    Shelf(own).put(Suspect(parse(kept), FINDING.signature))
    running = Running(tmp_path)
    assert running.lost() == (1, 1)
    assert running.left_over() == 0
    (tmp_path / "disk" / "own" / "pool-x").mkdir()
    assert running.left_over() == 1


@pytest.mark.slow
def test_a_campaign_loses_nothing_whatever_befalls_it(tmp_path: Path) -> None:
    """The quickest of the injections; `scripts/bench injection` runs all."""
    for name in ("each", "full", "kills"):
        (tmp_path / name).mkdir()
    assert {"SIGSEGV", "fork server stopped", "ledger deleted"} <= set(INJECTIONS)
    found = [*inject_each(["SIGKILL", "SIGSTOP", "fork server killed", "no compiler"], tmp_path / "each")]
    assert found[3].note == "1 line(s)"
    if can_mount(tmp_path / "full"):
        found.append(fill_disk(tmp_path / "full"))
    found.append(kill_parent(1, tmp_path / "kills", 0))
    assert {(row.lost_findings, row.lost_suspects, row.left_over) for row in found} == {(0, 0, 0)}
