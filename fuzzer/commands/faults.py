"""`backfuzz faults`: the faults of the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option, state_option
from fuzzer.judgement.verdict import FINDINGS, UNSUPPORTED
from fuzzer.ledger.faults import Fault


@main.command()
@click.argument("text", nargs=-1)
@click.option("--class", "verdict", type=click.Choice(FINDINGS), default=None, help="Only this class.")
@state_option
@click.option("--lives-on", default=None, help="Only those that show on this release.")
@db_option
@json_option
@exit_codes
def faults(
    text: Sequence[str], verdict: str | None, state: str | None, lives_on: str | None, db: Path, as_json: bool
) -> None:
    """List the faults of the ledger, or those in whose titles or findings all words of TEXT occur.

    Exit codes: 0 listed, be it none; 2 the ledger is missing or cannot be read.
    """
    from fuzzer.ledger.query import Wanted
    from fuzzer.ledger.store import open_store

    wanted = Wanted(text=" ".join(text), state=state or "", lives_on=lives_on or "")
    with open_store(db, create=False) as store:
        chosen = {row["fault"] for row in store.rows(wanted, "fault")}
        found = [f for f in store.faults() if f.id in chosen and verdict in (None, f.verdict)]
    if as_json:
        click.echo(json.dumps([encode_fault(fault) for fault in found]))
    else:
        print_faults(found)


def encode_fault(fault: Fault) -> dict[str, Any]:
    """A fault as plain values for JSON; its state's parts stand beside the others."""
    fields = asdict(fault)
    state, verdict = fields.pop("state"), fields.pop("verdict")
    return {**fields, "class": verdict, "state": state.pop("name"), **state}


def print_faults(found: Sequence[Fault]) -> None:
    """The faults as a table, the most urgent first, those of what torch does not promise apart."""
    from fuzzer.commands.shared.table import Console, fault_table
    from fuzzer.ledger.listing import by_promise, urgency

    console = Console()
    promised, apart = by_promise(sorted(found, key=urgency))
    if promised:
        console.print(fault_table(promised, console.width))
    if apart:
        console.print(fault_table(apart, console.width, f"\nwhat torch does not promise ({UNSUPPORTED})"))
    states = [fault.state.name for fault in found]
    told = ", ".join(f"{states.count(name)} {name}" for name in dict.fromkeys(states))
    console.print(f"{len(found)} fault(s){f': {told}' if told else ''}")
