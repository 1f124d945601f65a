"""`backfuzz show`: one finding."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.diagnose import diagnosis_lines
from fuzzer.commands.exits import exit_codes
from fuzzer.commands.group import main
from fuzzer.commands.options import db_option, json_option


@main.command()
@click.argument("reference", metavar="ID")
@db_option
@json_option
@exit_codes
def show(reference: str, db: Path, as_json: bool) -> None:
    """Show one finding: its minimal program, evidence, diagnosis, stages, ablation and environment.

    Exit codes: 0 shown; 2 no such finding, or the ledger is missing or cannot be read.
    """
    from fuzzer.findings.store import encode, open_store

    with open_store(db, create=False) as store:
        finding = store.get(reference)
    if as_json:
        click.echo(json.dumps(encode(finding)))
        return
    click.echo(f"{finding.id}  {finding.signature}  ({finding.triage})\n{finding.detail}")
    if finding.before:
        click.echo(f"the original program: {finding.before}")
    click.echo()
    click.echo(finding.program)
    click.echo(f"reproduced {finding.reproduced} of {finding.runs} in fresh processes")
    click.echo("diagnosis:\n" + "\n".join(diagnosis_lines(finding)))
    for title, table in (("stages", finding.stages), ("settings", finding.ablation), ("place", finding.place)):
        click.echo(f"{title}:" + "".join(f"\n  {key}: {value}" for key, value in table.items()))
    if finding.note:
        click.echo(f"note: {finding.note}")
