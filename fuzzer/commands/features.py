"""`backfuzz features`: the features of programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, device_option, json_option, programs_argument, workers_option
from fuzzer.commands.shared.reference import load_program
from fuzzer.commands.shared.verb import LOOK
from fuzzer.trial.places import make_task


@main.command(
    purpose=LOOK,
    runs=True,
    exits={2: "a program could not run, or there is no such finding, file or ledger"},
    example="backfuzz features F9957c78",
)
@programs_argument
@device_option
@workers_option
@db_option
@json_option
def features(references: Sequence[str], device: str | None, workers: int | None, db: Path, as_json: bool) -> None:
    """Print the features of programs, in words.

    A campaign counts features by family: operations, dtypes, graphs, generated code. `deaf` names the kernels that make
    elements of outputs and gradients deaf: rounding alone may change half of their value or more.
    """
    from fuzzer.trial.tasks import report_words
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    loaded = [load_program(reference, db) for reference in references]
    task = make_task(device, "inductor", None, fresh=True)
    where = task.place.subject.device
    with Pool(min(workers or default_workers([where]), len(loaded)), [where]) as pool:
        futures = [pool.submit(report_words, task, text) for _, text, _ in loaded]
        reports = [pool.result(future, task) for future in futures]
    rows = []
    for (label, _, _), report in zip(loaded, reports, strict=True):
        words = {family: text.splitlines() for family, text in report.files.items()}
        rows.append({"program": label, "rejected": report.rejected, "features": words})
        if not as_json:
            _feature_lines(label, report.rejected, words)
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(COULD_NOT_RUN if any(row["rejected"] for row in rows) else 0)


def _feature_lines(label: str, rejected: str, words: dict[str, list[str]]) -> None:
    """Print a program's features for people."""
    told = ", ".join(f"{len(found)} {family}" for family, found in words.items())
    click.echo(f"{label}: {rejected or told}", err=bool(rejected))
    for family, found in words.items():
        click.echo("".join(f"  {family:9} {word}\n" for word in found), nl=False)
