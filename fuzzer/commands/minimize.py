"""`backfuzz minimize`: programs shrunk, verified and stored."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    Sides,
    db_option,
    json_option,
    known_options,
    programs_argument,
    sides_options,
    workers_option,
)
from fuzzer.commands.shared.reference import finding_task, load_program
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.commands.shared.waiting import starting, working
from fuzzer.judgement.verdict import FINDINGS, Finding
from fuzzer.language.text import parse
from fuzzer.ledger.checkout import regressions

if TYPE_CHECKING:
    from fuzzer.campaign.plan import Plan
    from fuzzer.workers.pool import Pool


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
@known_options
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

    The minimal program is printed. A program may be a suspect that a campaign had no time for, or your own. A suspect
    whose core the campaign found is shrunk from there; its file is removed once it is a finding, or known.
    """
    rows = _minimize_all(references, sides, workers, db, known, unless_known, as_json)
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if all(row["finding"] for row in rows) else COULD_NOT_RUN)


def _minimize_all(
    references: Sequence[str],
    sides: Sides,
    workers: int | None,
    db: Path,
    known: tuple[Path, ...],
    unless_known: bool,
    quiet: bool,
) -> list[dict[str, Any]]:
    """A row for each program, in the order in which they are looked into: of suspects with one key the first, before
    the others."""
    start = starting()
    from fuzzer.campaign.plan import Plan
    from fuzzer.campaign.suspects.clusters import firsts_first
    from fuzzer.campaign.suspects.patience import require_ledgers
    from fuzzer.campaign.suspects.shelf import shelved
    from fuzzer.workers.capacity import default_workers

    loaded = [(name, *load_program(name, db)) for name in references]
    asked = firsts_first(loaded, lambda one: shelved(one[2]))
    tasks = [finding_task(finding, sides) for *_, finding in asked]
    devices = sorted({device for task in tasks for device in task.place.devices})
    plans = [
        Plan(
            task,
            workers or default_workers(devices),
            db=db,
            corpus=regressions(db),
            command=f"backfuzz minimize {name}",
            known=known,
        )
        for (name, *_), task in zip(asked, tasks, strict=True)
    ]
    require_ledgers(plans[0])
    start.stop()
    rows: list[dict[str, Any]] = []
    label = asked[0][1]

    def doing() -> str:
        return f"shrinking {label}" + (f" ({len(rows) + 1} of {len(asked)})" if len(asked) > 1 else "")

    with working(doing, devices, plans[0].workers, plans[0].folder) as pool:
        for (_, label, text, finding), plan in zip(asked, plans, strict=True):
            rows.append(_minimize_one(label, text, finding, plan, pool, unless_known, quiet))
    return rows


def _minimize_one(
    label: str, text: str, finding: Finding | None, plan: Plan, pool: Pool, unless_known: bool, quiet: bool
) -> dict[str, Any]:
    """One program's row. A suspect on a shelf goes on from its core, and is taken off the shelf once it is decided."""
    from fuzzer.campaign.plan import environment_of
    from fuzzer.campaign.suspects.interestingness import CandidateCache
    from fuzzer.campaign.suspects.queue import describe
    from fuzzer.campaign.suspects.shelf import shelved
    from fuzzer.campaign.suspects.suspect import Suspect, grow_stored, sorted_suspect, triage_suspect
    from fuzzer.trial.verify import examine_all

    started, suspect, task = time.monotonic(), shelved(text), plan.task
    row: dict[str, Any] = {"program": label, "class": "", "note": ""}
    row |= {"finding": None, "minimal": None, "fault": "", "queries": 0}
    kept = suspect is not None
    if suspect is None:
        program = parse(finding.original if finding is not None else text)
        report = examine_all(pool, [(task, program)])[0]
        row["class"], row["note"] = report.verdict, report.rejected
        if report.verdicts and report.verdict in FINDINGS:
            suspect = Suspect(program, report.verdicts[0].signature)
    else:
        row["class"] = suspect.signature.verdict
    found = reduction = None
    if suspect is not None:
        cache, place = CandidateCache(pool, task), environment_of(task)
        suspect = sorted_suspect(suspect, plan, pool)
        outcome = triage_suspect(suspect, plan, cache, place, recognised=unless_known)
        found, reduction = outcome.finding, outcome.reduction
        if outcome.new and found is not None:
            found = grow_stored(found, plan, pool)
        row["finding"], row["minimal"] = (found.id, found.program) if found else (None, None)
        row["note"], row["fault"] = outcome.note, outcome.fault
        row["queries"] = reduction.queries if reduction else 0
        if kept and found is not None:
            Path(label).unlink(missing_ok=True)
    if found is not None and not quiet:
        click.echo(
            describe(found) if reduction else f"{label}: not shrunk, it {row['note']}; that is\n{describe(found)}"
        )
    row["seconds"] = round(time.monotonic() - started, 1)
    if row["finding"] is None and not quiet:
        click.echo(f"{label}: {row['class']}; nothing to store ({row['note'] or 'it agrees'})")
    return row
