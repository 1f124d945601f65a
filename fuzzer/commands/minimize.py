"""`backfuzz minimize`: programs shrunk, verified and stored."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    Sides,
    db_option,
    json_option,
    known_option,
    programs_argument,
    sides_options,
    workers_option,
)
from fuzzer.commands.shared.reference import finding_task, load_program
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.commands.shared.waiting import starting, working
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.text import parse
from fuzzer.ledger.checkout import regressions


@main.command(
    purpose=DECIDE,
    runs=True,
    exits={0: "minimized, or known", 2: "a program agrees, could not run or did not reproduce, or is missing"},
    example="backfuzz minimize step.prog\nbackfuzz minimize --unless-known .backfuzz/campaigns/NAME/*.prog",
)
@programs_argument
@sides_options
@workers_option
@db_option
@known_option
@click.option(
    "--unless-known",
    is_flag=True,
    help="If one or two runs show that it is a known fault, name the fault and do not shrink.",
)
@json_option
def minimize(
    references: Sequence[str],
    sides: Sides,
    workers: int | None,
    db: Path,
    known: tuple[Path, ...],
    unless_known: bool,
    as_json: bool,
) -> None:
    """Shrink programs that differ, verify and store the result.

    The minimal program is printed. A program may be a suspect that a campaign had no time for, or your own.
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
    from fuzzer.campaign.suspects.suspect import Suspect, grow_stored, triage_suspect
    from fuzzer.trial.verify import examine_all
    from fuzzer.workers.capacity import default_workers

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
    start.stop()
    started = time.monotonic()
    with working(f"shrinking {label}", plan.devices, plan.workers, plan.folder) as pool:
        report = examine_all(pool, [(task, program)])[0]
        row: dict[str, Any] = {"program": label, "class": report.verdict, "note": report.rejected}
        row |= {"finding": None, "minimal": None, "fault": "", "queries": 0}
        found = reduction = None
        if report.verdicts and report.verdict in FINDINGS:
            suspect = Suspect(program, report.verdicts[0].signature)
            cache, place = CandidateCache(pool, task), environment_of(task)
            outcome = triage_suspect(suspect, plan, cache, place, recognised=unless_known)
            found, reduction = outcome.finding, outcome.reduction
            if outcome.new and found is not None:
                found = grow_stored(found, plan, pool)
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
