"""How often do programs meet the rare planted faults, drawn blindly and by cells?

Each program is judged at a stage before code is built, with all of `rare` planted, and tells which of them acted; those
in code (`miswritten`) cannot act there. What a campaign finds of a fault follows from this rate alone, so that a
difference between two ways of drawing shows here after far fewer CPU seconds than in what campaigns find.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click
from scipy import stats

from benches import rare
from benches.calibrate import stream
from fuzzer.campaign.plan import BLIND, CELLS
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.trial.draw import STAGE
from fuzzer.trial.tasks import explore
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool


def measure_rates(task: Task, programs: int, workers: int) -> dict[str, Any]:
    """By arm, of so many programs of the task's seed: how many ran, and of each fault in how many of them it acted."""
    figures: dict[str, Any] = {"programs": programs, "seed": task.seed, "arms": {}}
    for arm in (BLIND, CELLS):
        started, own = time.perf_counter(), replace(task, cells=arm == CELLS, canary=rare.ALL)
        with Pool(workers, ["cpu"]) as pool:
            reports = [report for _, report in stream(pool, explore, own, range(programs), None)]
        acted = Counter(name for report in reports for name in report.fired)
        figures["arms"][arm] = {
            "ran": sum(not report.rejected for report in reports),
            "acted": dict(sorted(acted.items())),
            "with_any": sum(bool(report.fired) for report in reports),
            "seconds": round(time.perf_counter() - started, 1),
        }
    return figures | {"compared": compared(figures["arms"])}


def compared(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """How many faults acted in more and in fewer programs by cells than blindly, and those of which Fisher's exact test
    says so (two-sided, 0.05)."""
    blind, cells = arms[BLIND], arms[CELLS]
    found: dict[str, Any] = {"more": 0, "fewer": 0, "clearly_more": [], "clearly_fewer": []}
    for name in sorted(blind["acted"] | cells["acted"]):
        a, b = blind["acted"].get(name, 0), cells["acted"].get(name, 0)
        table = [[a, blind["ran"] - a], [b, cells["ran"] - b]]
        word = "more" if b * blind["ran"] > a * cells["ran"] else "fewer"
        found[word] += 1
        if stats.fisher_exact(table).pvalue < 0.05:
            found[f"clearly_{word}"].append(name)
    return found


def _table(figures: Mapping[str, Any]) -> list[str]:
    blind, cells = (figures["arms"][arm] for arm in (BLIND, CELLS))
    lines = [f"{row['ran']} programs ran, in {row['with_any']} of them a fault acted" for row in (blind, cells)]
    for name in sorted(blind["acted"] | cells["acted"]):
        lines.append(f"    {name}: {blind['acted'].get(name, 0)} blindly, {cells['acted'].get(name, 0)} by cells")
    return [*lines, *(f"{key}: {value}" for key, value in figures["compared"].items())]


@click.command("rates")
@click.option("--programs", default=1000, show_default=True, type=click.IntRange(1), help="How many, each way.")
@click.option("--seed", default=0, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes. Default: about one a core.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def rates_command(programs: int, seed: int, workers: int | None, as_json: bool) -> None:
    """In how many programs each rare planted fault acts, drawn blindly and by cells; nothing is built."""
    place = Place(Subject("eager", "cpu"), Subject("inductor", "cpu").at(STAGE))
    task = Task(place, seed, routes=ANY_BACKEND, final=False)
    figures = measure_rates(task, programs, workers or default_workers(["cpu"]))
    print(json.dumps(figures) if as_json else "\n".join(_table(figures)))
