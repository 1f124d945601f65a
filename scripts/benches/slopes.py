"""Does a campaign that runs for days stay as it began? What it holds and what a program costs, against time.

A campaign runs as `backfuzz fuzz` runs it, with triage, into a folder that is removed afterwards. If the folder is
named, it stays, and the next run goes on with its corpus, as `--resume` does. Meanwhile, 240 times: resident memory and
open files of this process and of its workers, temporary disk, what the campaign keeps on disk (its corpus and logs),
programs a second, CPU seconds a program (those of its task; triage takes more). Of every series it tells the slope,
whether it grows, and what it would be after fourteen days. And where the CPU seconds of the machine
went: exploring, triage, the campaign's own process, starts of workers; the rest is idle, or others'.

A worker grows by the code that it compiled until it is replaced. How much that is, in an hour of its own CPU time, is
told apart, and taken off what workers hold according to their age.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import psutil

from benches.options import common_options, print_figures, task_on
from fuzzer.campaign.bounds import MOST_KEPT, MOST_KEYS, Bounds
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import FORWARD, STAGED, Plan
from fuzzer.commands.shared.source import Chosen, find_source
from fuzzer.coverage.lines import recorded_share
from fuzzer.trial.batch import usual_batch
from fuzzer.workers.capacity import cores
from fuzzer.workers.messages import Task
from fuzzer.workers.server import server_pids
from fuzzer.workers.usage import resident_bytes

_SAMPLES = 240
_WARM_UP = 0.2  # the share of the run that is left out: first compiles, first features
_GROWTH = 0.05  # of the level, over the run: what grows surely by less is called flat
_HOURS = 14 * 24.0
_CONFIDENT = 2.576  # standard deviations: 99 %


@dataclass(frozen=True)
class Slope:
    """How a series moves: its median, by how much it rises an hour, an interval that holds the rise with 99 %, and
    whether all of the interval is a growth worth the name."""

    level: float
    an_hour: float
    low: float
    high: float
    grows: bool


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """The median of the slopes between every two samples (Theil and Sen), and Sen's interval: the slopes so many ranks
    from the middle as Kendall's tau of independent samples deviates. Few samples give an infinite interval."""
    pairs = itertools.combinations(zip(seconds, values, strict=True), 2)
    slopes = sorted(3600 * (b - a) / (t - s) for (s, a), (t, b) in pairs if t > s)
    level, n = (statistics.median(values) if values else 0.0), len(values)
    off = _CONFIDENT * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    first, last = round((len(slopes) - off) / 2), round((len(slopes) + off) / 2)
    if first < 0 or last >= len(slopes):
        return Slope(level, statistics.median(slopes) if slopes else 0.0, -math.inf, math.inf, False)
    low, high = slopes[first], slopes[last]
    hours = (seconds[-1] - seconds[0]) / 3600
    return Slope(level, statistics.median(slopes), low, high, low * hours > _GROWTH * abs(level))


@dataclass(frozen=True)
class Held:
    """What a worker holds, and its age in CPU seconds."""

    pid: int
    age: float
    mib: float
    files: int
    disk_mib: float


@dataclass(frozen=True)
class Sample:
    """One look.

    programs, cpu   that ended so far, and the CPU seconds that they took, of workers and compilers.
    kept_mib        of the campaign's folder, without its workers'.
    full            whether its corpus keeps no more programs.
    """

    seconds: float
    programs: int
    cpu: float
    main_mib: float
    main_files: int
    workers: tuple[Held, ...]
    kept_mib: float = 0.0
    full: bool = False


class Sampler:
    """Looks at this process, and at the workers whose folders (`worker-PID`) lie in the first pool below a folder: the
    campaign's own. Those of later ones run one program each, to verify it."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        self.folder, self.clock, self.started = folder, clock, clock()
        self.samples: list[Sample] = []
        self.shares: dict[str, float] = {}
        self.before = Spent()  # at the first sample
        self.pool: Path | None = None

    def look(self, programs: int, cpu: float, full: bool = False) -> None:
        """Take a sample; so many programs have ended, and took so many CPU seconds; whether the corpus is full."""
        own, seconds = os.getpid(), self.clock() - self.started
        self.pool = self.pool or next(self.folder.glob("pool-*"), None)
        found = self.pool.glob("worker-*") if self.pool else ()
        workers = tuple(held for folder in found if (held := _look_at(folder)))
        kept = sum(disk_bytes(path) for path in self.folder.glob("*") if not path.name.startswith("pool-"))
        memory, files = mebibytes(own), open_files(own)
        self.samples.append(Sample(seconds, programs, cpu, memory, files, workers, kept / 2**20, full))

    def slopes(self) -> dict[str, Slope]:
        """The slope of every series against time, the warm-up left out."""
        kept = self.samples[math.ceil(_WARM_UP * len(self.samples)) :]
        found = slopes_of_campaign(kept)
        found |= {f"worker_{name}": slope(*_without_age(kept, name)) for name in _HELD}
        steps = [(b.seconds, (b.cpu - a.cpu) / (b.programs - a.programs)) for a, b in windows(kept)]
        found |= {"cpu_seconds_per_program": slope([t for t, _ in steps], [cpu for _, cpu in steps])}
        rates = [(b.seconds, (b.programs - a.programs) / (b.seconds - a.seconds)) for a, b in windows(kept, _OF_RATE)]
        return found | {"programs_per_s": slope([t for t, _ in rates], [rate for _, rate in rates])}


def slopes_of_campaign(samples: Sequence[Sample]) -> dict[str, Slope]:
    """The slopes of all that the campaign itself holds."""
    seconds = [sample.seconds for sample in samples]
    return {name: slope(seconds, [getattr(sample, name) for sample in samples]) for name in _OF_CAMPAIGN}


_LEAST_SAMPLES = 4  # that have a slope
_OF_CAMPAIGN, _OF_RATE = ("main_mib", "main_files", "kept_mib"), 64  # programs: a worker tells of 32 at once
_HELD = ("mib", "files", "disk_mib")


def growth(samples: Sequence[Sample], name: str) -> float:
    """By how much a worker holds more after an hour of its own CPU time: the median of the slopes between every two
    looks at one worker, so that long lives say most."""
    lives: dict[int, list[Held]] = {}
    for held in (held for sample in samples for held in sample.workers):
        lives.setdefault(held.pid, []).append(held)
    pairs = (pair for life in lives.values() for pair in itertools.combinations(life, 2))
    return statistics.median(
        [3600 * (getattr(b, name) - getattr(a, name)) / (b.age - a.age) for a, b in pairs if b.age > a.age] or [0.0]
    )


def _without_age(samples: Sequence[Sample], name: str) -> tuple[list[float], list[float]]:
    """(seconds, what workers would hold on average if all were of the median age)."""
    an_hour, seen = growth(samples, name), [sample for sample in samples if sample.workers]
    usual = statistics.median([held.age for sample in seen for held in sample.workers] or [0.0])
    held = [
        statistics.mean(getattr(h, name) + an_hour * (usual - h.age) / 3600 for h in sample.workers) for sample in seen
    ]
    return [sample.seconds for sample in seen], held


def _look_at(folder: Path) -> Held | None:
    """What the worker of this folder holds; None where it is gone."""
    pid = int(folder.name.rpartition("-")[2])
    if not psutil.pid_exists(pid):
        return None
    return Held(pid, cpu_seconds(pid), mebibytes(pid), open_files(pid), disk_bytes(folder) / 2**20)


def windows(samples: Sequence[Sample], programs: int = 4) -> list[tuple[Sample, Sample]]:
    """Stretches in which at least so many programs ended, one after the other."""
    found: list[tuple[Sample, Sample]] = []
    start = samples[0] if samples else None
    for sample in samples:
        if start is not None and sample.programs - start.programs >= programs:
            found.append((start, sample))
            start = sample
    return found


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended; 0 where it is gone."""
    with contextlib.suppress(psutil.Error):
        return sum(psutil.Process(pid).cpu_times()[:4])
    return 0.0


def mebibytes(pid: int) -> float:
    """Resident memory of a process; pages that it shares with others count in each."""
    return resident_bytes(pid) / 2**20


def open_files(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).num_fds()
    return 0


def disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; what goes away meanwhile counts nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total


def extrapolated(found: Slope) -> tuple[float, float]:
    """(least, most) that a series would be after fourteen days as these, with 99 %; at least 0."""
    return max(0.0, found.level + _HOURS * found.low), max(0.0, found.level + _HOURS * found.high)


@dataclass(frozen=True)
class Spent:
    """CPU seconds so far: of this process alone, and of all that it began: the fork server, workers that ended, whoever
    waited for them, and those that live."""

    own: float = 0.0
    others: float = 0.0


def spent(campaign: Campaign) -> Spent:
    """What a campaign's processes spent so far."""
    workers = campaign.pool.executor.pids() if campaign.pool else []
    own = psutil.Process().cpu_times()
    children = own.children_user + own.children_system
    return Spent(own.user + own.system, children + sum(map(cpu_seconds, (*server_pids(), *workers))))


def shares(campaign: Campaign, before: Spent, seconds: float) -> dict[str, float]:
    """Where the CPU seconds of all cores went in the so many seconds since `before`."""
    now = spent(campaign)
    workers, total = now.others - before.others, seconds * cores()
    found = {
        "exploring": campaign.totals.phases["cpu"],
        "triage": campaign.triage.cpu_seconds() if campaign.triage else 0.0,
    }
    found["starts of workers, and what is under way"] = workers - sum(found.values())
    found["main process"] = now.own - before.own
    return {name: part / total for name, part in (found | {"idle, or others'": total - sum(found.values())}).items()}


def measure_slopes(
    task: Task,
    workers: int,
    minutes: float,
    say: Callable[[str], None],
    db: Path | None = None,
    known: tuple[Path, ...] = (),
    kept_in: Path | None = None,
    keep: int = MOST_KEPT,
    keys: int = MOST_KEYS,
) -> dict[str, Any]:
    """Run a campaign for so long; what it held, and the slope of each series: of the whole run and, where its corpus
    was full at four samples or more, of the time from then on.

    db: the ledger that is kept, if any.  known: others, whose faults count as known.
    kept_in: the campaign's folder, which stays, and whose corpus it goes on with.
    keep, keys: the programs of the corpus, and the keys of suspects, that the campaign keeps.
    """
    with contextlib.ExitStack() as stack:
        folder = kept_in or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slopes-")))
        task = replace(task, forward=FORWARD)
        batch = usual_batch(task.place.subject, task.staged)
        plan = Plan(task, workers, minutes, db=db or folder / "ledger.db", folder=folder, batch=batch, known=known)
        plan = replace(plan, resumed=plan.explored.exists(), bounds=Bounds(kept=keep, keys=keys))
        source = find_source(plan, Chosen(resume=plan.resumed))
        plan, sampler = replace(plan, task=source.task), Sampler(folder)
        campaign = Campaign(plan, say, lambda own: source.schedule(plan.task, own))
        with stopped_early(campaign):
            totals = campaign.run(looking(sampler, 60 * minutes))
    found = sampler.slopes()
    full = [sample for sample in sampler.samples if sample.full]
    if len(full) >= _LEAST_SAMPLES:
        found |= {f"{name}_once_full": each for name, each in slopes_of_campaign(full).items()}
    slopes = {name: asdict(each) | {"after_14_days": list(extrapolated(each))} for name, each in found.items()}
    return {
        "programs": totals.programs,
        "minutes": round(sampler.samples[-1].seconds / 60, 1),
        "full_after_minutes": round(full[0].seconds / 60, 1) if full else None,
        "workers": workers,
        "samples": len(sampler.samples),
        "grows": [name for name, found in slopes.items() if found["grows"]],
        "worker_growth_per_cpu_hour": {name: round(growth(sampler.samples, name), 2) for name in _HELD},
        "new_faults": totals.new.total(),
        "triage": totals.triage(),
        "main_mib_over_time": [round(sample.main_mib, 1) for sample in sampler.samples[:: _SAMPLES // 24]],
        "cpu": {name: round(share, 3) for name, share in sampler.shares.items()},
        "slopes": {name: {k: _rounded(v) for k, v in found.items()} for name, found in slopes.items()},
    }


@contextlib.contextmanager
def stopped_early(campaign: Campaign) -> Iterator[None]:
    """SIGINT and SIGTERM stop the campaign: what was measured until then is told."""
    usual = {number: signal.signal(number, lambda *_: campaign.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def looking(sampler: Sampler, most: float) -> Callable[[Campaign], None]:
    """What a campaign shows its progress to: takes the samples, from the first program on; stops it when the time is
    up, triage too."""

    def progress(campaign: Campaign) -> None:
        if not sampler.samples:
            sampler.started, sampler.before = sampler.clock(), spent(campaign)
        now = sampler.clock() - sampler.started
        if now >= len(sampler.samples) * most / _SAMPLES:
            sampler.look(campaign.totals.drawn, campaign.totals.phases["cpu"], campaign.schedule.full())
            sampler.shares = shares(campaign, sampler.before, now) if now else {}
        if now > most:
            campaign.course.stop()

    return progress


def _rounded(value: Any) -> Any:
    """As JSON has it: no infinities."""
    if isinstance(value, list):
        return list(map(_rounded, value))
    return value if isinstance(value, bool) else round(value, 4) if math.isfinite(value) else None


@click.command("slopes")
@click.option(
    "--minutes",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="How long the campaign runs.",
)
@click.option("--db", type=click.Path(path_type=Path), help="Keep the findings in this ledger.")
@click.option("--known", multiple=True, type=click.Path(path_type=Path), help="Another ledger, whose faults are known.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep the campaign here; go on with the one that is.")
@click.option("--keep", default=MOST_KEPT, show_default=True, type=click.IntRange(1), help="Programs in the corpus.")
@click.option("--keep-keys", default=MOST_KEYS, show_default=True, type=click.IntRange(1), help="Keys of suspects.")
@common_options
def slopes_command(
    minutes: float, db: Path | None, known: tuple[Path, ...], folder: Path | None, keep: int, keep_keys: int,
    workers: int, seed: int, device: str, backend: str, as_json: bool,
) -> None:  # fmt: skip
    """Do the memory, open files, disk or CPU seconds a program of a campaign grow while it runs?

    Each is told as it would be after 14 days; and the shares of the CPU that exploring, triage and nothing had.
    """
    staged = STAGED if backend == "inductor" else 0.0
    task = replace(task_on(device, backend, seed), staged=staged, lines=recorded_share())
    say = partial(click.echo, err=True)
    print_figures(measure_slopes(task, workers, minutes, say, db, known, folder, keep, keep_keys), as_json)
