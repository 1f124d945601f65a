"""`backfuzz export`: a fault as standalone scripts, which are run first, and the draft of an issue."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from fuzzer.commands.shared import again
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    db_option,
    found_device_option,
    id_argument,
    json_option,
    no_diagnose_option,
)
from fuzzer.commands.shared.reference import runs_here
from fuzzer.commands.shared.verb import HAND_OVER
from fuzzer.export.demonstration import Demonstration
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.scope import Scope


@main.command(
    purpose=HAND_OVER,
    runs=True,
    exits={
        2: "no script reproduces the fault on the torch where it was found, there is no such finding, the ledger "
        "cannot be read, or the folder not written"
    },
    example="backfuzz export F9957c78\npython export/F9957c78/repro.py",
)
@id_argument
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The folder to write. Default: export/ID.")
@found_device_option
@click.option("--no-natural", is_flag=True, help="Export the minimal program alone, and grow none.")
@click.option("--no-vary", is_flag=True, help="Measure no scope; one that is stored is exported.")
@no_diagnose_option
@click.option("--no-run", is_flag=True, help="Run nothing; the draft says that its script did not run.")
@db_option
@json_option
def export(
    reference: str,
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
    from fuzzer.export.issue import issue
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        finding, fault = store.get(reference), store.fault_of(reference)
    runs = not no_run and runs_here(finding, device)
    if runs and not no_diagnose:
        finding, fault = again.brought_up_to_date(finding, fault, db, device)
    if no_natural:
        finding = replace(finding, natural=None)
    elif runs and finding.natural is None:
        finding = _grown(finding, device, db)
    texts, shown, versions = _scripts(_on(finding, device), runs)
    if shown is not None and not shown.shows:
        _require_elsewhere(finding, shown)
    measures = shown is not None and shown.shows and not no_vary
    scope = _scope(finding, device, db, measures)
    texts["issue.md"] = issue(finding, fault, shown, dict(texts), versions, scope)
    folder = out or Path("export") / reference
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [str(folder / name) for name in texts]
    told = "not run" if shown is None else shown.told()
    row = {"id": finding.id, "fault": fault.id, "files": paths, "repro": told}
    click.echo(json.dumps(row) if as_json else "\n".join([*paths, f"repro.py: {told}"]))


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
