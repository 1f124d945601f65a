"""`backfuzz nightly`: the changes that a new torch brings."""

from __future__ import annotations

import contextlib
import datetime
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fuzzer.campaign.plan import Plan
from fuzzer.commands.shared.config import read_config
from fuzzer.commands.shared.exits import DIFFERS, Refusal
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import db_option, json_option, pythons_option, releases_option, workers_option
from fuzzer.commands.shared.pythons import find_pythons, outcomes
from fuzzer.commands.shared.verb import KEEP
from fuzzer.commands.shared.waiting import Waiting
from fuzzer.commands.shared.web import require_plots, write_page
from fuzzer.language.errors import UsageError
from fuzzer.ledger.changes import Changes, change_lines, changes, encode_changes

REPORT_FILE = Plan.folder / "nightly.json"
_BOUNDS = {"--minutes", "--duration", "--programs", "--until-plateau"}
_USUAL_DURATION = "1h"


@main.command(
    purpose=KEEP,
    runs=True,
    exits={
        0: "no fault came back or is new, or this torch was held against the ledger before",
        1: "a fault came back, or is new",
        2: "wrong usage, or the ledger cannot be read",
    },
    example="backfuzz nightly -o nightly.html\nbackfuzz nightly -- --duration 4h --device cuda",
)
@click.argument(
    "options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]",
    help="Options of `backfuzz fuzz` for the fresh programs. Default: an hour, and the date as the seed.",
)  # fmt: skip
@releases_option
@pythons_option
@click.option("--anyway", is_flag=True, help="Run even if the last night was on this torch.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=None, help="Write a page of HTML, too.")
@workers_option
@db_option
@json_option
def nightly(
    options: tuple[str, ...],
    releases: Sequence[str],
    pythons: Sequence[Path],
    anyway: bool,
    out: Path | None,
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Hold a new torch against the ledger, and report the changes.

    It runs the faults of the ledger again, on other releases those that were not run there yet, and then fresh
    programs for an hour. If the last night in this folder was on this torch, it does nothing.

    Without --torch and --python the other releases are all that scripts/fuzz --torch made.
    """
    from fuzzer.campaign.told.written import now
    from fuzzer.diagnosis.matrix import release_of
    from fuzzer.ledger.faults import release as numbered
    from fuzzer.ledger.store import open_store

    here = Path(sys.executable)
    words = campaign_words(options, db, workers, f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")
    _require_page(out)
    release, last = numbered(release_of(here)), last_night()
    if last.get("torch") == release and not anyway:
        click.echo(json.dumps(last) if as_json else f"torch {release} was looked at on {last['time']}: nothing to do")
        return
    others = [python for python in find_pythons(releases, pythons) if python != here]
    with open_store(db) as store:
        before = store.faults()
    again = run_again(here, db, workers)
    runs = run_missing(others, db, workers)
    code, totals = run_campaign(words)
    runs += run_missing(others, db, workers)
    with open_store(db) as store:
        told = changes(before, store.faults())
    night = {"torch": release, "time": now(), "again": again, "matrix": runs, "campaign": totals, "changes": told,
             "command": "backfuzz fuzz " + shlex.join(words)}  # fmt: skip
    _tell(night, told, as_json, out, db)
    if code not in (0, DIFFERS):
        raise SystemExit(code)
    _keep(night)
    raise SystemExit(DIFFERS if told.bad else 0)


def campaign_words(given: Sequence[str], db: Path, workers: int | None, seed: str) -> list[str]:
    """The options of the campaign: those given, and a seed and an end where neither they nor a file name one.
    Raises UsageError."""
    named = {word.partition("=")[0] for word in given}
    if "--db" in named:
        raise UsageError("--db holds for the whole night: it stands before `--`")
    named |= {f"--{name}" for name in read_config()[1].get("fuzz", {})}
    words = ["--db", str(db), *given]
    words += [] if workers is None else ["--workers", str(workers)]
    words += [] if "--seed" in named else ["--seed", seed]
    return words + ([] if named & _BOUNDS else ["--duration", _USUAL_DURATION])


def run_again(here: Path, db: Path, workers: int | None) -> list[dict[str, Any]]:
    """Run the open and the fixed faults again with this torch, and move their states: a row for each."""
    from fuzzer.campaign.told.written import now
    from fuzzer.diagnosis.rerun import LIVING, run_under, runnable
    from fuzzer.ledger.store import open_store

    with open_store(db) as store:
        asked = runnable(store, [fault for fault in store.faults() if fault.state.name in LIVING])
    with Waiting(f"{len(asked)} fault(s) run again"):
        return run_under(here, asked, db, workers, now(), mover="nightly")


def run_missing(pythons: Sequence[Path], db: Path, workers: int | None) -> list[dict[str, Any]]:
    """Run the open faults with each Python, on the devices of this machine, if the ledger does not know yet whether
    they reproduce there: a row for each."""
    from fuzzer.campaign.told.written import now
    from fuzzer.diagnosis.matrix import release_of
    from fuzzer.diagnosis.rerun import run_under, runnable
    from fuzzer.ledger.faults import OPEN
    from fuzzer.ledger.faults import release as numbered
    from fuzzer.ledger.store import open_store

    rows: list[dict[str, Any]] = []
    for python in pythons:
        release = numbered(release_of(python))
        with open_store(db) as store:
            faults = [fault for fault in store.faults() if fault.state.name in OPEN]
            asked = runnable(store, faults)
        known = {(f.id, place.partition(":")[0]) for f in faults for place in (*f.lives_on, *f.gone_on, *f.unsaid)}
        missing = {key: own for key, own in asked.items() if (key[0], f"{release} {key[1]}") not in known}
        if release and missing:
            with Waiting(f"{len(missing)} fault(s) with torch {release}"):
                rows += run_under(python, missing, db, workers, now())
    return rows


def run_campaign(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Its exit code and summary; {} where it has none. A process of its own: how it ends is no end of the night."""
    command = [sys.executable, "-m", "backfuzz", "fuzz", *words, "--json"]
    # in a group of its own, so that a terminal's Ctrl-C reaches it once: from here
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    with running, _signals_to(running):
        lines = running.communicate()[0].strip().splitlines()
    summary = lines[-1] if lines and lines[-1].startswith("{") else "{}"
    return running.returncode, json.loads(summary)


@contextlib.contextmanager
def _signals_to(running: subprocess.Popen[str]) -> Iterator[None]:
    """Signals that would end this command go to the campaign, which then ends cleanly."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda caught, _: running.send_signal(caught)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def last_night() -> dict[str, Any]:
    """The report of the last whole night in this folder; {} if there was none."""
    try:
        found: dict[str, Any] = json.loads(REPORT_FILE.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _keep(night: Mapping[str, Any]) -> None:
    REPORT_FILE.parent.mkdir(parents=True, exist_ok=True)
    REPORT_FILE.write_text(json.dumps(_encode(night), indent=1) + "\n")


def _encode(night: Mapping[str, Any]) -> dict[str, Any]:
    return {**night, "changes": encode_changes(night["changes"])}


def _tell(night: Mapping[str, Any], told: Changes, as_json: bool, out: Path | None, db: Path) -> None:
    """Print the report, and write it as a page if `out` names one."""
    if out is not None:
        _write_page(out, told, night, db)
    if as_json:
        click.echo(json.dumps(_encode(night)))
        return
    click.echo(f"torch {night['torch']}: {outcomes(night['again'])}")
    if night["matrix"]:
        click.echo(f"on other releases: {len(night['matrix'])} run(s) that the ledger lacked")
    totals = night["campaign"]
    drawn = f"{totals['programs']} programs in {totals['seconds']} s" if totals else "no summary"
    click.echo(f"{night['command']}: {drawn}")
    for line in change_lines(told):
        click.echo(line)


def _require_page(out: Path | None) -> None:
    """Raises Refusal where a page is wanted and cannot be made: before the night, not after."""
    if out is not None:
        require_plots()
        if not out.parent.is_dir():
            raise Refusal(f"there is no folder {out.parent} for the page")


def _write_page(out: Path, told: Changes, night: Mapping[str, Any], db: Path) -> None:
    from fuzzer.export.gather import of_ledger
    from fuzzer.ledger.store import open_store

    with open_store(db) as store:
        contents = of_ledger(store)
    write_page(out, replace(contents, title=f"torch {night['torch']}: what changed", changes=told))
