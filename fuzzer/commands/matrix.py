"""`backfuzz matrix`: on which releases faults live."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuzzer.commands.faults import encode_fault
from fuzzer.commands.shared.exits import COULD_NOT_RUN, exit_codes
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option, workers_option
from fuzzer.commands.shared.waiting import Waiting
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import GONE, SHOWS, Fault

if TYPE_CHECKING:
    from fuzzer.diagnosis.matrix import Asked


@main.command()
@click.argument("references", nargs=-1, metavar="ID...")
@click.option("--all", "every", is_flag=True, help="Every fault.")
@click.option("--torch", "releases", multiple=True, metavar="RELEASE", help="A release that scripts/fuzz --torch made.")
@click.option("--python", "pythons", multiple=True, type=click.Path(path_type=Path), help="A Python that has a torch.")
@click.option(
    "--device", default=None, help="Where all are run. Default: those found on a device of this machine, each there."
)
@workers_option
@db_option
@json_option
@exit_codes
def matrix(
    references: Sequence[str],
    every: bool,
    releases: Sequence[str],
    pythons: Sequence[Path],
    device: str | None,
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Run faults on other releases of torch, as they were found, and store where they live.

    Without --torch and --python: all environments that scripts/fuzz --torch made, and this one.

    Exit codes: 0 run; 2 nothing could run, no such fault, ledger or environment; 130 interrupted.
    """
    from fuzzer.diagnosis.matrix import ask_of
    from fuzzer.ledger.store import open_store
    from fuzzer.trial.places import pick_device, runs_here

    if every == bool(references):
        raise UsageError("matrix takes the ids of faults, or --all")
    rows: list[dict[str, Any]] = []
    with open_store(db, create=False) as store:
        faults = store.faults() if every else [store.fault_of(reference) for reference in references]
        variants = {fault.id: store.variants(fault.id) for fault in faults}
    asked = ask_of(variants, device and pick_device(device))
    asked = {key: own for key, own in asked.items() if runs_here(key[1])}
    environments = find_pythons(releases, pythons)
    for n, python in enumerate(environments):
        rows += run_under(python, asked, db, workers, functools.partial(int, n), len(environments))
    with open_store(db, create=False) as store:
        found = [store.fault(fault.id) for fault in faults]
    _print(found, rows, as_json)
    if not any(row["outcome"] in (SHOWS, GONE) for row in rows):
        raise SystemExit(COULD_NOT_RUN)


def run_under(
    python: Path, asked: Asked, db: Path, workers: int | None, done: Callable[[], int] = int, total: int | None = None
) -> list[dict[str, Any]]:
    """Run faults under a Python and store where they live: a row for each. done of total: how far this is, to show."""
    from fuzzer.campaign.told.written import now
    from fuzzer.diagnosis.matrix import release_of, together, where_live
    from fuzzer.ledger.store import open_store

    release, rows = release_of(python), list[dict[str, Any]]()
    with Waiting(f"torch {release}: {len(asked)} fault(s)", done=done, total=total):
        told = where_live(python, asked, db, workers) if release else {}
    with open_store(db) as store:
        for fault, where in asked:
            each = told.get((fault, where), {})
            outcome = together(each) if each else f"not run: {python} imports no torch"
            if release:
                store.note_life(fault, release, where, outcome, now())
            rows.append({"fault": fault, "torch": release, "device": where, "outcome": outcome, "variants": each})
    return rows


def find_pythons(releases: Sequence[str], pythons: Sequence[Path]) -> list[Path]:
    """The Pythons that are asked for. Raises UsageError."""
    import sys

    from fuzzer.diagnosis.matrix import every_python, find_python

    if not releases and not pythons:
        return [*every_python(), Path(sys.executable)]
    found = [(release, find_python(release)) for release in releases]
    for release, python in found:
        if python is None:
            raise UsageError(f"no environment of torch {release}: `scripts/fuzz --torch {release}` makes one")
    return [*(python for _, python in found if python is not None), *pythons]


def _print(found: Sequence[Fault], rows: list[dict[str, Any]], as_json: bool) -> None:
    from fuzzer.ledger.listing import devices
    from fuzzer.ledger.releases import span

    spans = {fault.id: {device: span(fault, device) for device in devices(fault)} for fault in found}
    if as_json:
        told = [encode_fault(f) | {"spans": {d: vars(s) for d, s in spans[f.id].items()}} for f in found]
        click.echo(json.dumps({"faults": told, "runs": rows}))
        return
    for fault in found:
        click.echo(f"{fault.id}  {fault.title}")
        for row in (row for row in rows if row["fault"] == fault.id):
            click.echo(f"  torch {row['torch']} {row['device']}: {row['outcome']}")
        for device, where in spans[fault.id].items():
            fixed = f", fixed in {where.fixed_in}" if where.fixed_in else ""
            click.echo(f"  {device}: first bad {where.first_bad or '?'}, last bad {where.last_bad or '?'}{fixed}")
