"""`backfuzz list`: the findings of the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.exits import exit_codes
from fuzzer.commands.group import main
from fuzzer.commands.options import db_option, json_option
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.text import parse


@main.command(name="list")
@click.option("--class", "verdict", type=click.Choice(FINDINGS), default=None, help="Only this class.")
@db_option
@json_option
@exit_codes
def list_findings(verdict: str | None, db: Path, as_json: bool) -> None:
    """List the findings of the ledger.

    Exit codes: 0 listed, be it none; 2 the ledger is missing or cannot be read.
    """
    from fuzzer.findings.store import encode, open_store

    with open_store(db, create=False) as store:
        findings = store.list(verdict=verdict)
    if as_json:
        click.echo(json.dumps([encode(f) for f in findings]))
        return
    for f in findings:
        nodes = len(parse(f.program).nodes)
        where = f"torch {f.place.get('torch', '?')} {f.place.get('device', '?')}"
        click.echo(f"{f.id}  {f.signature.verdict:18} {f.triage:9} {where:24} {nodes} node(s)  {f.signature}")
    click.echo(f"{len(findings)} finding(s)")
