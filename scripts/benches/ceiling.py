"""How many programs a second one main process can hand out and learn from, and the memory that it takes: its campaign
has workers that answer at once, with reports of real programs. What lies above cannot be used, however many workers
there are.

Each task is pickled as for a worker, and each report unpickled as from one; or both go through Ray, to crews and back.
Ledger, logs and corpus are those of any campaign. A share of the programs show a feature that no other has, until the
corpus is full; what memory is taken after that would go on growing for weeks.
"""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from benches.options import json_option, print_figures, seed_option
from benches.slopes import slope
from benches.stream import stream
from fuzzer.campaign import loop
from fuzzer.campaign.bounds import MOST_KEPT
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.mixture import Mixture
from fuzzer.campaign.plan import CELLS, Plan, corpus_environment
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.trial.tasks import explore
from fuzzer.workers.capacity import cores
from fuzzer.workers.cluster import LOCAL, RAY, Cluster, RayExecutor, place_crews
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import DEADLINE_SECONDS, Pool
from fuzzer.workers.usage import resident_bytes

TASK = Task(Place(Subject("eager"), Subject("inductor")), routes=ANY_BACKEND, final=False, features=True, staged=0.75,
            cells=True)  # fmt: skip
_BATCH = 32
_STEP = 1000  # programs whose time is told
_OWN = 1 << 63  # from here on, ids of features that one program alone shows


class Answers:
    """The executor of workers that take no time: a task gives as many of the reports as it has programs. It is also the
    pool of a crew."""

    def __init__(self, reports: Sequence[bytes], workers: int = 1):
        self.reports, self.executor = itertools.cycle(reports), self

    def schedule(self, function: Any, arguments: tuple[Any, ...], seconds: float | None) -> Future[list[Report]]:
        *_, programs = arguments
        future: Future[list[Report]] = Future()
        future.set_result(list(map(pickle.loads, itertools.islice(self.reports, programs))))
        return future

    def resident(self) -> list[int]:
        return []

    def close(self, kill: bool = False) -> None:
        return None

    def join(self) -> None:
        return None


def through_ray(reports: Sequence[bytes], workers: int) -> RayExecutor:
    """The same on a Ray cluster, with a crew up: its start is not counted."""
    cluster = Cluster()
    crews = place_crews(cluster.machines(), workers, None)
    far = RayExecutor(cluster, crews, Answers, lambda crew: {"reports": reports, "workers": crew.workers}, None)
    far.schedule(len, ((), 1), None).result()
    return far


EXECUTORS: dict[str, Callable[[Sequence[bytes], int], Answers | RayExecutor]] = {LOCAL: Answers, RAY: through_ray}


class AtOnce:
    """A pool whose workers take no time: each program's report is the next of the executor's, over and over.

    new     the share of the programs that show a feature of their own.
    stamps  CPU seconds of this process when so many programs were answered;  memory  its resident MiB then.
    """

    deadline = DEADLINE_SECONDS

    def __init__(self, executor: Answers | RayExecutor, workers: int, new: float = 0.0):
        self.executor, self.workers, self.new = executor, workers, new
        self.answered = 0
        self.stamps, self.memory = dict[int, float](), dict[int, float]()
        self.sent = 0  # bytes
        self.stamp()

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()
        self.executor.join()

    def submit(self, function: Any, task: Task, what: Any, programs: int = 1, **_: Any) -> Future[list[Report]]:
        self.sent += len(pickle.dumps((function, task, what)))
        return self.executor.schedule(function, (task, what, programs), None)

    def results(self, future: Future[list[Report]], task: Task) -> list[Report]:
        return list(map(self.counted, future.result()))

    def counted(self, report: Report) -> Report:
        """The report, which may show something new."""
        self.answered += 1
        if self.answered % _STEP == 0:
            self.stamp()
        if int(self.answered * self.new) > int((self.answered - 1) * self.new):
            own = frozenset({*report.features.get("operand", ()), _OWN + self.answered})
            report = replace(report, features={**report.features, "operand": own})
        return report

    def stamp(self) -> None:
        self.stamps[self.answered] = time.process_time()
        self.memory[self.answered] = resident_bytes(os.getpid()) / 2**20

    def engaged(self) -> bool:
        return False

    def silent_devices(self) -> list[str]:
        return []

    def health(self) -> dict[str, int]:
        return {}


def reports_of(programs: int, seed: int) -> list[Report]:
    """Reports of that many real programs, without those that did not agree: a suspect costs more, and is rare."""
    with Pool(cores(), ["cpu"]) as pool:
        told = stream(pool, explore, replace(TASK, seed=seed), range(programs))
    return [report for _, report in told if report.verdict == "agree"]


def ceiling(reports: Sequence[Report], programs: int, workers: int, folder: Path, new: float = 0.0,
            keep: int = MOST_KEPT, executor: str = LOCAL) -> dict[str, Any]:  # fmt: skip
    """The figures of a campaign of so many programs, whose workers answer at once. Of its memory: MiB at the start and
    at the end, and how it rises once the corpus is full or, if that never happens, once half of the programs ran."""
    answers = [pickle.dumps(report) for report in reports]
    pool = AtOnce(EXECUTORS[executor](answers, workers), workers, new)
    plan = Plan(TASK, workers, None, programs, folder / "ledger.db", folder / "own", batch=_BATCH)
    corpus = Corpus(plan.explored, corpus_environment(TASK), keep)
    campaign = loop.Campaign(plan, lambda line: None, lambda own: Mixture(TASK, own, corpus.start(), CELLS))
    with patch.object(loop, "_make_pool", lambda plan: pool), patch.object(loop, "require_canaries", lambda *_: None):
        totals = campaign.run()
    pool.stamp()
    cpu = sum(report.seconds.get("cpu", 0.0) for report in reports) / len(reports)
    paces = [(after - before) / (b - a) for (a, before), (b, after) in itertools.pairwise(sorted(pool.stamps.items()))]
    filled = keep / new if new and keep / new < programs else programs / 2
    late = {number: mib for number, mib in pool.memory.items() if number >= 1.2 * filled}
    rise = slope([3600 * number / 1e6 for number in late], list(late.values()))  # "an hour" is a million programs
    return {
        "mib_at_first": round(pool.memory[0], 1),
        "mib_at_last": round(pool.memory[pool.answered], 1),
        "mib_a_million": round(rise.an_hour, 2),
        "mib_a_million_99_%": f"{rise.low:.2f} to {rise.high:.2f}",
        "kept": len(corpus.kept),
        "programs": totals.programs,
        "programs_per_s": round(pool.answered / (max(pool.stamps.values()) - pool.stamps[0]), 1),
        "first_per_s": round(1 / paces[0], 1),
        "last_per_s": round(1 / paces[-1], 1),
        "worker_cpu_s": round(cpu, 3),
        "workers_fed": round(cpu / paces[-1], 1),
        "report_bytes": round(sum(map(len, answers)) / len(answers)),
        "task_bytes": round(pool.sent / pool.answered),
    }


@click.command("ceiling")
@seed_option
@click.option("--record", default=200, show_default=True, type=click.IntRange(1), help="Real programs to record.")
@click.option("--programs", default=20000, show_default=True, type=click.IntRange(1), help="Answered from these.")
@click.option("--new", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Share that is new.")
@click.option("--keep", default=MOST_KEPT, show_default=True, type=click.IntRange(1), help="That the corpus keeps.")
@click.option("--workers", default=64, show_default=True, type=click.IntRange(1), help="That the campaign has.")
@click.option(
    "--executor", default=LOCAL, show_default=True, type=click.Choice([*EXECUTORS]), help="Where the workers are."
)
@json_option
def ceiling_command(
    seed: int, record: int, programs: int, new: float, keep: int, workers: int, executor: str, as_json: bool
) -> None:
    """How many programs a second can one main process hand out and learn from, and does its memory stay flat?"""
    reports = reports_of(record, seed)
    with tempfile.TemporaryDirectory() as folder:
        print_figures(ceiling(reports, programs, workers, Path(folder), new, keep, executor), as_json)
