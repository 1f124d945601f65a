"""How much of a bare compile loop's speed is left: a campaign's path and the bare loop, in turns, in one run.

A round runs a batch of programs as a campaign does (drawn, run on both sides, judged), as shipped and then
unguided, and after each batch the texts of exactly those that were begun through `bare` (in as many processes, from the
same fork server, set up by the same function). Both sides start with programs that do not count. Programs that kill a
process or outlast the deadline take their time on both sides and count on neither. Rates are of the time in which every
process is busy: the last program of a round may take as long as all others, and which side meets it in its last place
is chance.

As shipped, lines of the compiler are recorded of the programs of which a campaign records them.

The clock says how fast a campaign is on a quiet machine; CPU seconds, of workers, their compilers and this process, say
what a program costs on a busy one too.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import click

from benches import bare
from benches.options import common_options, print_figures, programs_option, task_on
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.schedule import BySeed, BySeedWithCorpus, Schedule
from fuzzer.campaign.turns import in_flight
from fuzzer.coverage.lines import recorded_share
from fuzzer.language.errors import UsageError
from fuzzer.workers.accelerator import count_devices
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.server import clean_environment, environment
from fuzzer.workers.start import start_worker

SHIPPED_ARM, UNGUIDED_ARM = "shipped", "unguided"
_DEADLINE_SECONDS = 30.0  # shorter than a campaign's: every round waits for its last program


_Spent = tuple[float, float]  # seconds on the clock, and of the CPU


@dataclass
class Pace:
    """How many programs ended in so many seconds."""

    programs: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.programs / self.seconds if self.seconds else 0.0

    def __add__(self, other: Pace) -> Pace:
        return Pace(self.programs + other.programs, self.seconds + other.seconds)


def pace(ends: list[tuple[float, bool]], workers: int) -> Pace:
    """The pace until the first process found nothing more to do; of fewer programs, until the last that counts.

    ends   of each program, when it ended, in seconds since all began, and whether it counts.
    """
    counted = sorted(at for at, counts in ends if counts)
    if not counted:
        return Pace()
    until = counted[-1]
    if len(ends) > workers:
        until = max(min(until, sorted(at for at, _ in ends)[-workers]), counted[0])
    return Pace(sum(at <= until for at in counted), until)


class Bare:
    """The bare loop's processes, each with a pipe of its own: a process that is killed holds no lock of others."""

    def __init__(self, pool: Pool, task: Task, workers: int):
        self.context, self.deadline, self.subject = pool.context, pool.deadline, task.place.subject
        self.scratch = tempfile.mkdtemp(prefix="bare-")
        self.numbers, self.kind = itertools.count(), pool.kind
        self.processes: dict[Connection, Any] = dict(self._process() for _ in range(workers))
        self.lost = 0

    def _process(self) -> tuple[Connection, Any]:
        ours, theirs = self.context.Pipe()
        start = self.scratch, next(self.numbers), self.kind, count_devices(self.kind)
        headers = Path(self.scratch, "headers")
        given = (theirs, self.subject.backend, self.subject.device, headers, start_worker, start)
        with environment(clean_environment()):
            process = self.context.Process(target=bare.serve, args=given)
            process.start()
        theirs.close()
        return ours, process

    def run(self, texts: list[str]) -> tuple[list[_Spent], Pace]:
        """What each program took that ended by itself, and their pace."""
        left, begun, found = list(reversed(texts)), dict[Connection, float](), list[_Spent]()
        started, ends = time.monotonic(), list[tuple[float, bool]]()
        while left or begun:
            for pipe in [p for p in self.processes if p not in begun][: len(left)]:
                pipe.send(left.pop())
                begun[pipe] = time.monotonic()
            first = min(begun, key=begun.__getitem__)
            answered = wait_for(begun, max(begun[first] + self.deadline - time.monotonic(), 0.0))
            for pipe in [pipe for pipe in begun if pipe in answered] or [first]:
                del begun[pipe]
                spent = self._answer(pipe)
                ends.append((time.monotonic() - started, spent is not None))
                if spent is not None:
                    found.append(spent)
        return found, pace(ends, len(self.processes))

    def _answer(self, pipe: Connection) -> _Spent | None:
        """What a process tells that it took; where it died or is late, None. One that cannot go on is replaced."""
        spent, sound = None, False
        with contextlib.suppress(EOFError, ConnectionError):
            if pipe.poll():
                seconds, cpu, sound = pipe.recv()
                spent = seconds, cpu
        if not sound:
            process = self.processes.pop(pipe)
            process.kill()
            process.join()
            pipe.close()
            other, process = self._process()
            self.processes[other] = process
        self.lost += spent is None
        return spent

    def close(self) -> None:
        for pipe, process in self.processes.items():
            with contextlib.suppress(ConnectionError):
                pipe.send(None)
            process.join(10)
            process.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)


@contextlib.contextmanager
def _bare(pool: Pool, task: Task, workers: int) -> Iterator[Bare]:
    processes = Bare(pool, task, workers)
    try:
        yield processes
    finally:
        processes.close()


def _lost(report: Report) -> bool:
    return report.verdict in ("crashes", "hangs")


def _begun(reports: list[Report]) -> list[str]:
    """The texts of what was compiled, or died of it: in drawing there is no program yet."""
    return [r.text for r in reports if not r.rejected and "program(" in r.text]


def _ran(report: Report) -> bool:
    return not report.rejected and not _lost(report)


@dataclass
class Side:
    """One schedule's batches, and the bare loop on the same programs: what they took, in seconds."""

    schedule: Schedule
    begun: int = 0  # programs
    fuzz: Pace = field(default_factory=Pace)
    bare: Pace = field(default_factory=Pace)
    seconds: float = 0.0  # on the clock, of the campaign's batches
    own_cpu: float = 0.0  # of this process
    reports: list[Report] = field(default_factory=list)
    alone: list[_Spent] = field(default_factory=list)  # the bare loop's programs
    ratios: list[float] = field(default_factory=list)

    def batch(self, pool: Pool, loop: Bare, task: Task, programs: int) -> str:
        """So many programs, then the bare loop on those of them that ran. In a line what they took."""
        cpu = time.process_time()
        reports, fuzz = self.explored(pool, replace(task, final=False), programs)
        self.own_cpu += time.process_time() - cpu
        alone, bare = loop.run(_begun(reports))
        self.fuzz, self.bare = self.fuzz + fuzz, self.bare + bare
        self.reports += reports
        self.alone += alone
        if bare.rate:  # else every program was lost
            self.ratios.append(round(fuzz.rate / bare.rate, 3))
        return f"{fuzz.rate:.2f} programs/s, bare {bare.rate:.2f}; lost {sum(map(_lost, reports))}"

    def explored(self, pool: Pool, task: Task, programs: int) -> tuple[list[Report], Pace]:
        """The schedule's next programs, so many under way as in a campaign, and their pace.

        They are told in the order in which they began: a slow one, which ends late, must not come late to the bare loop
        too, which would then work at it when its pace is no longer taken.
        """
        started, ends = time.monotonic(), list[tuple[float, bool]]()
        running: dict[Future[Report], int] = {}
        reports: dict[int, Report] = {}
        last = self.begun + programs
        while running or self.begun < last:
            while self.begun < last and len(running) < in_flight(pool.workers):
                running[self.schedule.submit(pool, task, self.begun)] = self.begun
                self.begun += 1
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                reports[number] = report = pool.result(future, task)
                self.schedule.learn(number, report)
                ends.append((time.monotonic() - started, _ran(report)))
        self.seconds += time.monotonic() - started
        return [reports[number] for number in sorted(reports)], pace(ends, pool.workers)

    def figures(self, workers: int) -> dict[str, Any]:
        """Rates, their ratio, and where the time went."""
        ran, alone = sum(map(_ran, self.reports)), len(self.alone)
        if not alone:
            raise UsageError("no program ran on both sides: take more, or fewer workers on a busy machine")
        busy = {name: sum(r.seconds.get(name, 0.0) for r in self.reports) for name in _PHASES}
        busy["other"] = self.seconds * workers - sum(busy.values())
        worker_cpu, bare_cpu = sum(r.seconds.get("cpu", 0.0) for r in self.reports), sum(cpu for _, cpu in self.alone)
        cpu = max(worker_cpu + self.own_cpu, 1e-9)
        return {
            "ratio": round(self.fuzz.rate / self.bare.rate, 4),
            "cpu_ratio": round(bare_cpu / alone / (cpu / ran), 4),
            "fuzz_programs_per_s": round(self.fuzz.rate, 4),
            "bare_programs_per_s": round(self.bare.rate, 4),
            "gradients_per_cpu_minute": round(60 * sum(r.gradients for r in self.reports) / cpu, 1),
            "programs": ran,
            "drawn": len(self.reports),
            # programs that killed their process or were killed at the deadline
            "lost": {"fuzz": sum(map(_lost, self.reports)), "bare": len(_begun(self.reports)) - alone},
            "ratio_by_round": self.ratios,
            # a program's CPU seconds: of workers and compilers, of this process, of the bare loop
            "cpu_seconds_per_program": {
                "workers": round(worker_cpu / ran, 4),
                "main": round(self.own_cpu / ran, 4),
                "bare": round(bare_cpu / alone, 4),
            },
            # a program's seconds in a process, by phase; `other` holds resets, journal, collection, messages and idling
            "fuzz_seconds_per_program": {name: round(spent / ran, 4) for name, spent in busy.items()},
            "bare_seconds_per_program": round(sum(seconds for seconds, _ in self.alone) / alone, 4),
        }


_PHASES = ("generate", "reference", "subject", "judge")


def measure_throughput(
    task: Task,
    programs: int,
    workers: int,
    rounds: int,
    warm: int,
    say: Callable[[str], None],
    arms: Sequence[str] = (SHIPPED_ARM, UNGUIDED_ARM),
) -> dict[str, Any]:
    """The figures of a campaign as shipped and, by name, of the other arms, so many programs each.

    warm   programs of each process that do not count, on both sides: a young one imports, and loads eager's kernels.
    say    is told of each round.
    """
    started, size = time.monotonic(), -(-programs // rounds)
    with (
        tempfile.TemporaryDirectory(prefix="throughput-") as name,
        Pool(workers, [task.place.subject.device], deadline=_DEADLINE_SECONDS) as pool,
        _bare(pool, task, workers) as loop,
    ):
        corpus, by_cells = Corpus(Path(name) / "corpus", {}).start(), replace(task, cells=True)
        known: dict[str, tuple[Schedule, Task]] = {
            SHIPPED_ARM: (BySeedWithCorpus(by_cells, corpus), replace(by_cells, lines=recorded_share())),
            UNGUIDED_ARM: (BySeed(), task),
        }
        sides = dict[str, Side]()
        for arm in arms:
            schedule, own = known[arm]
            first = Side(schedule)
            first.batch(pool, loop, own, warm * workers)
            sides[arm] = Side(schedule, first.begun)
        say(f"{len(arms) * warm * workers} programs to warm up")
        for number in range(rounds):
            for arm, side in sides.items():
                say(f"round {number + 1}, {arm}: {side.batch(pool, loop, known[arm][1], size)}")
    figures = {arm: side.figures(workers) for arm, side in sides.items()}
    return {
        **figures.pop(SHIPPED_ARM),
        **figures,
        "rounds": rounds,
        "warm": warm,
        "workers": workers,
        "device": task.place.subject.device,
        "backend": task.place.subject.backend,
        "seconds": round(time.monotonic() - started, 1),
    }


@click.command("throughput")
@programs_option(60)
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1), help="How often the arms take turns.")
@click.option(
    "--warm", default=2, show_default=True, type=click.IntRange(1), help="Programs a process before anything counts."
)
@click.option(
    "--staged", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="The share that is judged at a stage."
)
@click.option("--alone", is_flag=True, help="Only the campaign as shipped, in half the time.")
@common_options
def throughput_command(
    programs: int, rounds: int, warm: int, staged: float, alone: bool, workers: int, seed: int, device: str,
    backend: str, as_json: bool,
) -> None:  # fmt: skip
    """How many programs a second does a campaign run, against a bare loop of compiles and backwards?

    The campaign runs as shipped and unguided. The CPU seconds of a program are told too.
    """
    arms = (SHIPPED_ARM,) if alone else (SHIPPED_ARM, UNGUIDED_ARM)
    say = partial(click.echo, err=True)
    task = replace(task_on(device, backend, seed), staged=staged)
    figures = measure_throughput(task, programs, workers, rounds, warm, say, arms)
    print_figures(figures, as_json)
