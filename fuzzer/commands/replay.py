"""`backfuzz replay`: programs run again."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.exits import COULD_NOT_RUN, DIFFERS
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import Sides, db_option, json_option, sides_options, workers_option
from fuzzer.commands.shared.reference import finding_task, load_program, with_files_below
from fuzzer.commands.shared.verb import FIND
from fuzzer.judgement.verdict import CLASSES
from fuzzer.language.errors import UsageError
from fuzzer.language.text import ParseError, parse


@main.command(
    purpose=FIND,
    runs=True,
    exits={
        0: "all agree (with --expect: all are as expected)",
        1: "some differ",
        2: "some could not run, or are no program",
    },
    example="backfuzz replay F9957c78\nbackfuzz replay corpus --expect --junit results.xml",
)
@click.argument(
    "references", nargs=-1, required=True, metavar="FILE|FOLDER|ID...",
    help="Programs: a .prog file, all such files below a folder, or a finding or fault of the ledger, by the first "
    "digits of its id.",
)  # fmt: skip
@click.option("--expect", is_flag=True, help="Compare with the comment `# expect: CLASS` of each file.")
@click.option("--natural", is_flag=True, help="Run the natural program of a finding, if it has one.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML, too.")
@sides_options
@workers_option
@db_option
@json_option
def replay(
    references: Sequence[str],
    expect: bool,
    natural: bool,
    junit: Path | None,
    sides: Sides,
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Run programs again and print their verdicts.

    The caches of the compiler are off. A file that is no program is reported, and the others run.
    """
    from fuzzer.commands.shared.replayed import Replayed

    asked = [ask(reference, sides, db, expect, natural) for reference in with_files_below(references)]
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    found = list[Replayed]()
    for one in _run(asked, workers):
        found.append(one)
        if not as_json:
            click.echo("\n".join([f"{one.program}: {one.head}", *one.evidence]), err=not one.ran)
    if as_json:
        click.echo(json.dumps([one.row for one in found]))
    elif len(found) > 1:
        click.echo(_summary(found))
    if junit is not None:
        _write_junit(junit, found, asked, started)
    sys.exit(0 if all(one.passed for one in found) else DIFFERS if all(one.ran for one in found) else COULD_NOT_RUN)


@dataclass(frozen=True)
class Asked:
    """A program and the Task that runs it; without one `refused` says why it is no program."""

    label: str
    text: str = ""
    task: Any = None
    wanted: tuple[str, ...] = ("agree",)
    refused: Exception | None = None


def ask(reference: str, sides: Sides, db: Path, expect: bool, natural: bool = False) -> Asked:
    """The program of a reference and its task. With `expect` the header of a file names the wanted classes; with
    `natural` the program of a finding is its natural one. Raises StoreError, and UsageError and NoMachine of the
    sides."""
    from fuzzer.judgement.expectation import expected

    try:
        label, text, finding = load_program(reference, db)
        text = finding.grown.program if natural and finding is not None else text
        wanted = expected(parse(text), importlib.metadata.version("torch")) if expect else ("agree",)
    except (UsageError, ParseError) as error:
        return Asked(reference, refused=error)
    return Asked(label, text, finding_task(finding, sides), wanted)


def _run(asked: Sequence[Asked], workers: int | None) -> Iterator[Any]:
    """The results of the programs, in order, each as soon as it is known."""
    from fuzzer.commands.shared.replayed import replayed, unreadable
    from fuzzer.trial.verify import examine_each
    from fuzzer.workers.capacity import default_workers
    from fuzzer.workers.pool import Pool

    able = [one for one in asked if one.refused is None]
    if not able:
        yield from (unreadable(one.label, one.refused) for one in asked if one.refused)
        return
    devices = sorted({side.device for one in able for side in (one.task.place.reference, one.task.place.subject)})
    with Pool(min(workers or default_workers(devices), len(able)), devices) as pool:
        reports = iter(examine_each(pool, [(one.task, parse(one.text)) for one in able]))
        for one in asked:
            yield unreadable(one.label, one.refused) if one.refused else replayed(one.label, next(reports), one.wanted)


def _summary(found: Sequence[Any]) -> str:
    """The number of programs of each class."""
    from fuzzer.commands.shared.replayed import UNREADABLE

    counts = Counter(one.shown for one in found)
    told = ", ".join(f"{counts[name]} {name}" for name in (*CLASSES, UNREADABLE) if counts[name])
    strange = sum(one.ran and not one.passed for one in found)
    more = f"; {strange} not as expected" if any(one.wanted != ("agree",) for one in found) else ""
    return f"{len(found)} programs: {told}{more}"


def _write_junit(path: Path, found: Sequence[Any], asked: Sequence[Asked], started: str) -> None:
    from fuzzer.campaign.plan import environment_of
    from fuzzer.commands.shared.junit import junit

    task = next((one.task for one in asked if one.task is not None), None)
    path.write_bytes(junit(found, environment_of(task) if task is not None else {}, started))
