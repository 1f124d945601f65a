"""`scripts/bench faults` and `time-to-fault`: ways to choose programs in live campaigns, side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benches import curves, faults, rows
from benches.options import print_figures, task_on, workers_option
from fuzzer.campaign.plan import CELLS
from fuzzer.generation.sets import parse_ops
from fuzzer.language.errors import UsageError
from fuzzer.workers.messages import Task


def _raced(command: Any) -> Any:
    """Options of what runs campaigns side by side."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object, the last line."),
        click.option("--device", default="cpu", show_default=True, is_eager=True, help="cpu or cuda."),
        click.option("--ops", default=None, help="Ops to draw from, as of `backfuzz fuzz`."),
        click.option(
            "--batch", default=None, type=click.IntRange(1), help="Programs at once, in arms that have several."
        ),
        click.option(
            "--first-seed", default=1, show_default=True, type=click.IntRange(1), help="Of the seeds, the lowest."
        ),
        click.option("--seeds", default=5, show_default=True, type=click.IntRange(1), help="How many."),
        click.option("--minutes", default=float("inf"), type=click.FloatRange(0), help="Begin no program after this."),
        click.option(
            "--rows", "files", multiple=True, type=click.Path(path_type=Path), help="The file of rows; appended to."
        ),
        click.option("--report", is_flag=True, help="Run nothing: tell what is in files of rows (--rows, repeatable)."),
    ):
        command = option(command)
    return command


def _racing(device: str, ops: str | None) -> Task:
    return replace(task_on(device, "inductor", 0), ops=parse_ops(ops) if ops else ())


@click.command("faults")
@click.option(
    "--arms",
    default=None,
    help=f"What is compared, the first with the others. Default: {','.join(faults.ARMS)}; of a report, all.",
)
@click.option("--cpu-seconds", default=300.0, show_default=True, help="That a campaign may take.")
@click.option("--svg", type=click.Path(path_type=Path), default=None, help="Faults and features over CPU time.")
@_raced
def faults_command(
    arms: str | None, cpu_seconds: float, svg: Path | None, device: str, ops: str | None, seeds: int, first_seed: int,
    batch: int | None, minutes: float, files: tuple[Path, ...], report: bool, as_json: bool,
) -> None:  # fmt: skip
    """Which way to choose programs finds how many planted faults in how many CPU seconds?

    Live campaigns of one worker each run side by side, with all rare faults planted.
    """
    paths = files or (Path(".backfuzz/faults.jsonl"),)
    chosen = _arms(arms) if arms else tuple(faults.ARMS)
    if not report:
        plan = faults.Plan(
            chosen, seeds, len(chosen) * seeds, seconds=cpu_seconds, minutes=minutes, first=first_seed, batch=batch
        )
        faults.measure_faults(_racing(device, ops), plan, paths[0])
    figures = rows.report(paths, chosen if arms else ())
    if svg is not None:
        svg.write_text(curves.picture(rows.read_rows(paths)[1], figures["cpu_seconds"]))
    print(json.dumps(figures) if as_json else "\n".join(rows.table(figures)))


@click.command("time-to-fault")
@click.option("--arms", default=CELLS, show_default=True, help="Ways to choose programs.")
@click.option(
    "--at-once", default=1, show_default=True, type=click.IntRange(1), help="Campaigns that share the workers."
)
@click.option("--seconds", default=600.0, show_default=True, help="That a campaign may take.")
@workers_option
@_raced
def time_to_fault_command(
    arms: str, at_once: int, seconds: float, device: str, workers: int, ops: str | None, seeds: int, first_seed: int,
    batch: int | None, minutes: float, files: tuple[Path, ...], report: bool, as_json: bool,
) -> None:  # fmt: skip
    """How many seconds does a campaign take from an empty corpus, with warm workers, to the slice_scatter fault?

    The fault is planted from torch 2.12 on.
    """
    paths = files or (Path(".backfuzz/time-to-fault.jsonl"),)
    if not report:
        each = max(1, workers // at_once)
        plan = faults.Plan(
            _arms(arms), seeds, at_once, each, limit=seconds, minutes=minutes, first=first_seed, batch=batch
        )
        faults.measure_faults(_racing(device, ops), plan, paths[0], frozenset([faults.SLICE_SCATTER]))
    figures = rows.clock(paths)
    print_figures(figures, as_json)


def _arms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in faults.ARMS:
            raise UsageError(f"no arm {name!r}; known are {', '.join(faults.ARMS)}")
    return names
