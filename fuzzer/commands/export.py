"""`backfuzz export`: a finding as a standalone script and the draft of an issue."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fuzzer.commands.exits import exit_codes
from fuzzer.commands.group import main
from fuzzer.commands.options import db_option, json_option


@main.command()
@click.argument("reference", metavar="ID")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder to write. Default: export/ID.")
@db_option
@json_option
@exit_codes
def export(reference: str, out: Path | None, db: Path, as_json: bool) -> None:
    """Write repro.py (standalone; exits 1 while the fault is there) and issue.md of a finding.

    Exit codes: 0 written; 2 no such finding, or the ledger cannot be read or the folder written.
    """
    from fuzzer.findings.issue import issue
    from fuzzer.findings.script import repro
    from fuzzer.findings.store import open_store

    with open_store(db, create=False) as store:
        finding = store.get(reference)
    texts = {"repro.py": repro(finding), "issue.md": issue(finding)}
    folder = out or Path("export") / finding.id
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [str(folder / name) for name in texts]
    click.echo(json.dumps({"id": finding.id, "files": paths}) if as_json else "\n".join(paths))
