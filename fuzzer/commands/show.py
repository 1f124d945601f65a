"""`backfuzz show`: one finding."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from fuzzer.commands.shared.again import brought_up_to_date
from fuzzer.commands.shared.describe import diagnosis_lines, fault_lines, scope_lines, severity_line
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.holder import holding
from fuzzer.commands.shared.options import db_option, id_argument, json_option, no_diagnose_option
from fuzzer.commands.shared.verb import KEEP
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.faults import Fault, encode_fault
from fuzzer.ledger.scope import Scope
from fuzzer.ledger.shipped import SHIPPED


@main.command(
    purpose=KEEP,
    exits={2: "there is no such finding, or the ledger is missing or cannot be read"},
    example="backfuzz show F9957c78",
)
@id_argument
@no_diagnose_option
@db_option
@json_option
def show(reference: str, no_diagnose: bool, db: Path, as_json: bool) -> None:
    """Show one finding and its fault.

    Prints the minimal and the natural program, evidence, diagnosis, scope, stages, settings and place. If the
    diagnosis is missing or of an older version, the finding is diagnosed first, where it runs and reproduces here.
    """
    from fuzzer.ledger.rows import encode
    from fuzzer.ledger.scope import encode_scope
    from fuzzer.ledger.severity import severity_of
    from fuzzer.ledger.store import open_store

    db = holding(reference, db)
    with open_store(db, create=False) as store:
        finding, fault = store.get(reference), store.fault_of(reference)
        scopes = store.scopes(finding.id)
    if not no_diagnose and db != SHIPPED:
        finding, fault = brought_up_to_date(finding, fault, db)
    if as_json:
        told = {"fault": encode_fault(fault), "scopes": [encode_scope(scope) for scope in scopes]}
        told["severity"] = str(severity_of(finding))
        click.echo(json.dumps(encode(finding) | told))
        return
    if sys.stdout.isatty():
        print_tables(finding, fault, scopes)
        return
    click.echo(f"{finding.id}  {finding.signature}\n{finding.detail}")
    if finding.verdict != finding.signature.verdict:
        click.echo(f"{finding.verdict}: torch promises nothing about this {finding.unsupported}")
    if finding.before:
        click.echo(f"the original program: {finding.before}")
    click.echo()
    click.echo(finding.program)
    if finding.grown is not finding:
        click.echo(f"the natural program: {finding.grown.detail}\n\n{finding.grown.program}")
    click.echo(f"reproduced {finding.reproduced} of {finding.runs} in fresh processes")
    click.echo(f"severity: {severity_line(finding)}")
    click.echo("diagnosis:\n" + "\n".join(diagnosis_lines(finding)))
    for title, table in (("stages", finding.stages), ("settings", finding.ablation), ("place", finding.place)):
        click.echo(f"{title}:" + "".join(f"\n  {key}: {value}" for key, value in table.items()))
    for scope in scopes:
        click.echo("scope: " + "\n".join(scope_lines(scope)))
    if finding.note:
        click.echo(f"note: {finding.note}")
    click.echo("\n".join(fault_lines(fault)))


def print_tables(finding: Finding, fault: Fault, scopes: Sequence[Scope]) -> None:
    """The same for a terminal: the program in colours, the measurements in tables."""
    from rich.syntax import Syntax
    from rich.text import Text

    from fuzzer.commands.shared.table import Console, named_table
    from fuzzer.ledger.diagnosed import VERSION

    console = Console()
    promised = "" if finding.verdict == finding.signature.verdict else f" ({finding.verdict}: {finding.unsupported})"
    head, *history = fault_lines(fault)
    console.print(Text(f"{finding.id}  {finding.signature}{promised}", style="bold"))
    console.print(Text(f"{head}\n\n{finding.detail}\n"))
    console.print(Syntax(finding.program, "python", background_color="default", word_wrap=True))
    if finding.grown is not finding:
        console.print(Text("the natural program", style="bold"), Text(f"{finding.grown.detail}\n"), sep="\n")
        console.print(Syntax(finding.grown.program, "python", background_color="default", word_wrap=True))
    facts = {"reproduced": f"{finding.reproduced} of {finding.runs} in fresh processes"}
    facts |= {"severity": severity_line(finding)}
    facts |= {"original": finding.before} if finding.before else {}
    facts |= {"note": finding.note} if finding.note else {}
    told = {name: text for name, text in finding.diagnosis.items() if name != VERSION}
    tables = {"finding": facts, "stages": finding.stages, "settings": _asked(finding.ablation)}
    for title, table in (tables | {"place": finding.place, "diagnosis": told}).items():
        if table:
            console.print(named_table(title, table), "", sep="\n")
    console.print(Text("\n".join(diagnosis_lines(finding)[len(told) :])))
    for scope in scopes:
        console.print("", Text("scope", style="bold"), Text("\n".join(scope_lines(scope))), sep="\n")
    console.print("", Text(f"fault {fault.id}", style="bold"), Text("\n".join(history)), sep="\n")


def _asked(table: Mapping[str, str]) -> dict[str, str]:
    """The entries that were run, and a count of the others."""
    asked = {name: text for name, text in table.items() if not text.startswith("not run")}
    left = len(table) - len(asked)
    return asked | ({f"{left} more": "not run (piped, this command says why)"} if left else {})
