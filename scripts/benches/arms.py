"""`scripts/bench faults` and `time-to-fault`: arms of guidance in live campaigns, side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benches import curves, faults, feedback, guided, rows
from benches.options import common_options, print_figures, task_on, workers_option
from fuzzer.campaign.plan import BLIND
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
        click.option("--first-seed", default=1, show_default=True, type=click.IntRange(1)),
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
    help=f"What is compared, the first with the others. Default: {','.join(faults.COMPARED)}; of a report, all.",
)
@click.option("--cpu-seconds", default=300.0, show_default=True, help="A campaign.")
@click.option("--svg", type=click.Path(path_type=Path), default=None, help="Faults and features over CPU time.")
@_raced
def faults_command(
    arms: str | None, cpu_seconds: float, svg: Path | None, device: str, ops: str | None, seeds: int, first_seed: int,
    batch: int | None, minutes: float, files: tuple[Path, ...], report: bool, as_json: bool,
) -> None:  # fmt: skip
    """Arms of guidance in live campaigns of one worker each, side by side, all rare faults planted: which find how many
    in how many CPU seconds?"""
    paths = files or (Path(".backfuzz/faults.jsonl"),)
    chosen = _arms(arms) if arms else tuple(faults.COMPARED)
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
@click.option("--arms", default=BLIND, show_default=True, help="Of guidance.")
@click.option(
    "--at-once", default=1, show_default=True, type=click.IntRange(1), help="Campaigns that share the workers."
)
@click.option("--seconds", default=600.0, show_default=True, help="A campaign may take.")
@workers_option
@_raced
def time_to_fault_command(
    arms: str, at_once: int, seconds: float, device: str, workers: int, ops: str | None, seeds: int, first_seed: int,
    batch: int | None, minutes: float, files: tuple[Path, ...], report: bool, as_json: bool,
) -> None:  # fmt: skip
    """Seconds from an empty corpus, with warm workers, to the slice_scatter fault (planted from torch 2.12 on)."""
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
        if name not in faults.KNOWN_ARMS:
            raise UsageError(f"no arm {name!r}; known are {', '.join(faults.KNOWN_ARMS)}")
    return names


@click.command("guided")
@click.option("--programs", default=0, show_default=True, help="To record into the pool first, if it holds fewer.")
@click.option(
    "--pool", "path", type=click.Path(path_type=Path), default=Path(".backfuzz/pool.jsonl"), show_default=True
)
@click.option(
    "--orders", default=20, show_default=True, type=click.IntRange(2), help="In which each policy is replayed."
)
@common_options
def guided_command(
    programs: int, path: Path, orders: int, workers: int, seed: int, device: str, backend: str, as_json: bool
) -> None:
    """Policies that choose among candidates, replayed over a pool of compiled programs: features at equal CPU time."""
    guided.fill(task_on(device, backend, seed), path, programs, workers)
    figures = guided.measure_policies(path, orders)
    if as_json:
        print(json.dumps(figures))
        return
    for name in ("as measured", "compiles of 0.5 s"):
        for half in ("even", "odd"):
            click.echo(f"{name}, {half} programs")
            for row in figures[name][half]:
                told = f"{row['features']:9.1f} features {row['range']}, {row['compiles']:6.1f} compiles"
                click.echo(f"  {row['policy']:20} {told}, {row['ratio']:.3f} of blind, p {row['p']:.2g}")
        click.echo(f"chosen on the even programs: {figures[name]['chosen']['policy']}")


@click.command("feedback")
@click.option("--programs", default=50, show_default=True, type=click.IntRange(2))
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def feedback_command(programs: int, seed: int, device: str, as_json: bool) -> None:
    """What each tier and family of features adds to the CPU time of a program; three processes, one at a time."""
    print_figures(feedback.measure_feedback(task_on(device, "inductor", seed), programs), as_json)
