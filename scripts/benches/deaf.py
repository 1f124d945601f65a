"""Which kernels make elements deaf? Eager and the rounding model's replays alone; nothing is compiled."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import click
import torch

from benches.options import common_options, print_figures, programs_option, task_on
from benches.stream import streamed
from fuzzer.judgement.comparison import first_spread
from fuzzer.judgement.oracles import deaf_elements, detectable
from fuzzer.language.program import Program
from fuzzer.language.text import show
from fuzzer.rounding.deaf import Deafening, deafening
from fuzzer.trial.draw import draw_program
from fuzzer.trial.pipeline import REFUSED, record_reference, refusal
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_SHOWN_AFTER = 100  # programs between two lines of progress


@dataclass(frozen=True)
class Deafened(Report):
    """A Report with the kernels that make elements deaf, and the number of elements of outputs and gradients."""

    makers: tuple[Deafening, ...] = ()
    targets: int = 0


def _draw(task: Task, index: int) -> Report:
    """Program `index` of the task's seed, in its first drawing."""
    try:
        return deafened(task, draw_program(task, index))
    except REFUSED as error:
        return refusal("", error)


def deafened(task: Task, program: Program) -> Report:
    """The Deafened of this program; a refusal where eager or the replay refuses it."""
    text = show(program)
    try:
        trial = record_reference(program, task, journal())
        journal().phase("judge")
        with torch.no_grad():
            makers = deafening(trial.model, first_spread(trial))
            seen, total = detectable(trial)
            targets = sum(r.numel() for r in trial.model.reference)
            return Deafened(text, detectable=seen, elements=total, deaf=deaf_elements(trial),
                            makers=tuple(makers), targets=targets)  # fmt: skip
    except REFUSED as error:
        return refusal(text, error)


@dataclass
class Row:
    """What one kernel makes deaf: elements by cause, and how many with exact operands; programs, by number."""

    programs: list[int] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    exact: int = 0

    def figures(self) -> dict[str, Any]:
        return {
            "programs": len(self.programs),
            "elements": self.causes.total(),
            "of_exact_operands": self.exact,
            "causes": dict(self.causes.most_common()),
            "examples": self.programs[:5],
        }


def ranked(reports: Iterable[tuple[int, Report]]) -> dict[str, Row]:
    """The kernels of numbered programs that make elements deaf: of most programs first, then of most elements."""
    rows: dict[str, Row] = {}
    for number, report in reports:
        for maker in report.makers if isinstance(report, Deafened) else ():
            row = rows.setdefault(f"{'backward ' * maker.backward}{maker.kernel}", Row())
            row.causes[maker.cause] += maker.elements
            row.exact += maker.elements * maker.exact
            if row.programs[-1:] != [number]:
                row.programs.append(number)
    return dict(sorted(rows.items(), key=lambda each: (-len(each[1].programs), -each[1].causes.total())))


def deaf_figures(reports: list[tuple[int, Report]]) -> dict[str, Any]:
    """The ranking, and the shares of programs and elements that are detectable and deaf."""
    ran = [(number, report) for number, report in reports if isinstance(report, Deafened)]
    elements = max(sum(report.elements for _, report in ran), 1)
    silent = [(number, report) for number, report in ran if not report.detectable]
    return {
        "programs": len(ran),
        "detectable_share": round(1 - len(silent) / max(len(ran), 1), 4),
        "detectable_elements_share": round(sum(report.detectable for _, report in ran) / elements, 4),
        "deaf_elements_share": round(sum(report.deaf for _, report in ran) / elements, 4),
        "with_deaf_elements": sum(bool(report.makers) for _, report in ran),
        "undetectable": dict(Counter(_why_silent(report) for _, report in silent).most_common()),
        "kernels": {name: row.figures() for name, row in ranked(ran).items()},
    }


def _why_silent(report: Deafened) -> str:
    """Why no gradient of a program is detectable."""
    if not report.elements:
        return "no gradient"
    if not report.deaf:
        return "every gradient is zero or not finite"
    return f"deaf: {report.makers[0].kernel}, {report.makers[0].cause}"


def measure_deafness(task: Task, programs: int, workers: int) -> dict[str, Any]:
    """Draw so many programs of the task's seed; the figures of those that run. Progress goes to stderr."""
    started, reports = time.perf_counter(), []
    with Pool(workers, [task.place.subject.device]) as pool:
        for _, index, report in streamed(pool, _draw, task, range(programs)):
            reports.append((index, report))
            if not len(reports) % _SHOWN_AFTER:
                print(f"{len(reports)} of {programs}", file=sys.stderr)
    figures = deaf_figures(sorted(reports, key=lambda each: each[0]))
    return figures | {"seconds": round(time.perf_counter() - started, 1)}


@click.command("deaf")
@programs_option(2000)
@common_options
def deaf_command(programs: int, workers: int, seed: int, device: str, backend: str, as_json: bool) -> None:
    """Which kernels make how many elements of how many programs deaf?"""
    task = replace(task_on(device, backend, seed), routes=Task.routes, cells=True)
    print_figures(measure_deafness(task, programs, workers), as_json)
