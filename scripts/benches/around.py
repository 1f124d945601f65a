"""What do mutants around given programs cost, how many are refused and why, and how evenly do parents have their turn?

Mutants are made only: nothing is compiled.
"""

from __future__ import annotations

import functools
import operator
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from benches.options import json_option, print_figures, seed_option, task_on, workers_option
from benches.stream import stream
from fuzzer.campaign.choices import Choice
from fuzzer.campaign.mixture import choose_around
from fuzzer.campaign.parents import Parents, shipped_parents
from fuzzer.commands.shared.source import parents_of
from fuzzer.generation.draft import Rejected
from fuzzer.language.text import parse, show
from fuzzer.trial.origin import mutants_of
from fuzzer.trial.pipeline import REFUSED
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_BATCH = 25  # mutants a task
_WARM = 10  # programs of a process that do not count: the first ones import
_Asked = tuple[int, Choice]


@dataclass(frozen=True)
class Made(Report):
    """Of some numbers: (cause, CPU seconds, why none was made or "", whether the parent's ops stand in their order)."""

    made: tuple[tuple[str, float, str, bool], ...] = field(default=())


# ---------------------------------------------------------------- in the worker


def make(task: Task, asked: Sequence[_Asked]) -> Report:
    """The mutants of these numbers."""
    return Made("", made=tuple(_made(task, number, choice) for number, choice in asked))


def _made(task: Task, number: int, choice: Choice) -> tuple[str, float, str, bool]:
    journal().begin(f"# mutant {number} of seed {task.seed}, of {choice.parent}")
    began = time.process_time()
    try:
        program = next(mutants_of(task, number, choice.mutation))
    except (Rejected, *REFUSED) as error:
        return choice.parent, time.process_time() - began, str(error).partition("most often: ")[2] or str(error), False
    spent = time.process_time() - began
    ops = iter([node.op for node in program.nodes])
    kept = all(node.op in ops for node in parse(choice.mutation.parent).nodes)
    return choice.parent, spent, "", kept and show(program) != choice.mutation.parent


# ---------------------------------------------------------------- the figures


def measure_around(task: Task, parents: Parents, mutants: int, workers: int) -> dict[str, Any]:
    """The figures of so many mutants."""
    chosen = [(number, choose_around(parents, task.seed, number)) for number in range(mutants)]
    batches = [chosen[at : at + _BATCH] for at in range(0, mutants, _BATCH)]
    with Pool(workers, ["cpu"]) as pool:
        stream(pool, make, task, [chosen[:_WARM]] * workers)
        reports = stream(pool, make, task, batches)
        alone = [[each] for batch, report in reports if not isinstance(report, Made) for each in batch]
        again = stream(pool, make, task, alone)
    died = [batch[0][1].parent for batch, report in again if not isinstance(report, Made)]
    rows = [row for _, report in (*reports, *again) if isinstance(report, Made) for row in report.made]
    return around_summary(parents, rows, died)


def around_summary(
    parents: Parents, rows: Sequence[tuple[str, float, str, bool]], died: Sequence[str]
) -> dict[str, Any]:
    """Figures of these rows of `Made`, and of the causes of mutants that took their process with them.

    ms   CPU milliseconds of those that were made.  asked, made   how often one cause was, of all causes.
    """
    milliseconds = sorted(1000 * spent for _, spent, why, _ in rows if not why)
    why = Counter(reason.partition(":")[0] for _, _, reason, _ in rows if reason)
    asked = Counter(dict.fromkeys(parents.causes, 0)) + Counter(cause for cause, *_ in rows) + Counter(died)
    made = Counter(cause for cause, _, reason, _ in rows if not reason)
    barren = sorted(cause for cause in asked if not made[cause])
    return {
        "mutants": len(rows) + len(died),
        "made": len(milliseconds),
        "keep_the_parent's_ops": sum(kept for *_, kept in rows),
        "died": len(died),
        "refused": dict(why.most_common()),
        "ms": _spread(milliseconds) | {"mean": round(statistics.fmean(milliseconds), 1)} if milliseconds else {},
        "causes": len(parents.causes),
        "asked": _spread(sorted(asked[cause] for cause in parents.causes)),
        "made_of_a_cause": _spread(sorted(made[cause] for cause in parents.causes)),
        "causes_of_which_none_was_made": len(barren),
        "rows": {"barren": barren, "died": list(died)},
    }


def _spread(ordered: Sequence[float]) -> dict[str, float]:
    """The least, the median, the 90th percentile and the most of numbers in order."""
    at = {"least": 0.0, "median": 0.5, "90 %": 0.9, "most": 1.0}
    return {name: round(ordered[int(share * (len(ordered) - 1))], 1) for name, share in at.items()}


@click.command("around")
@click.argument("what", nargs=-1)
@click.option("--mutants", default=2000, show_default=True, type=click.IntRange(1), help="How many to make.")
@seed_option
@workers_option
@json_option
def around_command(what: tuple[str, ...], mutants: int, seed: int, workers: int, as_json: bool) -> None:
    """What do mutants around programs cost, how many are refused and why, and how even are the parents' turns?

    WHAT is as of `fuzz --around`; without it, the programs that are shipped. Nothing is compiled.
    """
    parents = functools.reduce(operator.or_, map(parents_of, what)) if what else shipped_parents()
    print_figures(measure_around(task_on("cpu", seed=seed), parents, mutants, workers), as_json)
