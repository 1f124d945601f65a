"""`backfuzz show`: one finding."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.diagnose import brought_up_to_date, diagnosis_lines
from fuzzer.commands.exits import exit_codes
from fuzzer.commands.faults import encode_fault
from fuzzer.commands.group import main
from fuzzer.commands.options import db_option, json_option, no_diagnose_option
from fuzzer.commands.vary import scope_lines
from fuzzer.findings.faults import Fault


@main.command()
@click.argument("reference", metavar="ID")
@no_diagnose_option
@db_option
@json_option
@exit_codes
def show(reference: str, no_diagnose: bool, db: Path, as_json: bool) -> None:
    """Show one finding: its minimal and its natural program, evidence, diagnosis, scope, stages, ablation, environment.

    What an older version of the diagnosis looked at, or none, is diagnosed first, if it can run and shows here.

    Exit codes: 0 shown; 2 no such finding, or the ledger is missing or cannot be read.
    """
    from fuzzer.findings.rows import encode
    from fuzzer.findings.scope import encode_scope
    from fuzzer.findings.store import open_store

    with open_store(db, create=False) as store:
        finding, fault = store.get(reference), store.fault_of(reference)
        scopes = store.scopes(finding.id)
    if not no_diagnose:
        finding, fault = brought_up_to_date(finding, fault, db)
    if as_json:
        told = {"fault": encode_fault(fault), "scopes": [encode_scope(scope) for scope in scopes]}
        click.echo(json.dumps(encode(finding) | told))
        return
    click.echo(f"{finding.id}  {finding.signature}\n{finding.detail}")
    if finding.verdict != finding.signature.verdict:
        click.echo(f"{finding.verdict}: torch promises nothing of this {finding.unsupported}")
    if finding.before:
        click.echo(f"the original program: {finding.before}")
    click.echo()
    click.echo(finding.program)
    if finding.grown is not finding:
        click.echo(f"the natural program: {finding.grown.detail}\n\n{finding.grown.program}")
    click.echo(f"reproduced {finding.reproduced} of {finding.runs} in fresh processes")
    click.echo("diagnosis:\n" + "\n".join(diagnosis_lines(finding)))
    for title, table in (("stages", finding.stages), ("settings", finding.ablation), ("place", finding.place)):
        click.echo(f"{title}:" + "".join(f"\n  {key}: {value}" for key, value in table.items()))
    for scope in scopes:
        click.echo("scope: " + "\n".join(scope_lines(scope)))
    if finding.note:
        click.echo(f"note: {finding.note}")
    click.echo("\n".join(fault_lines(fault)))


def fault_lines(fault: Fault) -> list[str]:
    """What the ledger knows of a fault, for the terminal."""
    counted = f"{fault.variants} finding(s), {fault.occurrences} program(s)"
    lines = [f"fault {fault.id}: {fault.title} ({fault.state}; {counted})"]
    lines += [f"  lives on: {', '.join(fault.lives_on) or 'none that was tried'}"]
    lines += [f"  gone on: {', '.join(fault.gone_on)}"] if fault.gone_on else []
    lines += [f"  note: {fault.state.note}"] if fault.state.note else []
    return lines + [f"  {time[:19]} {what}{f' ({who})' if who else ''}" for time, what, who in fault.history]
