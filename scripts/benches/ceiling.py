"""How many programs a second one main process can hand out and learn from: its campaign has workers that answer at
once, with reports of real programs. What lies above cannot be used, however many workers there are.

Each task is pickled as for a worker, and each report unpickled as from one. Ledger, logs and corpus are those of any
campaign.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from benches.options import json_option, print_figures, seed_option
from benches.stream import stream
from fuzzer.campaign import loop
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.mixture import Mixture
from fuzzer.campaign.plan import CELLS, Plan, corpus_environment
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.trial.tasks import explore
from fuzzer.workers.capacity import cores
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import DEADLINE_SECONDS, Pool

TASK = Task(Place(Subject("eager"), Subject("inductor")), routes=ANY_BACKEND, final=False, features=True, staged=0.75,
            cells=True)  # fmt: skip
_BATCH = 32
_STEP = 1000  # programs whose time is told


class AtOnce:
    """A pool whose workers take no time: each program's report is the next of those given, over and over.

    stamps  CPU seconds of this process when so many programs were answered.
    """

    deadline = DEADLINE_SECONDS

    def __init__(self, reports: Sequence[bytes], workers: int):
        self.workers, self.reports = workers, itertools.cycle(reports)
        self.answered = 0
        self.stamps = {0: time.process_time()}
        self.sent = 0  # bytes

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(
        self,
        function: Any,
        task: Task,
        what: Any,
        programs: int = 1,
        seconds: float | None = None,
        behind: bool = False,
    ) -> Future[int]:
        self.sent += len(pickle.dumps((function, task, what)))
        future: Future[int] = Future()
        future.set_result(programs)
        return future

    def results(self, future: Future[int], task: Task) -> list[Report]:
        for _ in range(future.result()):
            self.answered += 1
            if self.answered % _STEP == 0:
                self.stamps[self.answered] = time.process_time()
        return [pickle.loads(next(self.reports)) for _ in range(future.result())]

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


def ceiling(reports: Sequence[Report], programs: int, workers: int, folder: Path) -> dict[str, float]:
    """The figures of a campaign of so many programs, whose workers answer at once."""
    answers = [pickle.dumps(report) for report in reports]
    pool = AtOnce(answers, workers)
    plan = Plan(TASK, workers, None, programs, folder / "ledger.db", folder / "own", batch=_BATCH)
    campaign = loop.Campaign(plan, lambda line: None, lambda own: Mixture(
        TASK, own, Corpus(plan.explored, corpus_environment(TASK)).start(), CELLS))  # fmt: skip
    with patch.object(loop, "_make_pool", lambda plan: pool), patch.object(loop, "require_canaries", lambda *_: None):
        totals = campaign.run()
    pool.stamps[pool.answered] = time.process_time()
    cpu = sum(report.seconds.get("cpu", 0.0) for report in reports) / len(reports)
    paces = [(after - before) / (b - a) for (a, before), (b, after) in itertools.pairwise(sorted(pool.stamps.items()))]
    return {
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
@click.option("--workers", default=64, show_default=True, type=click.IntRange(1), help="That the campaign has.")
@json_option
def ceiling_command(seed: int, record: int, programs: int, workers: int, as_json: bool) -> None:
    """How many programs a second can one main process hand out and learn from?"""
    reports = reports_of(record, seed)
    with tempfile.TemporaryDirectory() as folder:
        print_figures(ceiling(reports, programs, workers, Path(folder)), as_json)
