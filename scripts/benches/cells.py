"""How soon are all cells met, drawn blindly and by cells? And the triggers of docs/reach.md?

Drawing only: nothing is compiled. A draw is the first drawing of a program number, as a campaign makes it; one that
torch refuses counts and fills nothing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import click

from benches.calibrate import stream
from benches.reach import Tally, drawn_programs, reach_summary
from benches.triggers import triggered
from fuzzer.campaign.plan import BLIND, CELLS
from fuzzer.coverage.cells import Possible, cells, possible_cells
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.classes import ORDERS, possible_classes, possible_dtypes, possible_layouts
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_BATCH = 50  # draws a task
_SHARES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Filled(Tally):
    """Of some draws: by family and cell the first that filled it, and by number the nodes of each program."""

    first: dict[str, dict[str, int]] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)


# ---------------------------------------------------------------- in the worker


def fill(task: Task, drawn: Iterable[int]) -> Report:
    """What these program numbers of the task's seed fill."""
    first: dict[str, dict[str, int]] = {}
    nodes: dict[int, int] = {}
    met: dict[str, list[int]] = {}
    refused = 0
    for index, program in drawn_programs(task, drawn):
        if program is None:
            refused += 1
            continue
        nodes[index] = len(program.nodes)
        for family, words in cells(program).items():
            for word in words:
                first.setdefault(family, {}).setdefault(word, index)
        for name in triggered(program):
            met.setdefault(name, []).append(index)
    return Filled(
        "", met={name: tuple(found) for name, found in met.items()}, refused=refused, first=first, nodes=nodes
    )


# ---------------------------------------------------------------- the figures


def measure_cells(task: Task, draws: int, workers: int) -> dict[str, Any]:
    """The figures of so many draws, blind and by cells, and what no way of drawing could do without."""
    ops = vocabulary(task.limits, task.ops)
    possible = possible_cells(ops, task.limits)
    figures: dict[str, Any] = {"draws": draws, "seed": task.seed, "arms": {}}
    figures["least_nodes"] = least_nodes(ops, task.limits)
    with Pool(workers, ["cpu"]) as pool:
        for arm in (BLIND, CELLS):
            started = time.perf_counter()
            found, died = _draw(pool, replace(task, cells=arm == CELLS), draws)
            told = arm_summary(found, draws, possible) | {"died": died}
            figures["arms"][arm] = told | {"seconds": round(time.perf_counter() - started, 1)}
    return figures


def _draw(pool: Pool, task: Task, draws: int) -> tuple[list[Filled], int]:
    """What so many draws fill, and in how many the process died."""
    batches = [range(first, min(first + _BATCH, draws)) for first in range(0, draws, _BATCH)]
    reports = stream(pool, fill, task, batches, None)
    alone = [range(n, n + 1) for batch, report in reports if not isinstance(report, Filled) for n in batch]
    reports += stream(pool, fill, task, alone, None)
    died = sum(not isinstance(report, Filled) and len(batch) == 1 for batch, report in reports)
    return [report for _, report in reports if isinstance(report, Filled)], died


def arm_summary(found: list[Filled], draws: int, possible: dict[str, Possible]) -> dict[str, Any]:
    """The figures of these draws: of each family of cells, and of the triggers."""
    counts = {number: n for report in found for number, n in report.nodes.items()}
    nodes = list(accumulate(counts.get(number, 0) for number in range(draws)))
    first: dict[str, dict[str, int]] = {}
    for report in found:
        for family, words in report.first.items():
            known = first.setdefault(family, {})
            for word, index in words.items():
                known[word] = min(index, known.get(word, index))
    reach = reach_summary(list(found), draws)
    return {
        "nodes": nodes[-1],
        "refused": sum(report.refused for report in found),
        "families": {
            family: family_summary(words, nodes, possible.get(family)) for family, words in sorted(first.items())
        },
        "triggers": {key: value for key, value in reach.items() if key not in ("draws", "refused")},
    }


def family_summary(first: dict[str, int], nodes: list[int], possible: Possible | None) -> dict[str, Any]:
    """How many cells of a family were met, by half of the draws and by all; where it is known how many there can be,
    after how many draws, and nodes, a share of them was.

    first   by cell the number of the draw.  nodes  of all draws up to each.
    """
    if possible is None:
        half = sum(index < len(nodes) // 2 for index in first.values())
        return {"met": len(first), "met_by_half": half}
    known = sorted(index for word, index in first.items() if word in possible.known)
    told: dict[str, Any] = {"possible": len(possible.known), "met": len(known)}
    told |= {"untold": possible.unknown, "met_untold": len(first) - len(known)}
    for share in _SHARES:
        needed = math.ceil(share * len(possible.known))
        at = known[needed - 1] if 0 < needed <= len(known) else None
        told[f"{share:.0%}"] = None if at is None else {"draws": at + 1, "nodes": nodes[at]}
    return told


def least_nodes(ops: dict[str, OpSpec], limits: Limits) -> dict[str, int]:
    """Nodes that meet all possible cells of a family if none is wasted: a node fills one cell of an operand's order, of
    each attribute, of a dtype."""

    def largest(counts: Iterable[int]) -> int:
        return max(counts, default=0)

    return {
        "op": len(ops),
        "dtype": sum(len(possible_dtypes(spec, limits)) for spec in ops.values()),
        "attribute": sum(
            largest(len(possible_classes(a, spec) or ()) for a in spec.attributes) for spec in ops.values()
        ),
        "layout": sum(
            largest(len(set(possible_layouts(o) or ()) & set(ORDERS)) for o in spec.operands) for spec in ops.values()
        ),
    }


def _table(figures: dict[str, Any]) -> list[str]:
    lines = [f"nodes needed at least: {figures['least_nodes']}"]
    for arm, told in figures["arms"].items():
        triggers = told["triggers"]
        lines.append(f"{arm}: {figures['draws']} draws, {told['nodes']} nodes, {told['refused']} refused, "
                     f"{told['died']} died, {triggers['met']} of {triggers['triggers']} triggers met")  # fmt: skip
        lines += [f"    {family}: {row}" for family, row in told["families"].items()]
    return lines


@click.command("cells")
@click.option("--draws", default=5000, show_default=True, type=click.IntRange(1), help="How many, blind and by cells.")
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda: whose settings are drawn.")
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes. Default: about one a core.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def cells_command(draws: int, seed: int, device: str, workers: int | None, as_json: bool) -> None:
    """Draws until all ops, dtypes, layouts and classes of attributes were met, blindly and by cells; drawing only."""
    place = Place(Subject("eager", device), Subject("inductor", device))
    task = replace(Task(place, seed), routes=ANY_BACKEND)
    figures = measure_cells(task, draws, workers or default_workers(["cpu"]))
    print(json.dumps(figures) if as_json else "\n".join(_table(figures)))
