"""How much of a bare compile loop's speed is left: the campaign's path and the bare loop, in turns, in one run.

A round runs a batch of program numbers through `Pool` and `worker.explore` (drawn, run on both sides, judged), then the
texts of exactly those that ran through `bare` (in as many processes, from the same fork server, set up by the
same function). Both sides start with programs that do not count. Programs that kill a process or outlast the deadline
do not count either: a round ends with the last program that ended by itself, for one that hangs keeps one process busy
while all others have nothing left to do.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

from fuzzer.bench import bare
from fuzzer.execution.messages import Report
from fuzzer.execution.pool import Pool, clean_environment, environment, start_worker
from fuzzer.execution.worker import Task, explore

DEADLINE_SECONDS = 30.0  # shorter than a campaign's: every round waits for its last program


class Bare:
    """The bare loop's processes, each with a pipe of its own: a process that is killed holds no lock of others."""

    def __init__(self, pool: Pool, task: Task, workers: int):
        import torch

        self.context, self.deadline, self.subject = pool.context, pool.deadline, task.place.subject
        self.scratch = tempfile.mkdtemp(prefix="bare-")
        with environment(clean_environment()):
            gpus = torch.cuda.device_count() if pool.cuda else 0
        self.turns = pool.context.Value("i", 0)  # kept: its semaphore goes with the last reference here
        self.start = (self.scratch, self.turns, gpus, not pool.cuda)
        self.processes: dict[Connection, Any] = dict(self._process() for _ in range(workers))
        self.lost = 0

    def _process(self) -> tuple[Connection, Any]:
        ours, theirs = self.context.Pipe()
        given = (theirs, self.subject.backend, self.subject.device, start_worker, self.start)
        with environment(clean_environment()):
            process = self.context.Process(target=bare.serve, args=given)
            process.start()
        theirs.close()
        return ours, process

    def run(self, texts: list[str]) -> tuple[list[float], float]:
        """Seconds of each program that ended by itself, and the time until the last of them had."""
        left, begun, found = list(reversed(texts)), dict[Connection, float](), list[float]()
        started = last = time.monotonic()
        while left or begun:
            for pipe in [p for p in self.processes if p not in begun][: len(left)]:
                pipe.send(left.pop())
                begun[pipe] = time.monotonic()
            first = min(begun, key=begun.__getitem__)
            answered = wait_for(begun, max(begun[first] + self.deadline - time.monotonic(), 0.0))
            for pipe in [pipe for pipe in begun if pipe in answered] or [first]:
                del begun[pipe]
                if (seconds := self._answer(pipe)) is not None:
                    found.append(seconds)
                    last = time.monotonic()
        return found, last - started

    def _answer(self, pipe: Connection) -> float | None:
        """The seconds that a process tells; where it died or is late, None, and there is another."""
        with contextlib.suppress(EOFError, ConnectionError):
            if pipe.poll():
                return float(pipe.recv())
        process = self.processes.pop(pipe)
        process.kill()
        process.join()
        pipe.close()
        self.lost += 1
        other, process = self._process()
        self.processes[other] = process
        return None

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


def _explore(pool: Pool, task: Task, indices: range) -> tuple[list[Report], float]:
    """What became of these programs, and the time until the last that ended by itself had."""
    started = last = time.monotonic()
    running = {pool.submit(explore, replace(task, final=False), index) for index in indices}
    reports = []
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            reports.append(pool.result(future, task))
            if not _lost(reports[-1]):
                last = time.monotonic()
    return reports, last - started


def _lost(report: Report) -> bool:
    return report.verdict in ("crashes", "hangs")


def _comparable(reports: list[Report]) -> list[str]:
    return [r.text for r in reports if not r.rejected and not _lost(r)]


def measure(task: Task, programs: int, workers: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Both rates, their ratio, and where the campaign's time went; `say` is told of each round."""
    size = -(-programs // rounds)
    fuzz, compiled = 0.0, 0.0  # seconds
    every: list[Report] = []
    bare_seconds: list[float] = []
    ratios = []
    with (
        Pool(workers, [task.place.subject.device], deadline=DEADLINE_SECONDS) as pool,
        _bare(pool, task, workers) as loop,
    ):
        warm = 2 * workers
        loop.run(_comparable(_explore(pool, task, range(warm))[0]))
        say(f"{warm} programs to warm up")
        for number in range(rounds):
            first = warm + number * size
            reports, spent = _explore(pool, task, range(first, first + size))
            alone, bare_spent = loop.run(_comparable(reports))
            fuzz += spent
            compiled += bare_spent
            every += reports
            bare_seconds += alone
            ratios.append(round(len(_comparable(reports)) / spent / (len(alone) / bare_spent), 3))
            say(f"round {number + 1}: {spent:.1f} s, bare {bare_spent:.1f} s; lost {sum(map(_lost, reports))}")
    ran = len(_comparable(every))
    phases = ("generate", "reference", "subject", "judge")
    busy = {name: sum(r.seconds.get(name, 0.0) for r in every) for name in phases}
    busy["other"] = fuzz * workers - sum(busy.values())
    return {
        "ratio": round(ran / fuzz / (len(bare_seconds) / compiled), 4),
        "fuzz_programs_per_s": round(ran / fuzz, 4),
        "bare_programs_per_s": round(len(bare_seconds) / compiled, 4),
        "programs": ran,
        "drawn": len(every),
        # programs that killed their process or were killed at the deadline
        "lost": {"fuzz": sum(map(_lost, every)), "bare": ran - len(bare_seconds)},
        "rounds": rounds,
        "ratio_by_round": ratios,
        "workers": workers,
        "device": task.place.subject.device,
        "backend": task.place.subject.backend,
        "seconds": round(fuzz + compiled, 1),
        # a program's seconds in a process, by phase; `other` holds resets, journal, collection, messages and idling
        "fuzz_seconds_per_program": {name: round(spent / max(ran, 1), 4) for name, spent in busy.items()},
        "bare_seconds_per_program": round(sum(bare_seconds) / max(len(bare_seconds), 1), 4),
    }
