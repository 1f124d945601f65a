"""How soon do draws come to programs that could show the faults of docs/reach.md? And which does this torch have?

Drawing only: nothing is compiled. A draw is the first drawing of a program number, as a campaign makes it; one that
torch refuses counts and triggers nothing.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from benches.options import json_option, seed_option, task_on
from benches.stream import stream
from benches.triggers import HEARING, TRIGGERS, triggered
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.trial.draw import draw_program
from fuzzer.trial.pipeline import REFUSED
from fuzzer.trial.verify import examine_all
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

CORPUS = Path(__file__).parents[2] / "corpus" / "reach"
SOON = 20_000
_BATCH = 100  # draws a task: half a second


@dataclass(frozen=True)
class Tally(Report):
    """Of some draws: the numbers of those that each trigger met, and how many torch refused."""

    met: dict[str, tuple[int, ...]] = field(default_factory=dict)
    refused: int = 0


# ---------------------------------------------------------------- in the worker


def tally(task: Task, drawn: Iterable[int]) -> Report:
    """The Tally of these program numbers of the task's seed."""
    met: dict[str, list[int]] = {}
    refused = 0
    for index, program in drawn_programs(task, drawn):
        refused += program is None
        for name in triggered(program) if program is not None else ():
            met.setdefault(name, []).append(index)
    return Tally("", met={name: tuple(found) for name, found in met.items()}, refused=refused)


def drawn_programs(task: Task, drawn: Iterable[int]) -> Iterator[tuple[int, Program | None]]:
    """These program numbers of the task's seed, each with its program; None where torch refuses what was drawn."""
    for index in drawn:
        journal().begin(f"# program {index} of seed {task.seed}, not drawn yet")
        try:
            yield index, draw_program(task, index)
        except REFUSED:
            yield index, None


# ---------------------------------------------------------------- the figures


def measure_reach(task: Task, draws: int, workers: int) -> dict[str, Any]:
    """Draw so many programs; for each trigger how many met it, and in how many draws it is met."""
    started = time.perf_counter()
    batches = [range(first, min(first + _BATCH, draws)) for first in range(0, draws, _BATCH)]
    with Pool(workers, ["cpu"]) as pool:
        reports = stream(pool, tally, task, batches)
        # a draw in which the process died takes its batch with it: the others are drawn again, each alone
        alone = [range(n, n + 1) for batch, report in reports if not isinstance(report, Tally) for n in batch]
        reports += stream(pool, tally, task, alone)
    found = [report for _, report in reports if isinstance(report, Tally)]
    told: dict[str, Any] = {"died": sum(not isinstance(report, Tally) and len(batch) == 1 for batch, report in reports)}
    told["hearing"] = reach_summary(found, draws, HEARING)["rows"]
    return reach_summary(found, draws) | told | {"seconds": round(time.perf_counter() - started, 1)}


def reach_summary(found: list[Tally], draws: int, triggers: Collection[str] = tuple(TRIGGERS)) -> dict[str, Any]:
    """The figures of these triggers in tallies of so many draws.

    median   draws until one meets the trigger in half of all campaigns, if draws meet it at the rate that was seen.
    """
    rows = {}
    for name in triggers:
        met = sorted(index for tally in found for index in tally.met.get(name, ()))
        median = round(math.log(2) * draws / len(met)) if met else None
        first = met[0] + 1 if met else None
        rows[name] = {"hits": len(met), "first": first, "per_million": round(1e6 * len(met) / draws), "median": median}
    medians = [row["median"] for row in rows.values() if row["median"] is not None]
    half = statistics.median([*medians, *[math.inf] * (len(rows) - len(medians))])
    return {
        "draws": draws,
        "refused": sum(tally.refused for tally in found),
        "triggers": len(rows),
        "met": len(medians),
        f"under_{SOON}": sum(median < SOON for median in medians),
        "median": None if math.isinf(half) else half,
        "rows": rows,
    }


def hear(device: str, workers: int, only: Collection[int] = ()) -> dict[str, Any]:
    """Run every program of corpus/reach on this torch, or those of these threads; what the oracles say of each."""
    wanted = {f"pytorch_{number}" for number in only}
    paths = [path for path in sorted(CORPUS.glob("*.prog")) if not only or path.stem in wanted]
    texts = {path.stem: path.read_text() for path in paths}
    place = Place(Subject("eager", device), Subject("inductor", device))
    task = Task(place=place, fresh=True, also=("gradients_are_derivatives",))
    with Pool(workers, [device]) as pool:
        reports = examine_all(pool, [(task, parse(text)) for text in texts.values()])
    rows = {name: _said(report) for name, report in zip(texts, reports, strict=True)}
    return {"programs": len(rows), **Counter(report.verdict for report in reports), "rows": rows}


def _said(report: Report) -> str:
    """A verdict, with the signatures behind it or the reason why there is none."""
    behind = report.rejected or ", ".join(str(verdict.signature) for verdict in report.verdicts)
    return f"{report.verdict}: {behind}" if behind else report.verdict


def _table(figures: dict[str, Any]) -> list[str]:
    tables = ("rows", "hearing")
    lines = [f"{key}: {value}" for key, value in figures.items() if key not in tables]
    return lines + [f"    {name}: {row}" for table in tables for name, row in figures.get(table, {}).items()]


@click.command("reach")
@click.option("--draws", default=SOON, show_default=True, type=click.IntRange(1), help="How many programs to draw.")
@click.option("--by-cells", is_flag=True, help="Draw as campaigns do: each program is asked for cells. Slower.")
@click.option("--hear", "heard", is_flag=True, help="Instead: run each program of corpus/reach on this torch.")
@click.option("--only", multiple=True, type=int, metavar="NUMBER", help="With --hear: the programs of these threads.")
@seed_option
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda: whose settings are drawn.")
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes. Default: about one a core.")
@json_option
def reach_command(
    draws: int,
    by_cells: bool,
    heard: bool,
    only: tuple[int, ...],
    seed: int,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """After how many draws does a program come that could show each reported fault of docs/reach.md?

    Nothing is compiled, unless with --hear.
    """
    many = workers or default_workers([device if heard else "cpu"])
    task = replace(task_on(device, seed=seed), cells=by_cells)
    figures = hear(device, many, only) if heard else measure_reach(task, draws, many)
    print(json.dumps(figures) if as_json else "\n".join(_table(figures)))
