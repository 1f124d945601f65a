"""`backfuzz report`: a ledger or a campaign as one page of HTML."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import click

from fuzzer.commands.shared.exits import Refusal, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option

_NEEDED = ("jinja2", "matplotlib")


@main.command()
@click.option("--campaign", metavar="FOLDER|NAME", default=None, help="One campaign instead of the whole ledger.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              help="The file to write.")  # fmt: skip
@db_option
@json_option
@exit_codes
def report(campaign: str | None, out: Path, db: Path, as_json: bool) -> None:
    """Write one self-contained HTML page: the faults first, with program, evidence and releases, then plots.

    Needs the extra `report` (matplotlib).

    Exit codes: 0 written; 2 no such campaign, matplotlib is missing, or the ledger cannot be read or the page written.
    """
    require_plots()
    from fuzzer.export.gather import of_campaign, of_ledger
    from fuzzer.export.page import page
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        contents = of_campaign(store, campaign) if campaign else of_ledger(store)
    out.write_text(page(contents, made()))
    told = {"file": str(out), "faults": len(contents.faults), "open": len(contents.open)}
    click.echo(json.dumps(told) if as_json else f"{out}: {told['faults']} fault(s), {told['open']} of them open")


def require_plots() -> None:
    """Raises Refusal where what draws a page is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Refusal(f"report needs {' and '.join(missing)}: pip install 'backfuzz[report]'")


def made() -> str:
    """When a page is made, and by what."""
    from importlib.metadata import version

    from fuzzer.campaign.told.written import now

    return f"{now()[:16].replace('T', ' ')} UTC by backfuzz {version('backfuzz')}"
