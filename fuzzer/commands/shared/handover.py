"""A finding's scripts and draft, written into a folder: what `backfuzz export` does, and a key of the triage screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared import again
from fuzzer.commands.shared.holder import holding
from fuzzer.commands.shared.reference import runs_here
from fuzzer.export.demonstration import Demonstration
from fuzzer.export.machine import Machine
from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import Fault
from fuzzer.ledger.scope import Scope
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.trial.places import runs_here as device_is_here

_TRIED = 5  # other findings of a fault: each costs a script's run, some ten seconds


@dataclass(frozen=True)
class Export:
    """What to export of a finding, and what may be made first.

    device     of both sides; None: the finding's, or where this machine lacks that, another on which the fault lives.
    natural    its natural program too.
    diagnoses, varies, grows   make a diagnosis, a scope, a natural program where the ledger has none.
    kin        issues that look alike, for the draft.
    runs       the scripts.    elsewhere  also one whose script shows nothing here, but was found on another torch or
               device; without, `ShowsNothingHere`.
    """

    device: str | None
    natural: bool = True
    diagnoses: bool = False
    varies: bool = False
    grows: bool = False
    runs: bool = True
    elsewhere: bool = True
    kin: tuple[str, ...] = ()


class ShowsNothingHere(UsageError):
    """A script that shows nothing here, of a fault found on another torch or device; the message says so."""


def exported(fault: str, db: Path) -> str:
    """Export a fault as the ledger has it, into export/ID: where that is and what its script did, or why it is not."""
    from fuzzer.export.script import ExportError

    try:
        row = export_one(fault, Path("export") / fault, db, Export(None))
    except ExportError as error:
        return str(error)
    return f"{Path('export') / fault}: repro.py {row['repro']}"


def export_one(reference: str, folder: Path, db: Path, wanted: Export) -> dict[str, Any]:
    """Write the scripts and the draft of one fault or finding into a folder. Raises ExportError, ShowsNothingHere."""
    from fuzzer.export.issue import issue
    from fuzzer.ledger.store import open_store

    db = holding(reference, db)
    if db == SHIPPED:  # it is only read
        wanted = replace(wanted, diagnoses=False, varies=False, grows=False)
    with open_store(db, create=False) as store:
        finding, fault = store.get(reference), store.fault_of(reference)
    device = wanted.device or _device_here(finding, fault)
    runs = wanted.runs and runs_here(finding, device)
    if runs and wanted.diagnoses:
        finding, fault = again.brought_up_to_date(finding, fault, db, device)
    if not wanted.natural:
        finding = replace(finding, natural=None)
    elif runs and wanted.grows and finding.natural is None:
        finding = _grown(finding, device, db)
    texts, shown, versions = _scripts(_on(finding, device), runs)
    if shown is not None and not shown.shows:
        if other := _other_that_shows(reference, finding, fault, db, shown):
            return export_one(other, folder, db, wanted)
        _require_elsewhere(finding, shown, wanted.elsewhere)
    scope = _scope(finding, device, db, wanted.varies and shown is not None and shown.shows)
    texts["issue.md"] = issue(finding, fault, shown, dict(texts), versions, scope, wanted.kin)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    told = "not run" if shown is None else shown.told()
    return {"id": finding.id, "fault": fault.id, "files": [str(folder / name) for name in texts], "repro": told}


def _device_here(finding: Finding, fault: Fault) -> str | None:
    """A device of this machine on which the fault lives, where that on which the finding was found is missing."""
    if runs_here(finding):
        return None
    return next(filter(device_is_here, (where.partition(" ")[2] for where in fault.lives_on)), None)


def _other_that_shows(reference: str, finding: Finding, fault: Fault, db: Path, seen: Demonstration) -> str | None:
    """The id of another finding of the fault whose script shows the fault here. None if no such finding is among the
    first `_TRIED`, if the fault does not live on this torch and device, or if `reference` names the finding itself."""
    from fuzzer.ledger.faults import release, shown_on
    from fuzzer.ledger.store import open_store

    here = f"{release(seen.torch)} {seen.device.split(':')[0]}"
    if finding.id.startswith(reference.lower()) or here not in fault.lives_on:
        return None
    with open_store(db, create=False) as store:
        others = [one for one in store.variants(fault.id) if one.id != finding.id]
    others.sort(key=lambda one: here not in shown_on(one))
    for other in others[:_TRIED]:
        if _shown(_on(other, seen.device), False, other.id, compares=False)[1].shows:
            click.echo(f"{finding.id} shows nothing on torch {here}; {other.id} of {fault.id} does", err=True)
            return other.id
    return None


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

    grown = finding.grown
    # as people write it; then of the trial's very numbers
    natural = [(grown, drawn) for drawn in (True, False)] if grown is not finding else []
    if not runs:
        texts = [repro(one, drawn, name=finding.id) for one, drawn in [*natural[:1], (finding, False)]]
        return dict(zip(("repro.py", "minimal.py"), texts, strict=False)), None, ""
    from fuzzer.diagnosis.demonstrate import versions

    shown = (_shown(one, drawn, finding.id) for one, drawn in natural)
    first = next(((text, seen) for text, seen in shown if seen.shows), None)
    minimal, seen = _shown(finding, False, finding.id, compares=first is None)
    if first is not None:
        return {"repro.py": first[0]} | ({"minimal.py": minimal} if seen.shows else {}), first[1], versions()
    return {"repro.py": minimal}, seen, versions()


def _shown(finding: Finding, drawn: bool, name: str, compares: bool = True) -> tuple[str, Demonstration]:
    """A script of the finding, and the result of its run, with the usual comparisons if it `compares`.

    A fault of eager is shown without a compiler if that shows it. A script that shows its fault in a worker's
    environment alone says what it needs of that, as far as such lines are enough.
    """
    from fuzzer.diagnosis.demonstrate import demonstrate, this_machine
    from fuzzer.export.machine import ONE_THREAD, PERTURBED
    from fuzzer.export.script import repro

    machine = this_machine(finding.place.get("device", "cpu"))

    def written(alone: bool, fixed: tuple[str, ...] = (), machine: Machine | None = machine) -> str:
        return repro(finding, drawn, name, alone, machine, fixed)

    ways = (True, False) if written(True) != written(False) else (True,)
    for alone in ways:
        text, elsewhere = written(alone), written(alone, machine=None)
        seen = demonstrate(text, finding, compares=compares)
        if seen.shows:
            return text, seen
        hidden = demonstrate(elsewhere, finding, bare=False, compares=compares)
        if hidden.shows:
            needed = ((PERTURBED,), (ONE_THREAD,), (PERTURBED, ONE_THREAD))
            shown = ((text, again) for text in (written(alone, fixed) for fixed in needed)
                     if (again := demonstrate(text, finding, compares=compares)).shows)  # fmt: skip
            return next(shown, (elsewhere, hidden))
    return elsewhere, seen


def _require_elsewhere(finding: Finding, seen: Demonstration, accepted: bool) -> None:
    """Raise ExportError for a script that shows nothing on the torch and the device where its fault was found, and
    ShowsNothingHere for one that shows nothing on others, unless that is accepted."""
    from fuzzer.export.script import ExportError
    from fuzzer.ledger.faults import release

    torch, device = finding.place.get("torch", ""), finding.place.get("device", "cpu")
    if release(torch) == release(seen.torch) and seen.device == device:
        printed = (seen.output.strip() or "nothing").splitlines()[-1]
        raise ExportError(
            f"{finding.id}: its script {seen.told()} on torch {torch}, where the fault was found; it printed: {printed}"
        )
    if not accepted:
        raise ShowsNothingHere(
            f"left out: its script {seen.told()} on torch {seen.torch}, {seen.device}; "
            f"the fault was found on torch {torch}, {device}"
        )
