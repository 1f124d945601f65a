"""`backfuzz diagnose`: what is at fault, found out again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import Sides, db_option, json_option, where_option, workers_option
from fuzzer.commands.shared.reference import finding_task, runs_here
from fuzzer.commands.shared.waiting import Waiting, starting
from fuzzer.judgement.verdict import Finding
from fuzzer.language.text import parse
from fuzzer.ledger.faults import Fault


@main.command()
@click.argument("references", nargs=-1, required=True, metavar="ID...")
@where_option
@workers_option
@db_option
@json_option
@exit_codes
def diagnose(references: Sequence[str], device: str | None, workers: int | None, db: Path, as_json: bool) -> None:
    """Find out again what is at fault in findings of the ledger, where they were found or on --device, and store it.

    Takes at most a minute of two quiet cores a finding; what it does not ask then is named.

    Exit codes: 0 diagnosed; 2 a finding does not show here, or there is no such finding or ledger; 3 this machine
    cannot run it; 130 interrupted.
    """
    from fuzzer.ledger.rows import encode
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        findings = [store.get(reference) for reference in references]
    rows = []
    for finding in findings:
        found = diagnose_one(finding, device, workers)
        if found is None:
            click.echo(f"{finding.id}: it does not show here (found with torch {finding.place.get('torch')})", err=True)
            _note_gone(finding, device, db)
            continue
        with open_store(db) as store:
            store.set_diagnosis(found)
        rows.append(encode(found))
        if not as_json:
            click.echo(f"{found.id}  {found.signature}\n" + "\n".join(diagnosis_lines(found)))
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if len(rows) == len(findings) else COULD_NOT_RUN)


def diagnose_one(finding: Finding, device: str | None, workers: int | None) -> Finding | None:
    """The finding with a new diagnosis; None where it does not show."""
    start = starting()
    from fuzzer.diagnosis.diagnose import diagnose
    from fuzzer.trial.tasks import examine
    from fuzzer.trial.verify import RUNS, ask, examine_all, matching
    from fuzzer.workers.at_work import told
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    task = finding_task(finding, Sides(device))
    devices = task.place.devices
    folder = Path(".backfuzz")
    folder.mkdir(parents=True, exist_ok=True)
    start.stop()
    with (
        Pool(workers or default_workers(devices), devices, scratch=folder) as pool,
        Waiting(f"diagnosing {finding.id}", lambda: told(pool)),
    ):
        # a pool's first build takes 13 s (it makes the precompiled header) on one core: the diagnosis begins beside it,
        # and ends at once should the program not show
        program = parse(finding.program)
        first = ask(pool, examine, task, program)
        ended: list[bool] = []

        def gone() -> bool:
            if first.done() and not ended:
                ended.append(matching(pool.result(first, task), finding.signature) is None)
            return ended == [True]

        found = diagnose(finding, task, pool, folder, gone)
        wait([first])
        if not gone():
            return found
        again = examine_all(pool, [(task, program)] * (RUNS - 1))
        shows = any(matching(report, finding.signature) for report in again)
        return diagnose(finding, task, pool, folder) if shows else None


def _note_gone(finding: Finding, device: str | None, db: Path) -> None:
    """Store of what was not diagnosed and does not show here that it is gone where it was found; nothing where that is
    another release or device."""
    import torch

    from fuzzer.ledger.diagnosed import is_current, shows_no_more
    from fuzzer.ledger.faults import release
    from fuzzer.ledger.store import open_store

    found, here = finding.place.get("device", "cpu"), release(torch.__version__)
    if is_current(finding) or (device or found) != found or here != release(finding.place.get("torch", "")):
        return
    with open_store(db) as store:
        store.set_diagnosis(shows_no_more(finding, here, found))


def brought_up_to_date(finding: Finding, fault: Fault, db: Path, device: str | None = None) -> tuple[Finding, Fault]:
    """The finding and its fault, diagnosed again and stored where an older version of the diagnosis looked at it, or
    none; as they are where it cannot run or does not show here. One line on stderr says what is done."""
    from fuzzer.ledger import diagnosed
    from fuzzer.ledger.errors import StoreError
    from fuzzer.ledger.faults import release
    from fuzzer.ledger.store import open_store

    if diagnosed.is_current(finding) or not runs_here(finding, device):
        return finding, fault
    import torch

    version, here = diagnosed.diagnosed_by(finding), release(torch.__version__)
    before = f"was diagnosed by version {version} of the diagnosis" if version else "was not diagnosed"
    on = (device or finding.place.get("device", "cpu")).split(":")[0]
    if f"{here} {on}" in fault.gone_on:
        return finding, fault
    click.echo(f"{finding.id}: it {before}: diagnosing it (--no-diagnose leaves that)", err=True)
    found = diagnose_one(finding, device, None)
    if found is None:
        click.echo(f"{finding.id}: it does not show here, with torch {here}; its diagnosis stays as it is", err=True)
        return finding, fault
    try:
        with open_store(db) as store:
            store.set_diagnosis(found)
            return found, store.fault_of(found.id)
    except StoreError as error:
        click.echo(f"{finding.id}: the diagnosis is not stored: {error}", err=True)
    return found, fault


def diagnosis_lines(finding: Finding) -> list[str]:
    """What is at fault, for the terminal."""
    from fuzzer.ledger.diagnosed import DIAGNOSER, TRACEBACK, VERSION, diagnosed_by

    if not finding.diagnosis:
        return ["not diagnosed yet: backfuzz diagnose " + finding.id]
    lines = [f"  {name}: {text}" for name, text in finding.diagnosis.items() if name != VERSION]
    made = diagnosed_by(finding)
    lines.append(f"  {VERSION}: {made}" + (f"; this is version {DIAGNOSER}" if made != DIAGNOSER else ""))
    lines.append(f"  attachments (in `backfuzz export`): {', '.join(finding.attachments) or 'none'}")
    told = finding.attachments.get(TRACEBACK, "")
    return lines + ([f"  {TRACEBACK}:", *(f"    {line}" for line in told.splitlines())] if told else [])
