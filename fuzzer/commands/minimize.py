"""`backfuzz minimize`: programs shrunk, verified and stored."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    Sides,
    db_option,
    json_option,
    known_option,
    references_argument,
    sides_options,
    workers_option,
)
from fuzzer.commands.shared.reference import finding_task, load_program
from fuzzer.commands.shared.waiting import Waiting, starting
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.text import parse
from fuzzer.ledger.checkout import regressions


@main.command()
@references_argument
@sides_options
@workers_option
@db_option
@known_option
@click.option(
    "--unless-known", is_flag=True, help="Do not shrink what one or two runs show to be a known fault: name the fault."
)
@json_option
@exit_codes
def minimize(
    references: Sequence[str],
    sides: Sides,
    workers: int | None,
    db: Path,
    known: tuple[Path, ...],
    unless_known: bool,
    as_json: bool,
) -> None:
    """Shrink programs that differ; verify and store what comes out. Prints the minimal program.

    Exit codes: 0 minimized, or known; 2 a program agrees, could not run or did not reproduce; 3 this machine
    cannot run it; 130 interrupted.
    """
    rows = [_minimize_one(name, sides, workers, db, known, unless_known, as_json) for name in references]
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if all(row["finding"] for row in rows) else COULD_NOT_RUN)


def _minimize_one(
    reference: str,
    sides: Sides,
    workers: int | None,
    db: Path,
    known: tuple[Path, ...],
    unless_known: bool,
    quiet: bool,
) -> dict[str, Any]:
    start = starting()
    from fuzzer.campaign.plan import Plan, environment_of
    from fuzzer.campaign.suspects.interestingness import CandidateCache
    from fuzzer.campaign.suspects.patience import require_ledgers
    from fuzzer.campaign.suspects.queue import describe
    from fuzzer.campaign.suspects.suspect import Suspect, triage_suspect
    from fuzzer.trial.verify import examine_all
    from fuzzer.workers.at_work import told
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    label, text, finding = load_program(reference, db)
    program = parse(finding.original if finding is not None else text)
    task = finding_task(finding, sides)
    plan = Plan(
        task,
        workers or default_workers(task.place.devices),
        db=db,
        corpus=regressions(db),
        command=f"backfuzz minimize {reference}",
        known=known,
    )
    require_ledgers(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)
    start.stop()
    started = time.monotonic()
    with (
        Pool(plan.workers, plan.devices, scratch=plan.folder) as pool,
        Waiting(f"shrinking {label}", lambda: told(pool)),
    ):
        report = examine_all(pool, [(task, program)])[0]
        row: dict[str, Any] = {"program": label, "class": report.verdict, "note": report.rejected}
        row |= {"finding": None, "minimal": None, "fault": "", "queries": 0}
        found = reduction = None
        if report.verdicts and report.verdict in FINDINGS:
            suspect = Suspect(program, report.verdicts[0].signature)
            cache, place = CandidateCache(pool, task), environment_of(task)
            outcome = triage_suspect(suspect, plan, cache, place, recognised=unless_known)
            found, reduction = outcome.finding, outcome.reduction
            row["finding"], row["minimal"] = (found.id, found.program) if found else (None, None)
            row["note"], row["fault"] = outcome.note, outcome.fault
            row["queries"] = reduction.queries if reduction else 0
    if found is not None and not quiet:
        click.echo(
            describe(found) if reduction else f"{label}: not shrunk, it {row['note']}; that is\n{describe(found)}"
        )
    row["seconds"] = round(time.monotonic() - started, 1)
    if row["finding"] is None and not quiet:
        click.echo(f"{label}: {row['class']}; nothing to store ({row['note'] or 'it agrees'})")
    return row
