"""`backfuzz merge`: what another ledger holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from fuzzer.commands.shared.exits import exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option


@main.command()
@click.argument("others", nargs=-1, required=True, metavar="OTHER.db...", type=click.Path(path_type=Path))
@db_option
@json_option
@exit_codes
def merge(others: Sequence[Path], db: Path, as_json: bool) -> None:
    """Take over what other ledgers hold: findings join the faults that they share a cause with, states and counts
    are kept. Done twice it changes nothing.

    Exit codes: 0 merged, be it nothing new; 2 a ledger is missing or cannot be read or written.
    """
    from fuzzer.ledger.store import open_store

    rows = []
    with open_store(db) as store:
        for path in others:
            with open_store(path, create=False) as other:
                found = store.merge(other)
            rows.append({"ledger": str(path)} | asdict(found))
            told = f"{found.faults} fault(s), {found.variants} finding(s), {found.occurrences} program(s), "
            if not as_json:
                click.echo(f"{path}: {told}{found.campaigns} campaign(s) new")
    if as_json:
        click.echo(json.dumps(rows))
