"""Is eager's gradient the derivative of what its forward computes, for every op, dtype and layout?

Programs are drawn by cells, so that each op comes in each dtype and each class of layout soon; nothing is compiled.
Each is put on trial (`gradients_are_derivatives`), and what contradicts it is printed with the program.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import click
import torch

from benches.options import json_option, seed_option, workers_option
from benches.reach import drawn_programs
from benches.stream import stream
from fuzzer.coverage.cells import Possible, cells, possible_cells
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.judgement.derivatives import own_rule
from fuzzer.judgement.oracles import gradients_are_derivatives
from fuzzer.judgement.trial import Trial
from fuzzer.language.text import show
from fuzzer.rounding.replay import Unreplayable
from fuzzer.trial.pipeline import REFUSED, run_reference
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.usage import cpu_seconds

FAMILIES = ("op", "dtype", "layout")
_BATCH = 20  # draws a task


@dataclass(frozen=True)
class Tried(Report):
    """Of some draws: what became of them, the cells of those that were asked, and what was contradicted.

    found   (detail, program) of each contradiction;  spent  CPU seconds of asking.
    """

    became: dict[str, int] = field(default_factory=dict)
    met: dict[str, set[str]] = field(default_factory=dict)
    found: tuple[tuple[str, str], ...] = ()
    spent: float = 0.0


def try_eager(task: Task, drawn: Iterable[int]) -> Report:
    """These program numbers of the task's seed, each with eager on trial."""
    became: Counter[str] = Counter()
    met: dict[str, set[str]] = {family: set() for family in FAMILIES}
    found: list[tuple[str, str]] = []
    spent = 0.0
    for _, program in drawn_programs(task, drawn):
        if program is None:
            became["refused"] += 1
            continue
        try:
            trial = run_reference(program, task, journal())
            with torch.no_grad():
                rule, started = own_rule(trial), cpu_seconds()
                told = _told(trial)
        except REFUSED:
            became["refused"] += 1
            continue
        except Unreplayable:
            became["not replayed"] += 1
            continue
        if rule:
            became["not asked"] += 1
            continue
        spent += cpu_seconds() - started
        became["contradicted" if told else "no contradiction"] += 1
        found += [(told, show(program))] if told else []
        for family in FAMILIES:
            met[family] |= set(cells(program)[family])
    return Tried("", became=dict(became), met=met, found=tuple(found), spent=spent)


def _told(trial: Trial) -> str:
    """What contradicts eager's gradients; "" for nothing. A compiled side is not needed."""
    verdict = gradients_are_derivatives(replace(trial, subject=trial.reference))
    return verdict.detail if verdict else ""


def measure_derivatives(task: Task, draws: int, workers: int) -> dict[str, Any]:
    """The figures of so many draws by cells; met: cells of what was asked, of all that the table says there can be."""
    started = time.perf_counter()
    batches = [range(first, min(first + _BATCH, draws)) for first in range(0, draws, _BATCH)]
    with Pool(workers, ["cpu"]) as pool:
        reports = [r for _, r in stream(pool, try_eager, task, batches) if isinstance(r, Tried)]
    became: Counter[str] = Counter()
    for report in reports:
        became.update(report.became)
    possible: Mapping[str, Possible] = possible_cells(vocabulary(task.limits, task.ops), task.limits)
    met = {family: set[str]().union(*(report.met[family] for report in reports)) for family in FAMILIES}
    asked = became["contradicted"] + became["no contradiction"]
    return {
        "draws": draws,
        **became,
        "met": {
            family: [len(found & possible[family].known), len(possible[family].known)] for family, found in met.items()
        },
        "cpu_seconds_each": round(sum(report.spent for report in reports) / max(asked, 1), 4),
        "found": [found for report in reports for found in report.found],
        "seconds": round(time.perf_counter() - started, 1),
    }


@click.command("derivatives")
@click.option("--draws", default=1000, show_default=True, type=click.IntRange(1), help="How many programs to draw.")
@seed_option
@workers_option
@json_option
def derivatives_command(draws: int, seed: int, workers: int, as_json: bool) -> None:
    """Are eager's gradients the derivatives of its forward, for every op, dtype and layout?"""
    figures = measure_derivatives(Task(seed=seed, cells=True), draws, workers)
    if as_json:
        print(json.dumps(figures))
        return
    print(*(f"{key}: {value}" for key, value in figures.items() if key != "found"), sep="\n")
    print(*(f"\n# {told}\n{text}" for told, text in figures["found"]), sep="\n")
