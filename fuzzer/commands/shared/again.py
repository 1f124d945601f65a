"""A stored finding looked at again here: its diagnosis, natural program or scope, made anew and stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, DONE
from fuzzer.commands.shared.options import Sides
from fuzzer.commands.shared.reference import finding_task, runs_here
from fuzzer.commands.shared.waiting import FOLDER, starting, working
from fuzzer.judgement.verdict import FINDINGS, Finding
from fuzzer.language.text import parse
from fuzzer.ledger.faults import Fault
from fuzzer.ledger.scope import Scope

if TYPE_CHECKING:
    from fuzzer.ledger.store import Store

VARY_SECONDS = 90.0  # 40 programs at a stage take 20 s of CPU time, a full compile 3 s

Looked = TypeVar("Looked", bound=Finding | str)
Found = TypeVar("Found")


def for_each(
    labelled: Sequence[tuple[str, Looked]],
    one: Callable[[Looked], Found | None],
    store: Callable[[Store, Found], object],
    tell: Callable[[str, Found], tuple[dict[str, Any], str]],
    db: Path,
    as_json: bool,
) -> NoReturn:
    """Look at each finding, or text of a program, again here, store and print the result, and exit.

    labelled   (id, finding), or (file, text of a program), of which nothing is stored.
    one        looks at it; None where it does not reproduce here.  store   writes the result into the ledger.
    tell       (row of JSON, text for a person) of a label and a result.
    """
    from fuzzer.ledger.store import open_store

    _import_torch()
    rows = []
    for label, looked in labelled:
        found = one(looked)
        if found is None:
            where = f" (found with torch {looked.place.get('torch')})" if isinstance(looked, Finding) else ""
            click.echo(f"{label}: it does not reproduce here{where}", err=True)
            continue
        if isinstance(looked, Finding):
            with open_store(db) as opened:
                store(opened, found)
        row, text = tell(label, found)
        rows.append(row)
        if not as_json:
            click.echo(text)
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(DONE if len(rows) == len(labelled) else COULD_NOT_RUN)


def findings_of(references: Sequence[str], db: Path) -> list[tuple[str, Finding]]:
    """(id, finding) of each reference. Raises StoreError."""
    from fuzzer.ledger.store import open_store

    with open_store(db, create=False) as store:
        return [(finding.id, finding) for finding in map(store.get, references)]


# ---------------------------------------------------------------- one finding


def diagnose_one(finding: Finding, device: str | None, workers: int | None) -> Finding | None:
    """The finding with a new diagnosis; None where it does not reproduce."""
    from fuzzer.diagnosis.diagnose import diagnose
    from fuzzer.trial.tasks import examine
    from fuzzer.trial.verify import RUNS, ask, examine_all, matching

    task = finding_task(finding, Sides(device))
    with working(f"diagnosing {finding.id}", task.place.devices, workers) as pool:
        # a pool's first full compile takes 13 s (it makes the precompiled header) on one core: the diagnosis begins
        # beside it, and ends at once should the program not reproduce
        program = parse(finding.program)
        first = ask(pool, examine, task, program)
        ended: list[bool] = []

        def gone() -> bool:
            if first.done() and not ended:
                ended.append(matching(pool.result(first, task), finding.signature) is None)
            return ended == [True]

        found = diagnose(finding, task, pool, FOLDER, gone)
        wait([first])
        if not gone():
            return found
        again = examine_all(pool, [(task, program)] * (RUNS - 1))
        shows = any(matching(report, finding.signature) for report in again)
        return diagnose(finding, task, pool, FOLDER) if shows else None


def grow_one(
    finding: Finding, device: str | None, workers: int | None, text: str = ""
) -> tuple[Finding, tuple[str, ...], int] | None:
    """The finding with its natural program, the steps that led there, the number of programs that ran; None where it
    does not reproduce.

    text   the program that a person wrote; "" to grow one.
    """
    from fuzzer.campaign.suspects.growing import grow_finding, with_program
    from fuzzer.trial.verify import examine_all, matching

    task = finding_task(finding, Sides(device))
    with working(f"growing {finding.id}", task.place.devices, workers) as pool:
        if text:
            held = with_program(finding, parse(text), task, pool, FOLDER)
            return None if held is None else (held, (), 1)
        shows = matching(examine_all(pool, [(task, parse(finding.program))])[0], finding.signature) is not None
        grown, growth = grow_finding(finding, task, pool, FOLDER)  # what rounding hides may show with other values
        return (grown, growth.history, growth.queries) if shows or growth.history else None


def vary_one(
    varied: Finding | str, device: str | None, workers: int | None = None, seconds: float = VARY_SECONDS
) -> Scope | None:
    """The scope of a finding's fault, or of the worst verdict on a program's text; None where it does not reproduce."""
    from fuzzer.campaign.suspects.varying import other_devices, vary
    from fuzzer.campaign.told.written import now
    from fuzzer.trial.verify import examine_all

    task = finding_task(None if isinstance(varied, str) else varied, Sides(device))
    with working("varying", [*task.place.devices, *other_devices(task.place)], workers) as pool:
        if isinstance(varied, str):
            shown = next(iter(examine_all(pool, [(task, parse(varied))])[0].verdicts), None)
            if shown is None or shown.signature.verdict not in FINDINGS:
                return None
            varied = Finding(shown.signature, shown.detail, varied, varied, {}, 0, 0)
        return vary(varied, task, pool, now(), seconds)


# ---------------------------------------------------------------- the diagnosis, kept up to date


def note_gone(finding: Finding, device: str | None, db: Path) -> None:
    """Store that a finding without a current diagnosis does not reproduce any more on the release and the device where
    it was found; nothing where that is another release or device."""
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
    """The finding and its fault, diagnosed again and stored if its diagnosis is missing or of an older version; as they
    are where it cannot run or does not reproduce here. One line on stderr says so."""
    from fuzzer.ledger import diagnosed
    from fuzzer.ledger.errors import StoreError
    from fuzzer.ledger.faults import release
    from fuzzer.ledger.store import open_store

    if diagnosed.is_current(finding) or not runs_here(finding, device):
        return finding, fault
    _import_torch()
    import torch

    version, here = diagnosed.diagnosed_by(finding), release(torch.__version__)
    before = f"was diagnosed by version {version} of the diagnosis" if version else "was not diagnosed"
    on = (device or finding.place.get("device", "cpu")).split(":")[0]
    if f"{here} {on}" in fault.gone_on:
        return finding, fault
    click.echo(f"{finding.id}: it {before}: diagnosing it (--no-diagnose leaves that)", err=True)
    found = diagnose_one(finding, device, None)
    if found is None:
        told = f"it does not reproduce here, with torch {here}; its diagnosis stays as it is"
        click.echo(f"{finding.id}: {told}", err=True)
        return finding, fault
    try:
        with open_store(db) as store:
            store.set_diagnosis(found)
            return found, store.fault_of(found.id)
    except StoreError as error:
        click.echo(f"{finding.id}: the diagnosis is not stored: {error}", err=True)
    return found, fault


def _import_torch() -> None:
    """Import torch, which takes seconds: a person sees that."""
    start = starting()
    import torch  # noqa: F401

    start.stop()
