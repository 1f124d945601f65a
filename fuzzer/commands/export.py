"""`backfuzz export`: a fault as standalone scripts, which are run first, and the draft of an issue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.handover import Export, ShowsNothingHere, export_one
from fuzzer.commands.shared.options import (
    ID_HELP,
    db_option,
    found_device_option,
    json_option,
    no_diagnose_option,
)
from fuzzer.commands.shared.verb import HAND_OVER
from fuzzer.language.errors import UsageError


@main.command(
    purpose=HAND_OVER,
    runs=True,
    exits={
        2: "no script reproduces the fault on the torch where it was found (with --top: any of them), there is no such "
        "finding, the ledger cannot be read, or the folder not written"
    },
    example="backfuzz export F9957c78\npython export/F9957c78/repro.py\nbackfuzz export --top 10",
)
@click.argument("reference", metavar="[ID]", required=False, help=ID_HELP)
@click.option(
    "--top", type=click.IntRange(1), default=None, metavar="N",
    help="Instead of one, the N most severe faults to post that show here, as the ledger has them: nothing is grown, "
    "diagnosed or measured.",
)  # fmt: skip
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="The folder to write. Default: export/ID. With --top a folder each, below it.",
)
@found_device_option
@click.option("--no-natural", is_flag=True, help="Export the minimal program alone, and grow none.")
@click.option("--no-vary", is_flag=True, help="Measure no scope; one that is stored is exported.")
@no_diagnose_option
@click.option(
    "--kin", multiple=True, metavar="ISSUE", help="An issue that looks alike, which the draft names: a URL or #number. "
    "Repeatable.",
)  # fmt: skip
@click.option("--no-run", is_flag=True, help="Run nothing; the draft says that its script did not run.")
@db_option
@json_option
def export(
    reference: str | None,
    top: int | None,
    out: Path | None,
    device: str | None,
    no_natural: bool,
    no_vary: bool,
    no_diagnose: bool,
    kin: tuple[str, ...],
    no_run: bool,
    db: Path,
    as_json: bool,
) -> None:
    """Write scripts of a fault, run them, and draft an issue.

    A script needs torch alone. repro.py holds the natural program and minimal.py the minimal one; each exits with 1
    while the fault is there. Each runs in a fresh process, and issue.md says what it did. Natural program,
    diagnosis and scope are made first, where the ledger has none.
    """
    if (reference is None) == (top is None):
        raise UsageError("name a fault or a finding, or give --top N: one of the two")
    if reference is not None:
        wanted = Export(device, not no_natural, not no_diagnose, not no_vary, True, not no_run, kin=kin)
        row = export_one(reference, out or Path("export") / reference, db, wanted)
        click.echo(json.dumps(row) if as_json else "\n".join([*row["files"], f"repro.py: {row['repro']}"]))
        return
    wanted = Export(device, not no_natural, runs=not no_run, elsewhere=False)
    rows = _export_top(top or 0, out or Path("export"), db, wanted, as_json)
    if as_json:
        click.echo(json.dumps(rows))
    if any("error" in row for row in rows):
        raise SystemExit(2)


def _export_top(top: int, out: Path, db: Path, wanted: Export, quiet: bool) -> list[dict[str, Any]]:
    """Export the most severe faults to post until `top` are exported, a folder each. A script that shows nothing is
    told in its row and not counted; the others are exported all the same."""
    from fuzzer.export.script import ExportError
    from fuzzer.ledger.listing import to_post
    from fuzzer.ledger.severity import label
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        chosen = to_post(store.faults())
    rows: list[dict[str, Any]] = []
    done = 0
    for fault in chosen:
        try:
            row = export_one(fault.id, out / fault.id, db, wanted)
            done += 1
            told = f"{out / fault.id}: repro.py {row['repro']}"
        except ShowsNothingHere as why:
            row, told = {"fault": fault.id, "left_out": str(why)}, str(why)
        except ExportError as error:
            row, told = {"fault": fault.id, "error": str(error)}, str(error)
        rows.append(row)
        if not quiet:
            named = f"{fault.id}  {label(fault.severity)}  {fault.title}"
            click.echo(f"{done} of {min(top, len(chosen))}  {named}: {told}")
        if done == top:
            break
    return rows
