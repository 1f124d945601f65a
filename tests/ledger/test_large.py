"""A ledger of many occurrences answers soon."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzzer.commands import main
from fuzzer.ledger.store import open_store
from tests.ledger.found import RELU, finding

MANY, VARIANTS = 50_000, 50


def fill(path: Path, of: int) -> None:
    """A ledger of so many occurrences of a few variants; `of` tells one ledger's from another's."""
    with open_store(path) as store:
        variants = [finding(RELU.replace("seed=1", f"seed={2 * n + of}")) for n in range(VARIANTS)]
        for variant in variants:
            store.add(replace(variant, created=f"2026-01-01T00:00:00+00:00-{of}"))
        known = [(store.fault_of(variant.id).id, variant.id) for variant in variants]
        rows = ((f"{of}-{i}", *known[i % VARIANTS], f"# {i}\n", "c", "2.13.0", "cpu", "2026", 1) for i in range(MANY))
        with store._writing() as db:
            db.conn.executemany("insert into occurrence values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def seconds(*arguments: object) -> float:
    """CPU seconds of a command, in this process."""
    started = time.process_time()
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return time.process_time() - started


@pytest.mark.slow
def test_it_is_listed_in_two_seconds_and_merged_in_ten(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    fill(ours, 0)
    fill(theirs, 1)
    report = ("report", "--db", ours, "--out", tmp_path / "report.html")
    findings = ("faults", "--findings", "--db", ours)
    for command in (findings, ("faults", "--db", ours), (*findings, "relu", "mul"), report):
        assert seconds(*command) < 2, command
    assert seconds("merge", theirs, "--db", ours) < 10
    with open_store(ours) as store:
        assert sum(fault.occurrences for fault in store.faults()) == 2 * (MANY + VARIANTS)
