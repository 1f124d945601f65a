"""`backfuzz merge`: the findings of other ledgers added to this one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option
from fuzzer.commands.shared.verb import KEEP
from fuzzer.language.errors import UsageError
from fuzzer.ledger.shipped import SHIPPED


@main.command(
    purpose=KEEP,
    exits={0: "merged, even if nothing was new", 2: "a ledger is missing or cannot be read or written"},
    example="backfuzz merge other-machine.db\nbackfuzz merge --shipped",
)
@click.argument("others", nargs=-1, metavar="OTHER.db...", type=click.Path(path_type=Path),
                help="A ledger; it is only read.")  # fmt: skip
@click.option("--shipped", is_flag=True, help="Take over the faults that come with backfuzz: then they can be triaged.")
@db_option
@json_option
def merge(others: Sequence[Path], shipped: bool, db: Path, as_json: bool) -> None:
    """Add the findings and faults of other ledgers to this one.

    A finding joins the fault with the same cause. States and counts are kept. A second merge changes nothing.
    """
    from fuzzer.ledger.store import open_store

    if not (others or shipped):
        raise UsageError("name a ledger to take over, or give --shipped")
    rows = []
    with open_store(db) as store:
        for path in (*others, *([SHIPPED] if shipped else [])):
            with open_store(path, create=False) as other:
                found = store.merge(other)
            rows.append({"ledger": str(path)} | asdict(found))
            told = f"{found.faults} fault(s), {found.variants} finding(s), {found.occurrences} program(s), "
            if not as_json:
                click.echo(f"{path}: {told}{found.campaigns} campaign(s) new")
    if as_json:
        click.echo(json.dumps(rows))
