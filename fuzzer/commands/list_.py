"""`backfuzz list`: the findings of the ledger."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option, state_option
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
    from fuzzer.ledger.query import Wanted
    from fuzzer.ledger.rows import encode
    from fuzzer.ledger.store import open_store

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
    apart = [row for row in rows if _unsupported(row)]
    title = f"{len(apart)} of what torch does not promise ({UNSUPPORTED}):"
    if sys.stdout.isatty():
        _print_tables(promised, apart, title, states)
    else:
        lines = [_line(row, states) for row in promised]
        lines += [title, *(_line(row, states) for row in apart)] if apart else []
        click.echo("\n".join([*lines, f"{len(rows)} finding(s)"]))


def _print_tables(
    promised: list[dict[str, Any]], apart: list[dict[str, Any]], title: str, states: dict[str, str]
) -> None:
    from fuzzer.commands.shared.table import Console, finding_table

    console = Console()
    for some, heading in ((promised, ""), ([row | {"class": UNSUPPORTED} for row in apart], f"\n{title}")):
        if some:
            console.print(finding_table([row | {"where": _short_where(row)} for row in some], states, heading))
    console.print(f"{len(promised) + len(apart)} finding(s)")


def _unsupported(row: dict[str, Any]) -> bool:
    return bool(row["unsupported"]) or row["class"] == UNSUPPORTED


def _where(row: dict[str, Any]) -> str:
    place = json.loads(row["place"])
    return f"{place.get('torch', '?')} {place.get('device', '?')}"


def _short_where(row: dict[str, Any]) -> str:
    release, device = _where(row).split(" ", 1)
    return f"{release.partition('+')[0]} {device}"


def _line(row: dict[str, Any], states: dict[str, str]) -> str:
    where = f"torch {_where(row)}"
    shown = UNSUPPORTED if _unsupported(row) else row["class"]
    signature = "/".join((row["oracle"], row["class"], row["direction"] or "-", row["pattern"]))
    return f"{row['id']}  {row['fault']}  {shown:18} {states[row['fault']]:11} {where:24} {signature}"
