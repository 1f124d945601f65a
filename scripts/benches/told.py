"""What does a campaign tell of a fault? Rare faults are planted one at a time, in a campaign of its own each.

A program is *due* to a fault where it differs with the fault planted and agrees without. A campaign *hits* a fault
where a drawn program is due to it. The fault is *told* where the core of a confirmed or explained key is, and
*settled* where a finding in the ledger is. Each campaign has one worker and a ledger of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from benches import rare
from benches.agreement import ROOT
from benches.options import device_option, json_option, print_figures, seed_option, task_on
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import FORWARD, STAGED, Plan
from fuzzer.campaign.schedule import BySeed
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.ledger.store import open_store
from fuzzer.trial.batch import usual_batch
from fuzzer.trial.verify import examine_all
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_GRACE = 900.0  # seconds that a campaign may take beyond its minutes, before it is killed


@dataclass
class Watched(BySeed):
    """Programs of a seed; the texts of those that differed where the fault acted."""

    fault: str
    acted: list[str] = field(default_factory=list)

    def learn(self, n: int, report: Report) -> None:
        if report.verdict in FINDINGS and self.fault in report.fired:
            self.acted.append(report.text)


@dataclass(frozen=True)
class Told:
    """What came of a campaign. acted: programs that differed where the fault acted; `lines` are those of unconfirmed
    keys, whoever is to blame."""

    fault: str
    programs: int
    suspects: int
    acted: int
    hit: bool
    told: bool
    settled: bool
    seconds: float
    lines: list[str] = field(default_factory=list)


def campaign_on(fault: str, task: Task, minutes: float, known: tuple[Path, ...], folder: Path) -> Told:
    """Run the campaign in which this fault is planted, and see whom its keys and findings are due to."""
    task = replace(task, canary=f"{rare.__name__}:{fault}", staged=STAGED, forward=FORWARD, final=False)
    batch = usual_batch(task.place.subject, task.staged)
    plan = Plan(task, 1, minutes, db=folder / "ledger.db", folder=folder / "own", batch=batch, known=known)
    watched, began = Watched(fault), time.monotonic()
    campaign = Campaign(plan, lambda line: print(line, file=sys.stderr, flush=True), lambda own: watched)
    totals = campaign.run()
    seconds = time.monotonic() - began
    with open_store(plan.db) as store:
        stored = [parse(finding.program) for finding in store.list()]
    assert campaign.triage is not None
    cores = [c.first.core for c in campaign.triage.clusters if (c.told or c.fault) and c.first.core is not None]
    with Pool(1, task.place.devices) as pool:
        settled = _is_due(stored, task, pool)
        told = settled or _is_due([core.program for core in cores], task, pool)
        hit = told or _is_due([parse(text) for text in watched.acted], task, pool)
    return Told(
        fault, totals.programs, totals.suspects.total(), len(watched.acted), hit, told, settled, round(seconds, 1),
        list(totals.unconfirmed.values()),
    )  # fmt: skip


def _is_due(programs: list[Program], task: Task, pool: Pool) -> bool:
    """Whether one of the programs differs with the fault and agrees without."""
    for program in programs:
        with_it, without = examine_all(pool, [(task, program), (replace(task, canary=""), program)])
        if with_it.verdict in FINDINGS and without.verdict == "agree":
            return True
    return False


def told_figures(rows: list[Told]) -> dict[str, Any]:
    """How many faults were hit, and of these told and settled."""
    hit = [row for row in rows if row.hit]
    return {
        "campaigns": len(rows),
        "hit": len(hit),
        "told": sum(row.told for row in hit),
        "settled": sum(row.settled for row in hit),
        "longest_seconds": max((row.seconds for row in rows), default=0.0),
        "untold": [row.fault for row in hit if not row.told],
        "rows": [asdict(row) for row in rows],
    }


def _each(faults: tuple[str, ...], jobs: int, words: list[str], seconds: float) -> Iterator[Told]:
    """The row of each fault, by a process of its own, so many at a time."""

    def one(fault: str) -> Told:
        command = [sys.executable, "-W", "ignore", "-m", "benches", "told", "--fault", fault, "--json", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=True)
        return Told(**json.loads(done.stdout.splitlines()[-1])["rows"][0])

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(one, faults)


@click.command("told")
@click.option("--fault", "faults", multiple=True, type=click.Choice(sorted(rare.PLANTS)), help="Default: all of them.")
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True, help="Of a campaign."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Campaigns at a time.")
@click.option(
    "--known", multiple=True, type=click.Path(exists=True, path_type=Path), default=(ROOT / "findings.db",),
    show_default="findings.db", help="Ledgers whose faults are known.",
)  # fmt: skip
@device_option
@seed_option
@json_option
def told_command(
    faults: tuple[str, ...],
    minutes: float,
    jobs: int,
    known: tuple[Path, ...],
    device: str,
    seed: int,
    as_json: bool,
) -> None:
    """Of rare faults, how many does a campaign hit, tell and settle?"""
    faults = faults or tuple(sorted(rare.PLANTS))
    if len(faults) == 1:
        with tempfile.TemporaryDirectory() as folder:
            rows = [campaign_on(faults[0], task_on(device, seed=seed), minutes, known, Path(folder))]
    else:
        words = ["--minutes", f"{minutes:g}", "--device", device, "--seed", str(seed)]
        words += [word for path in known for word in ("--known", str(path))]
        rows = []
        for row in _each(faults, jobs, words, 60 * minutes + _GRACE):
            print(f"{row.fault}: hit {row.hit}, told {row.told}, settled {row.settled}", file=sys.stderr, flush=True)
            rows.append(row)
    print_figures(told_figures(rows), as_json)
