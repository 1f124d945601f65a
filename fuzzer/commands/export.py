"""`backfuzz export`: a fault as standalone scripts, which are run first, and the draft of an issue."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared import again
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    ID_HELP,
    db_option,
    found_device_option,
    json_option,
    no_diagnose_option,
)
from fuzzer.commands.shared.reference import runs_here
from fuzzer.commands.shared.verb import HAND_OVER
from fuzzer.export.demonstration import Demonstration
from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.ledger.scope import Scope


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
    help="Instead of one, the N most severe faults to post, as the ledger has them: nothing is grown, diagnosed or "
    "measured.",
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
        wanted = _Wanted(device, not no_natural, not no_diagnose, not no_vary, True, not no_run)
        row = _export_one(reference, out or Path("export") / reference, db, wanted)
        click.echo(json.dumps(row) if as_json else "\n".join([*row["files"], f"repro.py: {row['repro']}"]))
        return
    rows = _export_top(top or 0, out or Path("export"), db, _Wanted(device, not no_natural, runs=not no_run), as_json)
    if as_json:
        click.echo(json.dumps(rows))
    if any("error" in row for row in rows):
        raise SystemExit(2)


@dataclass(frozen=True)
class _Wanted:
    """What to export of a finding, and what may be made first.

    device     of both sides; None: the finding's.  natural   its natural program too.
    diagnoses, varies, grows   make a diagnosis, a scope, a natural program where the ledger has none.
    runs       the scripts.
    """

    device: str | None
    natural: bool = True
    diagnoses: bool = False
    varies: bool = False
    grows: bool = False
    runs: bool = True


def _export_top(top: int, out: Path, db: Path, wanted: _Wanted, quiet: bool) -> list[dict[str, Any]]:
    """Export the most severe faults to post, a folder each. A script that shows nothing is told in its row; the others
    are exported all the same."""
    from fuzzer.export.script import ExportError
    from fuzzer.ledger.listing import short_title, to_post
    from fuzzer.ledger.severity import label
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        chosen = to_post(store.faults())[:top]
    rows: list[dict[str, Any]] = []
    for fault in chosen:
        try:
            row = _export_one(fault.id, out / fault.id, db, wanted)
        except ExportError as error:
            row = {"fault": fault.id, "error": str(error)}
        rows.append(row)
        if not quiet:
            told = row.get("error") or f"{out / fault.id}: repro.py {row['repro']}"
            click.echo(
                f"{len(rows)} of {len(chosen)}  {fault.id}  {label(fault.severity)}  {short_title(fault)}: {told}"
            )
    return rows


def exported(fault: str, db: Path) -> str:
    """Export a fault as the ledger has it, into export/ID: where that is and what its script did, or why it is not."""
    from fuzzer.export.script import ExportError

    try:
        row = _export_one(fault, Path("export") / fault, db, _Wanted(None))
    except ExportError as error:
        return str(error)
    return f"{Path('export') / fault}: repro.py {row['repro']}"


def _export_one(reference: str, folder: Path, db: Path, wanted: _Wanted) -> dict[str, Any]:
    """Write the scripts and the draft of one fault or finding into a folder. Raises ExportError."""
    from fuzzer.export.issue import issue
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        finding, fault = store.get(reference), store.fault_of(reference)
    device, runs = wanted.device, wanted.runs and runs_here(finding, wanted.device)
    if runs and wanted.diagnoses:
        finding, fault = again.brought_up_to_date(finding, fault, db, device)
    if not wanted.natural:
        finding = replace(finding, natural=None)
    elif runs and wanted.grows and finding.natural is None:
        finding = _grown(finding, device, db)
    texts, shown, versions = _scripts(_on(finding, device), runs)
    if shown is not None and not shown.shows:
        _require_elsewhere(finding, shown)
    scope = _scope(finding, device, db, wanted.varies and shown is not None and shown.shows)
    texts["issue.md"] = issue(finding, fault, shown, dict(texts), versions, scope)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    told = "not run" if shown is None else shown.told()
    return {"id": finding.id, "fault": fault.id, "files": [str(folder / name) for name in texts], "repro": told}


def _on(finding: Finding, device: str | None) -> Finding:
    """The finding as if it had been found on this device, both sides."""
    if device is None:
        return finding
    sides = {side: finding.place[side].partition("@")[0] for side in ("backend", "against") if side in finding.place}
    return replace(finding, place=finding.place | sides | {"device": device})


def _grown(finding: Finding, device: str | None, db: Path) -> Finding:
    """The finding with its natural program, which is stored; as it is where it does not reproduce here."""
    from fuzzer.ledger.store import open_store

    click.echo(f"{finding.id}: growing its minimal program", err=True)
    found = again.grow_one(finding, device, None)
    if found is None:
        return finding
    with open_store(db) as store:
        store.set_natural(found[0])
    return found[0]


def _scope(finding: Finding, device: str | None, db: Path, measures: bool) -> Scope | None:
    """The newest scope of the finding on this device; where there is none, it is measured and stored if `measures`."""
    from fuzzer.ledger.store import open_store

    own = (device or finding.place.get("device", "cpu")).split(":")[0]
    with open_store(db, create=False) as store:
        held = [scope for scope in store.scopes(finding.id) if scope.device == own]
    if held or not measures:
        return held[0] if held else None
    click.echo(f"{finding.id}: measuring its scope", err=True)
    scope = again.vary_one(finding, device)
    if scope is not None:
        with open_store(db) as store:
            store.set_scope(scope)
    return scope


def _scripts(finding: Finding, runs: bool) -> tuple[dict[str, str], Demonstration | None, str]:
    """(the scripts by file name, the result of the first, this machine's versions)."""
    from fuzzer.export.script import repro

    grown, minimal = finding.grown, repro(finding)
    # as people write it; then of the trial's very numbers
    natural = [repro(grown, drawn, name=finding.id) for drawn in (True, False)] if grown is not finding else []
    if not runs:
        return ({"repro.py": natural[0], "minimal.py": minimal} if natural else {"repro.py": minimal}), None, ""
    from fuzzer.diagnosis.demonstrate import demonstrate, versions

    shown = (demonstrate(text, grown) for text in natural)
    first = next(((text, seen) for text, seen in zip(natural, shown, strict=False) if seen.shows), None)
    seen = demonstrate(minimal, finding)
    if first is not None:
        return {"repro.py": first[0]} | ({"minimal.py": minimal} if seen.shows else {}), first[1], versions()
    return {"repro.py": minimal}, seen, versions()


def _require_elsewhere(finding: Finding, seen: Demonstration) -> None:
    """Raise ExportError for a script that shows nothing on the torch and the device where its fault was found."""
    from fuzzer.export.script import ExportError
    from fuzzer.ledger.faults import release

    found = finding.place.get("torch", "")
    if release(found) == release(seen.torch) and seen.device == finding.place.get("device", "cpu"):
        raise ExportError(f"{finding.id}: its script {seen.told()} on torch {found}, where the fault was found")
