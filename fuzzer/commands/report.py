"""`backfuzz report`: a ledger or a campaign as one page of HTML."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option
from fuzzer.commands.shared.verb import HAND_OVER
from fuzzer.commands.shared.web import require_plots, write_page
from fuzzer.language.errors import UsageError
from fuzzer.ledger.shipped import SHIPPED


@main.command(
    purpose=HAND_OVER,
    exits={2: "there is no such campaign, matplotlib is missing, the ledger cannot be read or the page not written"},
    example="backfuzz report -o report.html",
)
@click.option("--campaign", metavar="FOLDER|NAME", default=None, help="One campaign instead of the whole ledger.")
@click.option("--shipped", is_flag=True, help="The faults that come with backfuzz instead of the ledger's.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              help="The file to write.")  # fmt: skip
@db_option
@json_option
def report(campaign: str | None, shipped: bool, out: Path, db: Path, as_json: bool) -> None:
    """Write a ledger or a campaign as one page of HTML.

    The page needs no other file. The faults come first, with their programs, evidence and releases; then plots. It
    needs the extra `report` (matplotlib).
    """
    if campaign and shipped:
        raise UsageError("--campaign and --shipped are two pages: one at a time")
    require_plots()
    from fuzzer.export.gather import of_campaign, of_ledger
    from fuzzer.ledger.store import open_store

    with open_store(SHIPPED if shipped else db, create=False) as store:
        contents = of_campaign(store, campaign) if campaign else of_ledger(store)
    write_page(out, contents)
    told = {"file": str(out), "faults": len(contents.faults), "open": len(contents.open)}
    click.echo(json.dumps(told) if as_json else f"{out}: {told['faults']} fault(s), {told['open']} of them open")
