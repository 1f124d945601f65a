"""`backfuzz vary`: which neighbours of a fault's program show it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    Number,
    Sides,
    db_option,
    json_option,
    references_argument,
    where_option,
    workers_option,
)
from fuzzer.commands.shared.reference import finding_task, load_program
from fuzzer.commands.shared.waiting import Waiting
from fuzzer.judgement.verdict import FINDINGS, Finding
from fuzzer.language.text import parse
from fuzzer.ledger.scope import Scope

_SECONDS = 90.0  # 40 programs at a stage take 20 s of CPU time, what is built 3 s each


@main.command()
@references_argument
@where_option
@workers_option
@click.option(
    "--seconds",
    type=Number(1),
    default=_SECONDS,
    show_default=True,
    help="For each program; what is left then is not tried.",
)
@db_option
@json_option
@exit_codes
def vary(
    references: Sequence[str], device: str | None, workers: int | None, seconds: float, db: Path, as_json: bool
) -> None:
    """Measure the scope of faults: which neighbours of the natural program (other dtypes, sizes, attributes, layouts,
    routes, settings, devices) fail, and by how much. That of a finding is stored.

    Takes about a minute a program. Exit codes: 0 measured; 2 a program differs nowhere here, or there is no such
    finding, file or ledger; 3 this machine cannot run it; 130 interrupted.
    """
    from fuzzer.ledger.scope import encode_scope
    from fuzzer.ledger.store import open_store

    rows = []
    for reference in references:
        label, text, finding = load_program(reference, db)
        scope = vary_one(finding or text, device, workers, seconds)
        if scope is None:
            found = f" (found with torch {finding.place.get('torch')})" if finding else ""
            click.echo(f"{label}: it does not show here{found}", err=True)
            continue
        if finding is not None:
            with open_store(db) as store:
                store.set_scope(scope)
        rows.append(encode_scope(scope))
        if not as_json:
            click.echo("\n".join([label, *scope_lines(scope)]))
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if len(rows) == len(references) else COULD_NOT_RUN)


def vary_one(
    varied: Finding | str, device: str | None, workers: int | None = None, seconds: float = _SECONDS
) -> Scope | None:
    """The scope of a finding's fault, or of the worst that a program's text shows; None where there is none here."""
    from fuzzer.campaign.suspects.varying import other_devices, vary
    from fuzzer.campaign.told.written import now
    from fuzzer.trial.verify import examine_all
    from fuzzer.workers.at_work import told
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    task: Any = finding_task(None if isinstance(varied, str) else varied, Sides(device))
    devices = [*task.place.devices, *other_devices(task.place)]
    folder = Path(".backfuzz")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        Pool(workers or default_workers(devices), devices, scratch=folder) as pool,
        Waiting("varying", lambda: told(pool)),
    ):
        if isinstance(varied, str):
            shown = next(iter(examine_all(pool, [(task, parse(varied))])[0].verdicts), None)
            if shown is None or shown.signature.verdict not in FINDINGS:
                return None
            varied = Finding(shown.signature, shown.detail, varied, varied, {}, 0, 0)
        return vary(varied, task, pool, now(), seconds)


def scope_lines(scope: Scope) -> list[str]:
    """A scope for the terminal: its summary, a line for each neighbour, the shape table."""
    from fuzzer.ledger.scope import SCOPE_HEAD, scope_rows, shape_head, shape_rows

    where = f"torch {scope.torch}, {scope.device}" + (f", at the stage {scope.stage}" if scope.stage else "")
    lines = [f"{scope.summary} ({where})", *_aligned(SCOPE_HEAD, scope_rows(scope))]
    shapes = shape_rows(scope)
    return [*lines, "", *_aligned(shape_head(scope), shapes)] if shapes else lines


def _aligned(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns side by side, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows))
    return ["  " + line.rstrip() for line in lines]
