"""`backfuzz fuzz`: a campaign."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fuzzer.campaign.bounds import MOST_KEPT, MOST_KEYS
from fuzzer.campaign.plan import AROUND, BLIND, CELLS, FORWARD, GUIDANCES, MIXTURE, MUTANTS, STAGED
from fuzzer.commands.shared.config import command_line
from fuzzer.commands.shared.exits import DIFFERS, INTERRUPTED, UNREAD
from fuzzer.commands.shared.group import main
from fuzzer.commands.shared.options import (
    DURATION,
    SIZE,
    TIME,
    Number,
    also_option,
    backend_option,
    compare_option,
    db_option,
    device_option,
    json_option,
    known_options,
    workers_option,
)
from fuzzer.commands.shared.verb import FIND
from fuzzer.commands.shared.waiting import starting
from fuzzer.language.errors import UsageError, meant
from fuzzer.ledger.checkout import regressions
from fuzzer.trial.places import make_task
from fuzzer.workers.cluster import LOCAL, RAY, Cluster


def _named_ops(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    """The ops of --ops; none means all. Called first, before anything that takes long. Raises UsageError."""
    from fuzzer.generation.sets import parse_ops

    return () if text is None else parse_ops(text)


_ADVANCED = (
    "until-plateau", "executor", "ray-address", "around", "kin", "guidance", "unguided", "again", "lines", "staged",
    "forward", "complex", "set", "batch", "also", "no-known", "on-finding", "grace", "deadline", "max-memory",
    "max-disk", "keep", "keep-keys",
)  # fmt: skip


@main.command(
    purpose=FIND,
    runs=True,
    exits={0: "it ran", 1: "with --fail-on-finding: there is a new fault", 2: "wrong usage"},
    advanced=_ADVANCED,
    example="backfuzz fuzz --minutes 30\n"
    "backfuzz fuzz --device cuda --ops core --known team.db --fail-on-finding --duration 12h",
)
@click.option("--minutes", type=Number(0), default=None, help="Draw no program after this time.")
@click.option("--duration", type=DURATION, default=None, help="The same, with a unit: 90s, 30m, 12h, 14d, 1d12h.")
@click.option(
    "--until-plateau",
    is_flag=True,
    help="Draw until no family of features grew during half of the programs, or the corpus is full.",
)
@click.option("--programs", type=click.IntRange(1), default=None, help="Draw this many programs.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Same seed, same programs, any number of workers; mutants depend on the order in which programs end, too.",
)
@device_option
@workers_option
@click.option(
    "--executor",
    type=click.Choice([LOCAL, RAY]),
    default=LOCAL,
    show_default=True,
    is_eager=True,  # --workers asks which
    help="Where the workers are: on this machine, or on the machines of a Ray cluster (pip install 'backfuzz[ray]').",
)
@click.option(
    "--ray-address",
    default=None,
    metavar="ADDRESS",
    help="The address of the Ray cluster. Default: RAY_ADDRESS, else the cluster that runs here, else this machine "
    "alone.",
)
@backend_option
@compare_option
@click.option(
    "--routes",
    default=None,
    help="The routes to draw from, with commas: ways in which gradients are compiled. Default: all that any backend "
    "can take.",
)
@click.option(
    "--ops",
    "ops_",
    default=None,
    metavar="NAMES",
    callback=_named_ops,
    help="The ops to draw from, with commas: names, or `core` (42 of which most models are made). Default: all.",
)
@click.option(
    "--around",
    multiple=True,
    metavar="WHAT",
    help="Run mutants of these programs, which keep their ops and change how these are called (repeatable): a .prog "
    "file, a folder of such files, a ledger, or FILE.py:FUNCTION or MODULE:FUNCTION as of `backfuzz import`, in pieces "
    "of up to 12 ops.",
)
@click.option(
    "--kin",
    multiple=True,
    metavar="WHAT",
    help="Run the kin of these programs, and end: one op is replaced by each like op, in each dtype and by each route "
    "(repeatable): a finding's or a fault's id, or what --around takes.",
)
@click.option(
    "--guidance",
    type=click.Choice(list(GUIDANCES)),
    default=None,
    help="How programs are chosen. By their numbers: each is asked for ops, dtypes, layouts, classes of attributes "
    f"and pairs, all as often as any other ({CELLS}), or for nothing ({BLIND}). {AROUND}: they are mutants of the "
    f"programs of --around, or of those that come with backfuzz: reported faults, known faults and PyTorch's own "
    f"samples. {MUTANTS}: half of them are mutants of programs that "
    f"showed something new, logged in choices.jsonl. {MIXTURE}: some of each. Default: {CELLS}; with --around: "
    f"{AROUND}.",
)
@click.option("--unguided", is_flag=True, help="Choose nothing, and keep neither features nor a corpus.")
@click.option("--resume", is_flag=True, help="Go on with the last campaign, from its corpus in .backfuzz/corpus.")
@click.option(
    "--again", type=click.Path(path_type=Path), metavar="LOG", help="Run the programs of a campaign's choices.jsonl."
)
@click.option(
    "--lines/--no-lines",
    default=None,
    help="Record which lines of the compiler are reached, for `status --coverage`. Default: where Python can, of one "
    "program in 4 from 3.12 on, before (with coverage.py) of one in 16.",
)
@click.option(
    "--staged",
    type=Number(0, 1),
    default=None,
    metavar="SHARE",
    help="The share of programs that are judged at inductor:ir, before code is built, by seed and number. "
    f"Default: {STAGED} with inductor, 0 with any other.",
)
@click.option(
    "--forward",
    type=Number(0, 1),
    default=FORWARD,
    show_default=True,
    metavar="SHARE",
    help="The share of programs without a gradient, by seed and number: half of them write in place and return views.",
)
@click.option("--complex", "complex_", is_flag=True, help="Draw complex numbers (c64, c128) beside real ones.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="A compiler setting for every program (repeatable).",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=None,
    help="Programs that a worker has at once: their C++ is built together. Default: 32 for inductor on the CPU (16 "
    "where half of them or more are built), else 1.",
)
@also_option
@db_option
@json_option
@known_options
@click.option("--fail-on-finding", is_flag=True, help="Exit with 1 if there is a new fault.")
@click.option(
    "--on-finding",
    default="",
    metavar="COMMAND",
    help="Run a shell command for each new fault. The fault is on its standard input, and in BACKFUZZ_FAULT, "
    "BACKFUZZ_FINDING, BACKFUZZ_TITLE, BACKFUZZ_CLASS, BACKFUZZ_SEVERITY, BACKFUZZ_TORCH, BACKFUZZ_DEVICE, "
    "BACKFUZZ_DB.",
)
@click.option(
    "--grace",
    type=TIME,
    default=None,
    help="The time that suspects have once no program is drawn any more. Default: 8s after --minutes or --duration, "
    "else 60s. What is not settled then is kept for `backfuzz minimize`.",
)
@click.option("--deadline", type=TIME, default=None, help="The time that one program may take. Default: 90s.")
@click.option(
    "--max-memory", type=SIZE, default=None, help="The memory of the host for all workers together, such as 16G."
)
@click.option(
    "--max-disk",
    type=SIZE,
    default=None,
    help="The size of the campaign's folder, such as 20G; the campaign pauses while it is full.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=None,
    metavar="PROGRAMS",
    help="The programs that the corpus keeps, each with some 8 KiB of memory and 9 of disk. Once it is full, features "
    f"are counted no more. Default: {MOST_KEPT}.",
)
@click.option(
    "--keep-keys",
    type=click.IntRange(1),
    default=MOST_KEYS,
    show_default=True,
    metavar="KEYS",
    help="The suspects that wait, and the keys that are decided, of which so many are kept. Of more, the least urgent "
    "are dropped.",
)
def fuzz(
    minutes: float | None,
    duration: float | None,
    until_plateau: bool,
    programs: int | None,
    seed: int,
    device: str | None,
    workers: int | None,
    executor: str,
    ray_address: str | None,
    backend: str,
    compare: tuple[str, str] | None,
    routes: str | None,
    ops_: tuple[str, ...],
    around: tuple[str, ...],
    kin: tuple[str, ...],
    guidance: str | None,
    unguided: bool,
    resume: bool,
    again: Path | None,
    lines: bool | None,
    staged: float | None,
    forward: float,
    complex_: bool,
    assignments: Sequence[str],
    batch: int | None,
    also: tuple[str, ...],
    db: Path,
    as_json: bool,
    known: tuple[Path, ...],
    fail_on_finding: bool,
    on_finding: str,
    grace: float | None,
    deadline: float | None,
    max_memory: float | None,
    max_disk: float | None,
    keep: int | None,
    keep_keys: int,
) -> None:
    """Draw random programs, and compare eager with compiled runs.

    A difference that rounding cannot explain is minimized, verified in three fresh processes, and stored as a
    finding.

    Without --minutes, --duration, --programs or --until-plateau it runs until Ctrl-C, SIGTERM or SIGHUP, which
    stops it within 20 seconds and loses nothing; a second one kills it.
    """
    start = starting(workers=executor == LOCAL)
    from fuzzer.campaign.bounds import Bounds
    from fuzzer.campaign.loop import Campaign
    from fuzzer.campaign.plan import Plan
    from fuzzer.campaign.told.view import Lines, Live
    from fuzzer.commands.shared.source import Chosen, find_source, share_of_lines
    from fuzzer.language import settings
    from fuzzer.language.ops.spec import Limits
    from fuzzer.language.program import DIFFERENTIABLE, FLOATS
    from fuzzer.ledger.store import require_writable
    from fuzzer.trial.batch import usual_batch
    from fuzzer.workers.capacity import default_workers

    minutes = _minutes(minutes, duration)
    if until_plateau and (unguided or again):
        raise UsageError("--until-plateau goes with a campaign that keeps a corpus, not with --unguided or --again")
    if keep and (unguided or kin or again):
        raise UsageError("--keep goes with a campaign that keeps a corpus, not with --unguided, --kin or --again")
    memory, disk = (None if size is None else int(size) for size in (max_memory, max_disk))
    bounds = Bounds(memory, disk, deadline, until_plateau, keep or MOST_KEPT, keep_keys)
    chosen = _named_routes(routes)
    fixed = tuple(sorted(settings.parse_assignment(text) for text in assignments))
    limits = Limits(dtypes=DIFFERENTIABLE if complex_ else FLOATS)
    task = make_task(device, backend, compare, seed=seed, limits=limits, routes=chosen, fixed=fixed, also=also)
    task = replace(task, ops=ops_, staged=_share_staged(staged, task), forward=forward)
    _check_routes(task)
    command = command_line(click.get_current_context(), sys.argv[1:])
    cluster = _cluster(executor, ray_address, task.place.devices)
    workers = workers or (cluster.default_workers if cluster else default_workers)(task.place.devices)
    _require_memory(memory, workers)
    require_writable(db)
    together = batch or usual_batch(task.place.subject, task.staged)
    plan = Plan(task, workers, minutes, programs, db, Plan.folder, regressions(db), command, together, known, resume)
    plan = replace(plan, bounds=bounds, grace=grace, on_finding=on_finding, cluster=cluster)
    source = find_source(plan, Chosen(around, kin, guidance, unguided, resume, again))
    task = replace(source.task, lines=share_of_lines(lines, source))
    most = programs if source.programs is None else min(programs or source.programs, source.programs)
    plan = replace(plan, task=task, programs=most)
    start.stop()
    view = Live(as_json) if sys.stdout.isatty() and not as_json else Lines(as_json)
    campaign = Campaign(plan, view.say, lambda own: source.schedule(task, own))
    _install_stop(campaign, view.say)
    view.begin(campaign)
    with view:
        totals = campaign.run(view.update)
    view.end(totals)
    if view.unread:
        sys.exit(UNREAD)
    if as_json:
        click.echo(json.dumps(totals.summary()))
    if campaign.course.stopped:
        corpus = f"its corpus: {command if resume else command + ' --resume'}"
        onward = corpus if source.corpus else f"another seed: {command} --seed {seed + 1}"
        onward = f"all kin, from the first: {command}" if kin else onward
        click.echo(f"stopped; go on with {onward}", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(DIFFERS if fail_on_finding and totals.new.total() else 0)


def _cluster(executor: str, address: str | None, devices: Sequence[str]) -> Cluster | None:
    """Where the workers are; None: on this machine. Raises UsageError."""
    if executor == LOCAL:
        if address is not None:
            raise UsageError(f"--ray-address goes with --executor {RAY}")
        return None
    if numbered := [device for device in devices if ":" in device]:
        raise UsageError(f"--executor {RAY} places workers on GPUs by itself: {numbered[0].partition(':')[0]}, "
                         f"not {numbered[0]}")  # fmt: skip
    return Cluster(address or "")


def _minutes(minutes: float | None, duration: float | None) -> float | None:
    """How long to draw. Raises UsageError."""
    if minutes is not None and duration is not None:
        raise UsageError("--minutes and --duration say the same: leave one of them out")
    return minutes if duration is None else duration / 60


def _require_memory(memory: int | None, workers: int) -> None:
    """Raises UsageError where so many bytes are too few for so many workers."""
    from fuzzer.workers.capacity import LEAST_RAM

    if memory is not None and memory < workers * LEAST_RAM:
        least = f"give at least {workers * LEAST_RAM / 2**30:g}G, or fewer --workers"
        raise UsageError(f"--max-memory of {memory} bytes is too little for {workers} worker(s): {least}")


def _named_routes(text: str | None) -> tuple[str, ...]:
    """The routes of a list with commas; without one those that any backend can take. Raises UsageError."""
    from fuzzer.language.routes import ANY_BACKEND, ROUTES

    given = ",".join(ANY_BACKEND) if text is None else text
    chosen = tuple(part.strip() for part in given.split(",") if part.strip())
    if not chosen:
        raise UsageError(f"--routes names no route; known are {', '.join(ROUTES)}")
    for route in chosen:
        if route not in ROUTES:
            raise UsageError(f"no route {route!r}; known are {', '.join(ROUTES)}{meant(route, ROUTES)}")
    return chosen


def _share_staged(asked: float | None, task: Any) -> float:
    """The share of programs that are judged before code is built. Raises UsageError where that is asked for in vain."""
    inductor = task.place.subject.backend == "inductor"
    if asked and not inductor:
        raise UsageError("--staged goes with inductor, whose stages it means")
    return (STAGED if asked is None else asked) if inductor else 0.0


def _check_routes(task: Any) -> None:
    """Raises UsageError where the backend on trial cannot take one of the task's routes."""
    from fuzzer.language.routes import check_backend

    for route in task.routes:
        check_backend(route, task.place.subject.compiler)


def _install_stop(campaign: Any, say: Callable[[str], None]) -> None:
    """First Ctrl-C, SIGTERM or SIGHUP: stop cleanly and keep everything. Second: kill. Who lets a SIGHUP be ignored, as
    nohup does, wants the campaign to outlive its terminal."""

    def stop(number: int, *_: Any) -> None:
        if campaign.course.stopped:
            os.killpg(os.getpgid(0), signal.SIGKILL) if os.getpgid(0) == os.getpid() else os._exit(INTERRUPTED)
        campaign.stop()
        if number == signal.SIGHUP:  # the terminal is gone, and writing to it is an error
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        say("stopping: what is running ends first, everything is kept (Ctrl-C again kills)")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
