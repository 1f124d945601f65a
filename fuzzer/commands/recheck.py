"""`backfuzz recheck`: faults run again, here and now."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, DIFFERS, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option, workers_option
from fuzzer.ledger.faults import GONE, OPEN, SHOWS


@main.command()
@workers_option
@db_option
@json_option
@exit_codes
def recheck(workers: int | None, db: Path, as_json: bool) -> None:
    """Run every open or fixed fault again on this machine and its torch, store whether it shows, and move its state:
    gone from a release newer than all that showed it, it is fixed; fixed and there again, it came back.

    Exit codes: 0 run; 1 a fault came back; 2 nothing could run, or the ledger is missing; 130 interrupted.
    """
    release, rows, elsewhere = run_again(db, workers)
    _print(rows, elsewhere, release, as_json)
    if not any(row["outcome"] in (SHOWS, GONE) for row in rows):
        raise SystemExit(COULD_NOT_RUN)
    if any(row["came_back"] for row in rows):
        raise SystemExit(DIFFERS)


def run_again(db: Path, workers: int | None) -> tuple[str, list[dict[str, Any]], int]:
    """Run every open or fixed fault of a ledger here and store what came of it: the release of this torch, a row for
    each fault, and how many are of other devices."""
    from fuzzer.campaign.told.written import now
    from fuzzer.diagnosis.matrix import ask_of, moved, release_of, together, where_live
    from fuzzer.ledger.faults import release as numbered
    from fuzzer.ledger.store import open_store
    from fuzzer.trial.places import runs_here

    with open_store(db, create=False) as store:
        faults = {fault.id: fault for fault in store.faults() if fault.state.name in (*OPEN, "fixed")}
        variants = {fault: store.variants(fault) for fault in faults}
    python = Path(sys.executable)
    asked = {key: own for key, own in ask_of(variants).items() if runs_here(key[1])}
    told = where_live(python, asked, db, workers)
    release, rows = numbered(release_of(python)), list[dict[str, Any]]()
    with open_store(db) as store:
        for (name, device), outcomes in told.items():
            fault, outcome = store.fault(name), together(outcomes)
            state = moved(fault, release, device, outcome)
            if outcome in (SHOWS, GONE):
                store.note_life(name, release, device, outcome, now())
            if state is not None:
                store.triage(name, state, now(), "recheck")
            came_back = fault.state.name == "fixed" and state is not None
            rows.append({"fault": name, "title": fault.title, "device": device, "outcome": outcome,
                         "came_back": came_back, "state": str(state or fault.state)})  # fmt: skip
    return release, rows, len(faults.keys() - {name for name, _ in asked})


def _print(rows: list[dict[str, Any]], elsewhere: int, release: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        back = "  CAME BACK" if row["came_back"] else ""
        click.echo(f"{row['fault']}  {row['outcome']:6}  {row['state']}  {row['title']}{back}")
    click.echo(f"{outcome_line(release, rows)}; {elsewhere} are of other devices")


def outcome_line(release: str, rows: list[dict[str, Any]]) -> str:
    """How many of the faults that ran again show on a release, in a line."""
    outcomes = [row["outcome"] for row in rows]
    shows, gone = outcomes.count(SHOWS), outcomes.count(GONE)
    return f"torch {release}: {shows} show, {gone} are gone, {len(rows) - shows - gone} could not be told"
