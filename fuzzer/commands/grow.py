"""`backfuzz grow`: minimal programs of the ledger grown into what a person would write."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option, where_option, workers_option
from fuzzer.commands.shared.reference import Sides, finding_task, load_program
from fuzzer.commands.shared.waiting import Waiting
from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.language.text import parse


@main.command()
@click.argument("references", nargs=-1, required=True, metavar="ID...")
@where_option
@workers_option
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    default=None,
    help="A .prog that a person wrote, as of a report, instead of a grown one: of one ID, if it shows its fault.",
)
@db_option
@json_option
@exit_codes
def grow(
    references: Sequence[str],
    device: str | None,
    workers: int | None,
    program: Path | None,
    db: Path,
    as_json: bool,
) -> None:
    """Grow the minimal programs of findings into what a person would write, where they were found or on --device, and
    store these beside them: the same fault with random normal values, usual layouts and sizes, and an error that shows.

    Takes about a minute a finding. Exit codes: 0 grown; 2 a finding, or --program, does not show here, or there is no
    such finding, file or ledger; 3 this machine cannot run it; 130 interrupted.
    """
    from fuzzer.ledger.rows import encode_natural
    from fuzzer.ledger.store import open_store

    if program is not None and len(references) > 1:
        raise UsageError(f"--program is of one finding, and there are {len(references)}")
    text = "" if program is None else load_program(str(program), db)[1]
    with open_store(db, create=False) as store:
        findings = [store.get(reference) for reference in references]
    rows = []
    for finding in findings:
        found = grow_one(finding, device, workers, text)
        if found is None:
            click.echo(f"{finding.id}: it does not show here (found with torch {finding.place.get('torch')})", err=True)
            continue
        grown, history, queries = found
        with open_store(db) as store:
            store.set_natural(grown)
        rows.append({"id": grown.id, "natural": encode_natural(grown.natural), "steps": history, "queries": queries})
        if not as_json:
            steps = ", ".join(history) or ("as a person wrote it" if text else "nothing is more natural")
            click.echo(f"{grown.id}: {steps} ({queries} programs asked)\n{grown.grown.detail}\n\n{grown.grown.program}")
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if len(rows) == len(findings) else COULD_NOT_RUN)


def grow_one(
    finding: Finding, device: str | None, workers: int | None, text: str = ""
) -> tuple[Finding, tuple[str, ...], int] | None:
    """The finding with its natural program, the steps that led there, how many programs were asked; None where it does
    not show.

    text   the program that a person wrote; "" where one is to be grown.
    """
    from fuzzer.campaign.suspects.growing import grow_finding, with_program
    from fuzzer.trial.verify import examine_all, matching
    from fuzzer.workers.at_work import told
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    task: Any = finding_task(finding, Sides(device))
    folder = Path(".backfuzz")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        Pool(workers or default_workers(task.place.devices), task.place.devices, scratch=folder) as pool,
        Waiting(f"growing {finding.id}", lambda: told(pool)),
    ):
        if text:
            held = with_program(finding, parse(text), task, pool, folder)
            return None if held is None else (held, (), 1)
        shows = matching(examine_all(pool, [(task, parse(finding.program))])[0], finding.signature) is not None
        grown, growth = grow_finding(finding, task, pool, folder)  # what rounding hides may show with other values
        return (grown, growth.history, growth.queries) if shows or growth.history else None
