"""`scripts/bench calibrate`, `first-look`, `sensitivity` and others: figures that anyone can measure again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from benches import (
    batch,
    calibrate,
    cost,
    curves,
    faults,
    first_look,
    minifier,
    minimize,
    planted_ratios,
    plot,
    profile,
    reach,
    rows,
    sensitivity,
    slopes,
    stages,
    throughput,
)
from benches.agreement import agreement_command
from benches.cells import cells_command
from benches.derivatives import derivatives_command
from benches.diagnosis import diagnosis_command
from benches.hearing import hearing_command
from benches.hostile import hostile_command
from benches.injection import injection_command
from benches.ledger import ledger_command
from benches.pictures import pictures_command
from benches.rates import rates_command
from benches.scale import scale_command
from fuzzer.campaign.plan import CELLS, STAGED
from fuzzer.coverage.lines import recorded_share
from fuzzer.execution.capacity import default_workers
from fuzzer.execution.messages import Task
from fuzzer.execution.stages import STAGES
from fuzzer.generation.sets import parse_ops
from fuzzer.judgement.trial import Place, Subject, parse_subject
from fuzzer.language.errors import NoMachine, UsageError
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import DIFFERENTIABLE
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.settings import UnknownSetting, parse_assignment
from fuzzer.language.text import ParseError


def _task(device: str, backend: str, seed: int) -> Task:
    return Task(Place(Subject("eager", device), Subject(backend, device)), seed)


def _pair(text: str, device: str) -> Place:
    """`A,B`: the reference side and the side on trial. Raises UsageError."""
    sides = [parse_subject(side, device) for side in text.split(",")]
    if len(sides) != 2 or sides[0].backend != "eager" or sides[0].threads > 1:
        raise UsageError(f"--pair takes two sides, the first of them eager with one thread, not {text!r}")
    return Place(*sides)


def _dtypes(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in DIFFERENTIABLE:
            raise UsageError(f"no dtype {name!r}; known are {', '.join(DIFFERENTIABLE)}")
    return names


def _print(figures: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    for key, value in figures.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, inner in value.items():
                print(f"    {name}: {inner}")
        elif key not in ("missed", "rows", "minifier", "differing", "largest"):
            print(f"{key}: {value}")
    for miss in figures.get("missed", []):
        print("missed:", {k: v for k, v in miss.items() if k != "text"})
    for row in figures.get("largest", []):
        print("largest ratio:", row)
    for row in figures.get("differing", []):
        print("differs:", row)


@click.group()
def main() -> None:
    """Measure backfuzz."""


def _enough(context: click.Context, option: click.Parameter, workers: int | None) -> int:
    return workers or default_workers([context.params.get("device", "cpu")])


def _workers_option() -> Any:
    told = "Processes. Default: what the machine has room for, about one a core, two with a GPU."
    return click.option("--workers", type=click.IntRange(1), default=None, callback=_enough, help=told)


def _options(command: Any) -> Any:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object."),
        click.option("--backend", default="inductor", show_default=True),
        click.option("--device", default="cpu", show_default=True, is_eager=True, help="cpu or cuda."),
        click.option("--seed", default=0, show_default=True),
        _workers_option(),
    ):
        command = option(command)
    return command


main.add_command(agreement_command)
main.add_command(diagnosis_command)
main.add_command(hearing_command)
main.add_command(ledger_command)
main.add_command(hostile_command)
main.add_command(injection_command)
main.add_command(pictures_command)
main.add_command(scale_command)


@main.command("sensitivity")
@click.option("--programs", default=1000, show_default=True, type=click.IntRange(1))
@_options
def sensitivity_command(programs: int, workers: int, seed: int, device: str, backend: str, as_json: bool) -> None:
    """Corrupt compiled gradients; the share of those beyond rounding that the oracles flag."""
    _print(sensitivity.measure_sensitivity(_task(device, backend, seed), programs, workers), as_json)


def _drawn(command: Any) -> Any:
    """Options of what draws programs and runs two sides."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object."),
        _workers_option(),
        click.option("--device", default="cpu", show_default=True, is_eager=True, help="Of sides that name none."),
        click.option("--seed", default=0, show_default=True),
        click.option("--size", default=64, show_default=True, type=click.IntRange(1), help="Of a dimension, at most."),
        click.option("--dtypes", default="f32,f64,bf16,f16", show_default=True, help="To draw from, with commas."),
        click.option(
            "--pair",
            default="eager,eager",
            show_default=True,
            metavar="A,B",
            help="Two sides, each backend, backend@device or backend@cpu/THREADS; the first is the reference: eager.",
        ),
        click.option("--minutes", default=None, type=click.FloatRange(min=0), help="Stop drawing after this time."),
        click.option("--programs", default=1000, show_default=True, type=click.IntRange(1), help="To draw."),
    ):
        command = option(command)
    return command


def _drawing(pair: str, dtypes: str, size: int, seed: int, device: str) -> Task:
    limits = Limits(max_size=size, max_numel=size**2, dtypes=_dtypes(dtypes))
    return Task(_pair(pair, device), seed, limits, routes=ANY_BACKEND)


@main.command("calibrate")
@click.option("--keep", default=None, type=click.Path(path_type=Path), help="A folder for programs that differ.")
@click.option("--planted", is_flag=True, help="Of faults instead: corrupted gradients, canaries, corpus/planted.")
@_drawn
def calibrate_command(
    programs: int, minutes: float | None, keep: Path | None, planted: bool, workers: int, as_json: bool, **drawn: Any
) -> None:
    """Legal implementations against each other: what differs, and how far each lies from the reference."""
    task = _drawing(**drawn)
    if planted:
        _print(planted_ratios.measure_planted_ratios(task, programs, workers, minutes), as_json)
        return
    _print(calibrate.measure_calibration(task, programs, workers, minutes, keep), as_json)


@main.command("plot")
@click.argument("legal", type=click.File())
@click.argument("planted", type=click.File())
@click.argument("svg", type=click.Path(path_type=Path))
def plot_command(legal: Any, planted: Any, svg: Path) -> None:
    """The JSON of `calibrate` and of `calibrate --planted` as one picture."""
    figures = (json.loads(file.read().strip().splitlines()[-1]) for file in (legal, planted))
    svg.write_text(plot.picture(*figures))


@main.command("first-look")
@_drawn
def first_look_command(programs: int, minutes: float | None, workers: int, as_json: bool, **drawn: Any) -> None:
    """Errors around the floor in every element: does the first look dismiss one that the final look flags?"""
    _print(first_look.measure_first_look(_drawing(**drawn), programs, workers, minutes), as_json)


@main.command("cost")
@click.option("--programs", default=200, show_default=True, type=click.IntRange(1), help="To draw.")
@_options
def cost_command(programs: int, workers: int, seed: int, device: str, backend: str, as_json: bool) -> None:
    """The share of a campaign's CPU time that its oracles take."""
    task = replace(_task(device, backend, seed), routes=ANY_BACKEND)
    _print(cost.measure_cost(task, programs, workers), as_json)


@main.command("batch")
@click.option("--programs", default=200, show_default=True, type=click.IntRange(1), help="To draw.")
@click.option(
    "--sizes",
    default=batch.SIZES,
    show_default=True,
    help="Of batches, with commas; SIZE:SHARE where this share is judged before code is built.",
)
@click.option("--warm", default=16, show_default=True, help="Programs of each size before anything counts.")
@_options
def batch_command(
    programs: int, sizes: str, warm: int, workers: int, seed: int, device: str, backend: str, as_json: bool
) -> None:
    """CPU seconds of the same programs, by how many a worker builds at once; and that their reports are equal."""
    task = replace(_task(device, backend, seed), routes=ANY_BACKEND)
    chosen = list(map(batch.arm_named, sizes.split(",")))
    _print(batch.measure_batches(task, programs, warm, chosen, workers, partial(print, file=sys.stderr)), as_json)


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
    return replace(_task(device, "inductor", 0), routes=ANY_BACKEND, ops=parse_ops(ops) if ops else ())


@main.command("faults")
@click.option(
    "--arms",
    default=None,
    help=f"What is compared, the first with the others. Default: {','.join(faults.ARMS)}; of a report, all.",
)
@click.option("--cpu-seconds", default=300.0, show_default=True, help="A campaign.")
@click.option("--svg", type=click.Path(path_type=Path), default=None, help="Faults and features over CPU time.")
@_raced
def faults_command(
    arms: str | None, cpu_seconds: float, svg: Path | None, device: str, ops: str | None, seeds: int, first_seed: int,
    batch: int | None, minutes: float, files: tuple[Path, ...], report: bool, as_json: bool,
) -> None:  # fmt: skip
    """Ways to choose programs, in live campaigns of one worker each, side by side, all rare faults planted: which find
    how many in how many CPU seconds?"""
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


@main.command("time-to-fault")
@click.option("--arms", default=CELLS, show_default=True, help="Ways to choose programs.")
@click.option(
    "--at-once", default=1, show_default=True, type=click.IntRange(1), help="Campaigns that share the workers."
)
@click.option("--seconds", default=600.0, show_default=True, help="A campaign may take.")
@_workers_option()
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
    _print(figures, as_json)


def _arms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in faults.ARMS:
            raise UsageError(f"no arm {name!r}; known are {', '.join(faults.ARMS)}")
    return names


@main.command("throughput")
@click.option("--programs", default=60, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1))
@click.option(
    "--warm", default=2, show_default=True, type=click.IntRange(1), help="Programs a process before anything counts."
)
@click.option("--alone", is_flag=True, help="As shipped only, in half the time.")
@_options
def throughput_command(
    programs: int, rounds: int, warm: int, alone: bool, workers: int, seed: int, device: str, backend: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Programs per second, as shipped and unguided, against a bare loop of compiles and backwards; what one costs."""
    say = partial(click.echo, err=True)
    task = replace(_task(device, backend, seed), routes=ANY_BACKEND)
    arms = (throughput.SHIPPED_ARM,) if alone else (throughput.SHIPPED_ARM, throughput.UNGUIDED_ARM)
    _print(throughput.measure_throughput(task, programs, workers, rounds, warm, say, arms), as_json)


@main.command("profile")
@click.option("--programs", default=60, show_default=True, type=click.IntRange(1))
@click.option("--beside", default="", metavar="KEY=VALUE", help="The same programs again under this setting.")
@_options
def profile_command(
    programs: int, beside: str, workers: int, seed: int, device: str, backend: str, as_json: bool
) -> None:
    """Where a program's CPU time goes, by phase, from drawing it to the report."""
    task = replace(_task(device, backend, seed), routes=ANY_BACKEND)
    try:
        other = (parse_assignment(beside),) if beside else ()
    except UnknownSetting as error:
        raise click.BadParameter(str(error)) from None
    _print(profile.measure_profile(task, programs, workers, other), as_json)


@main.command("slopes")
@click.option("--minutes", default=30.0, show_default=True, type=click.FloatRange(min=0, min_open=True))
@click.option("--db", type=click.Path(path_type=Path), help="Keep what is found in this ledger.")
@click.option("--known", multiple=True, type=click.Path(path_type=Path), help="Another ledger, whose faults are known.")
@_options
def slopes_command(
    minutes: float,
    db: Path | None,
    known: tuple[Path, ...],
    workers: int,
    seed: int,
    device: str,
    backend: str,
    as_json: bool,
) -> None:
    """Memory, open files, disk, programs a second and CPU seconds a program of a campaign against time: does any grow?

    And what would it be after 14 days; and which share of the CPU exploring, triage and nothing had.
    """
    staged = STAGED if backend == "inductor" else 0.0
    task = replace(_task(device, backend, seed), routes=ANY_BACKEND, staged=staged, lines=recorded_share())
    _print(slopes.measure_slopes(task, workers, minutes, partial(click.echo, err=True), db, known), as_json)


@main.command("stages")
@click.option("--programs", default=200, show_default=True, type=click.IntRange(0))
@click.option("--findings/--no-findings", default=True, help="The ledger's findings too.")
@click.option("--stage", "chosen", multiple=True, type=click.Choice(list(STAGES)), help="Repeatable. All, without.")
@click.option(
    "--full",
    type=click.Choice([stages.ALL, stages.SHOWN, stages.NONE]),
    default=stages.ALL,
    show_default=True,
    help="Of which programs the full compile is asked, which tells what a stage should show: all; those that a stage "
    "shows as a finding, which tells false alarms alone; none.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="cpu", show_default=True, is_eager=True, help="cpu or cuda.")
@_workers_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stages_command(
    programs: int,
    findings: bool,
    chosen: tuple[str, ...],
    full: str,
    seed: int,
    device: str,
    workers: int,
    as_json: bool,
) -> None:
    """What each stage of the compiler costs and hears: fresh programs and stored findings, against the full compile."""
    task = replace(_task(device, "inductor", seed), routes=ANY_BACKEND)
    ledger = Path(__file__).parents[2] / "findings.db" if findings else None
    say = partial(click.echo, err=True)
    picked = chosen or tuple(STAGES)
    _print(stages.measure_stages(task, programs, ledger, full, workers, say, picked), as_json)


main.add_command(reach.reach_command)
main.add_command(cells_command)
main.add_command(rates_command)
main.add_command(derivatives_command)

_TABLE = {"program": 22, "after": 6, "level": 5, "there": 5, "repro": 5, "theirs": 6, "ours": 5, "nodes": 5, "lines": 5,
          "files": 5, "seconds": 7, "note": 0}  # fmt: skip


def _line(cells: Mapping[str, Any]) -> str:
    return "  ".join(str(cells[name]).ljust(width) for name, width in _TABLE.items())


@main.command("minifier")
@click.option(
    "--programs", multiple=True, metavar="NAME", help="In corpus/starts, or a file; repeatable. All, without."
)
@click.option("--deadline", default=600.0, show_default=True, help="Seconds a row.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Rows at a time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, the last line.")
def minifier_command(programs: tuple[str, ...], deadline: float, device: str, workers: int, as_json: bool) -> None:
    """PyTorch's own minifier on big programs with a fault: what it leaves, and whether that keeps the fault."""
    try:
        chosen = minifier.starts(programs)
    except (OSError, ParseError) as error:
        raise click.BadParameter(str(error)) from None
    print(_line({name: name for name in _TABLE}))
    rows = []
    for row in minifier.measure_minifier(chosen, deadline, device, workers):
        print(_line(row), flush=True)
        rows.append(row)
    if as_json:
        print(json.dumps(minifier.minifier_summary(rows)))


@main.command("minimize")
@click.option("--fault", "faults", multiple=True, help="A program of corpus/planted or corpus/starts; repeatable. All.")
@click.option("--minifier", "seconds", default=0.0, help="Seconds for PyTorch's minifier on each of corpus/starts.")
@_options
def minimize_command(
    faults: tuple[str, ...], seconds: float, workers: int, seed: int, device: str, backend: str, as_json: bool
) -> None:
    """Shrink big programs with one fault each: how small, in how many compiles and seconds."""
    say = partial(click.echo, err=as_json)
    _print(minimize.measure_minimizing(_task(device, backend, seed), workers, list(faults), say, seconds), as_json)


if __name__ == "__main__":
    try:
        main(prog_name="scripts/bench")
    except (NoMachine, UsageError) as error:
        sys.exit(f"backfuzz: {error}")
