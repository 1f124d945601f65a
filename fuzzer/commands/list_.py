"""`backfuzz list`: the findings of the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.exits import exit_codes
from fuzzer.commands.group import main
from fuzzer.commands.options import db_option, json_option, state_option
from fuzzer.judgement.verdict import FINDINGS, UNSUPPORTED

_COLUMNS = "id, fault, oracle, class, direction, pattern, unsupported, place"


@main.command(name="list")
@click.argument("text", nargs=-1)
@click.option("--class", "verdict", type=click.Choice(FINDINGS), default=None, help="Only this class.")
@state_option
@click.option("--op", default=None, help="Only those whose program has this op.")
@click.option("--torch", default=None, help="Only those found on this release.")
@click.option("--device", default=None, help="Only those found on this device.")
@click.option("--lives-on", default=None, help="Only those whose fault shows on this release.")
@db_option
@json_option
@exit_codes
def list_findings(text: Sequence[str], db: Path, as_json: bool, **filters: str | None) -> None:
    """List the findings of the ledger, or those in which all words of TEXT occur.

    Exit codes: 0 listed, be it none; 2 the ledger is missing or cannot be read.
    """
    from fuzzer.findings.query import Wanted
    from fuzzer.findings.rows import encode
    from fuzzer.findings.store import open_store

    wanted = Wanted(text=" ".join(text), **{name: value or "" for name, value in filters.items()})
    with open_store(db, create=False) as store:
        states = {fault.id: fault.state.name for fault in store.faults()}
        rows = list(store.rows(wanted, _COLUMNS))
        found = [encode(f) for f in store.list(wanted)] if as_json else []
    if as_json:
        fault_of = {row["id"]: row["fault"] for row in rows}
        told = [f | {"fault": fault_of[f["id"]], "state": states[fault_of[f["id"]]]} for f in found]
        click.echo(json.dumps(told))
        return
    promised = [row for row in rows if not _unsupported(row)]
    for row in promised:
        click.echo(_line(row, states))
    apart = [row for row in rows if _unsupported(row)]
    if apart:
        click.echo(f"{len(apart)} of what torch does not promise ({UNSUPPORTED}):")
        for row in apart:
            click.echo(_line(row, states))
    click.echo(f"{len(rows)} finding(s)")


def _unsupported(row: dict[str, Any]) -> bool:
    return bool(row["unsupported"]) or row["class"] == UNSUPPORTED


def _line(row: dict[str, Any], states: dict[str, str]) -> str:
    place = json.loads(row["place"])
    where = f"torch {place.get('torch', '?')} {place.get('device', '?')}"
    shown = UNSUPPORTED if _unsupported(row) else row["class"]
    signature = "/".join((row["oracle"], row["class"], row["direction"] or "-", row["pattern"]))
    return f"{row['id']}  {row['fault']}  {shown:18} {states[row['fault']]:11} {where:24} {signature}"
