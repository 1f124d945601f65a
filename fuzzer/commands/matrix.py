"""`backfuzz matrix`: faults run again, on other releases or here."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, DIFFERS
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    FAULT_HELP,
    db_option,
    json_option,
    pythons_option,
    releases_option,
    workers_option,
)
from fuzzer.commands.shared.pythons import find_pythons, outcomes
from fuzzer.commands.shared.verb import DECIDE
from fuzzer.commands.shared.waiting import Waiting
from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import GONE, SHOWS, Fault, encode_fault

if TYPE_CHECKING:
    from fuzzer.ledger.store import Store


@main.command(
    purpose=DECIDE,
    runs=True,
    exits={1: "with --here: a fault came back", 2: "nothing could run, or there is no such fault, ledger or release"},
    example="backfuzz matrix F9957c78 --torch 2.11.0 --torch 2.13.0\nbackfuzz matrix --here",
)
@click.argument("references", nargs=-1, metavar="[ID]...", help=FAULT_HELP)
@click.option("--all", "every", is_flag=True, help="Run every fault.")
@click.option("--here", is_flag=True, help="Run here, with this torch, and move the states of faults. Without ID: the "
              "open and the fixed faults.")  # fmt: skip
@releases_option
@pythons_option
@click.option("--device", default=None, help="Run all faults on this device. Default: each on those where it was found "
              "and that this machine has.")  # fmt: skip
@workers_option
@db_option
@json_option
def matrix(
    references: Sequence[str],
    every: bool,
    here: bool,
    releases: Sequence[str],
    pythons: Sequence[Path],
    device: str | None,
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Run faults on other releases of torch, or again here.

    Each runs as it was found, and the ledger keeps where it lives. Without --torch, --python and --here: on all
    releases that scripts/fuzz --torch made, and on this one.

    With --here states move: a fault that is gone from a release newer than all on which it lives is fixed; a fixed
    fault that reproduces came back, and is confirmed.
    """
    from fuzzer.campaign.told.written import now
    from fuzzer.diagnosis.rerun import run_under, runnable
    from fuzzer.ledger.store import open_store
    from fuzzer.trial.places import pick_device

    if here and (releases or pythons):
        raise UsageError("--here runs with this torch: leave out --torch and --python")
    with open_store(db, create=False) as store:
        faults = _chosen(store, references, every, here)
        asked = runnable(store, faults, device and pick_device(device))
    environments = [Path(sys.executable)] if here else find_pythons(releases, pythons)
    rows: list[dict[str, Any]] = []
    for n, python in enumerate(environments):
        with Waiting(f"{len(asked)} fault(s) with {python}", str, functools.partial(int, n), len(environments)):
            rows += run_under(python, asked, db, workers, now(), mover="matrix" if here else "")
    with open_store(db, create=False) as store:
        found = [store.fault(fault.id) for fault in faults]
    if as_json:
        _print_json(found, rows)
    elif here:
        _print_here(rows, len({fault.id for fault in faults} - {name for name, _ in asked}))
    else:
        _print(found, rows)
    if not any(row["outcome"] in (SHOWS, GONE) for row in rows):
        sys.exit(COULD_NOT_RUN)
    if any(row["came_back"] for row in rows):
        sys.exit(DIFFERS)


def _chosen(store: Store, references: Sequence[str], every: bool, here: bool) -> list[Fault]:
    """The faults to run. Raises UsageError and StoreError."""
    from fuzzer.diagnosis.rerun import LIVING

    if (every and references) or not (every or references or here):
        raise UsageError("matrix takes the ids of faults, or --all, or --here")
    if references:
        return [store.fault_of(reference) for reference in references]
    return [fault for fault in store.faults() if every or fault.state.name in LIVING]


def _print_json(found: Sequence[Fault], rows: Sequence[dict[str, Any]]) -> None:
    from fuzzer.ledger.listing import devices
    from fuzzer.ledger.releases import span

    spans = {fault.id: {device: vars(span(fault, device)) for device in devices(fault)} for fault in found}
    told = [encode_fault(fault) | {"spans": spans[fault.id]} for fault in found]
    click.echo(json.dumps({"faults": told, "runs": rows}))


def _print_here(rows: Sequence[dict[str, Any]], elsewhere: int) -> None:
    """A line for each fault that ran here, and a count of those that were found on other devices."""
    for row in rows:
        back = "  CAME BACK" if row["came_back"] else ""
        click.echo(f"{row['fault']}  {row['outcome']:6}  {row['state']}  {row['title']}{back}")
    click.echo(f"here {outcomes(rows)}; {elsewhere} were found on other devices")


def _print(found: Sequence[Fault], rows: Sequence[dict[str, Any]]) -> None:
    """A line for each run of a fault, and one for each device with the releases on which the fault lives."""
    from fuzzer.ledger.listing import devices
    from fuzzer.ledger.releases import span

    for fault in found:
        click.echo(f"{fault.id}  {fault.title}")
        for row in (row for row in rows if row["fault"] == fault.id):
            click.echo(f"  torch {row['torch']} {row['device']}: {row['outcome']}")
        for device in devices(fault):
            where = span(fault, device)
            fixed = f", fixed in {where.fixed_in}" if where.fixed_in else ""
            click.echo(f"  {device}: first bad {where.first_bad or '?'}, last bad {where.last_bad or '?'}{fixed}")
