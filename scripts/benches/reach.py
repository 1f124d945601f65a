"""How soon do draws come to programs that could show the faults of docs/reach.md? And which does this torch have?

Drawing only: nothing is compiled. A draw is the first drawing of a program number, as a campaign makes it; one that
torch refuses counts and triggers nothing. Of a guidance with mutants of kept programs, these are drawn: to keep
programs, a campaign compiles them.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from benches.options import json_option, seed_option, task_on
from benches.stream import stream
from benches.triggers import HEARING, TRIGGERS, triggered
from fuzzer.campaign.choices import Choice
from fuzzer.campaign.mixture import choose_by_share
from fuzzer.campaign.parents import Parents, shipped_parents
from fuzzer.campaign.plan import BLIND, GUIDANCES
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.trial.draw import draw_program
from fuzzer.trial.origin import mutants_of
from fuzzer.trial.pipeline import REFUSED
from fuzzer.trial.verify import examine_all
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

CORPUS = Path(__file__).parents[2] / "corpus" / "reach"
SOON = 20_000
_BATCH = 100  # draws a task: half a second


_Asked = tuple[int, Choice | None]  # a program number, and how its mutant is made


@dataclass(frozen=True)
class Tally(Report):
    """Of some draws: the numbers of those that each trigger met, how many torch refused, and which are mutants."""

    met: dict[str, tuple[int, ...]] = field(default_factory=dict)
    refused: int = 0
    mutants: tuple[int, ...] = ()


# ---------------------------------------------------------------- in the worker


def tally(task: Task, asked: Iterable[_Asked]) -> Report:
    """The Tally of these program numbers of the task's seed."""
    met: dict[str, list[int]] = {}
    refused, mutants = 0, list[int]()
    for index, choice in asked:
        program, mutant = _program(task, index, choice)
        refused += program is None
        mutants += [index] * mutant
        for name in triggered(program) if program is not None else ():
            met.setdefault(name, []).append(index)
    return Tally("", met={name: tuple(found) for name, found in met.items()}, refused=refused, mutants=tuple(mutants))


def _program(task: Task, index: int, choice: Choice | None) -> tuple[Program | None, bool]:
    """The program of a number, and whether it is a mutant; None where torch refuses it."""
    if choice is not None:
        journal().begin(f"# mutant {index} of seed {task.seed}, of {choice.parent}")
        with contextlib.suppress(*REFUSED):
            return next(mutants_of(task, index, choice.mutation)), True
    return next(program for _, program in drawn_programs(task, [index])), False


def drawn_programs(task: Task, drawn: Iterable[int]) -> Iterator[tuple[int, Program | None]]:
    """These program numbers of the task's seed, each with its program; None where torch refuses what was drawn."""
    for index in drawn:
        journal().begin(f"# program {index} of seed {task.seed}, not drawn yet")
        try:
            yield index, draw_program(task, index)
        except REFUSED:
            yield index, None


# ---------------------------------------------------------------- the figures


def measure_reach(task: Task, draws: int, workers: int, guidance: str = BLIND) -> dict[str, Any]:
    """Draw so many programs; for each trigger how many met it, and in how many draws it is met."""
    started = time.perf_counter()
    parents = shipped_parents() if GUIDANCES[guidance].around else None
    task = replace(task, cells=GUIDANCES[guidance].cells)
    chosen = [(n, None if parents is None else choose_by_share(guidance, parents, task.seed, n)) for n in range(draws)]
    batches = [tuple(chosen[first : first + _BATCH]) for first in range(0, draws, _BATCH)]
    with Pool(workers, ["cpu"]) as pool:
        reports = stream(pool, tally, task, batches)
        # a draw in which the process died takes its batch with it: the others are drawn again, each alone
        alone = [(each,) for batch, report in reports if not isinstance(report, Tally) for each in batch]
        reports += stream(pool, tally, task, alone)
    found = [report for _, report in reports if isinstance(report, Tally)]
    told: dict[str, Any] = {"died": sum(not isinstance(report, Tally) and len(batch) == 1 for batch, report in reports)}
    if parents is not None:
        told |= _left_out(found, {n: choice.parent for n, choice in chosen if choice is not None}, parents)
    told["hearing"] = reach_summary(found, draws, HEARING)["rows"]
    return reach_summary(found, draws) | told | {"seconds": round(time.perf_counter() - started, 1)}


def _left_out(found: Sequence[Tally], causes: Mapping[int, str], parents: Parents) -> dict[str, Any]:
    """How many triggers are met where mutants count only of parents of other causes: than that of the trigger's own
    program, and than any of which a program meets the trigger itself."""
    meets = {
        cause: {name for text in texts for name in triggered(parse(text))} for cause, texts in parents.causes.items()
    }
    mutants = {n: causes[n] for tally in found for n in tally.mutants}
    hits = {name: [n for tally in found for n in tally.met.get(name, ())] for name in TRIGGERS}
    own = {name: sum(mutants.get(n) != f"reach/{name}" for n in numbers) for name, numbers in hits.items()}
    all_ = {name: sum(name not in meets.get(mutants.get(n, ""), ()) for n in numbers) for name, numbers in hits.items()}
    return {
        "mutants": len(mutants),
        "met_without_its_own_program": sum(map(bool, own.values())),
        "met_without_any_parent_that_meets_it": sum(map(bool, all_.values())),
        "left_out": {name: {"own": own[name], "any": all_[name]} for name in TRIGGERS if hits[name]},
    }


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
    tables = ("rows", "left_out", "hearing")
    lines = [f"{key}: {value}" for key, value in figures.items() if key not in tables]
    return lines + [f"    {name}: {row}" for table in tables for name, row in figures.get(table, {}).items()]


@click.command("reach")
@click.option("--draws", default=SOON, show_default=True, type=click.IntRange(1), help="How many programs to draw.")
@click.option(
    "--guidance",
    default=BLIND,
    show_default=True,
    type=click.Choice([name for name, guidance in GUIDANCES.items() if guidance.around or not guidance.mutants]),
    help="How programs are chosen, as of `backfuzz fuzz`.",
)
@click.option("--hear", "heard", is_flag=True, help="Instead: run each program of corpus/reach on this torch.")
@click.option("--only", multiple=True, type=int, metavar="NUMBER", help="With --hear: the programs of these threads.")
@seed_option
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda: whose settings are drawn.")
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes. Default: about one a core.")
@json_option
def reach_command(
    draws: int,
    guidance: str,
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
    task = task_on(device, seed=seed)
    figures = hear(device, many, only) if heard else measure_reach(task, draws, many, guidance)
    print(json.dumps(figures) if as_json else "\n".join(_table(figures)))
