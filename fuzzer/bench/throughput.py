"""How much of a bare compile loop's speed is left: the campaign's path and the bare loop, in turns, in one run.

A round runs a batch of program numbers through `Pool` and `worker.explore` (drawn, run on both sides, judged), then the
texts of exactly those that ran through `bare` (in as many processes, from the same fork server, set up by the
same function). Both sides start with programs that do not count. A program that kills a process or outlasts the
deadline costs the bare side what it costs the other: the time until then, and a new process.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

from fuzzer.bench import bare
from fuzzer.execution.messages import Report
from fuzzer.execution.pool import Pool, clean_environment, environment, start_worker
from fuzzer.execution.worker import Task, explore


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

    def run(self, texts: list[str]) -> list[float]:
        """Seconds of each, in order of completion; what killed or outlasted its process cost the time until then."""
        left, begun, found = list(reversed(texts)), dict[Connection, float](), list[float]()
        while len(found) < len(texts):
            for pipe in [p for p in self.processes if p not in begun][: len(left)]:
                pipe.send(left.pop())
                begun[pipe] = time.monotonic()
            first = min(begun, key=begun.__getitem__)
            answered = wait_for(begun, max(begun[first] + self.deadline - time.monotonic(), 0.0))
            for pipe in [pipe for pipe in begun if pipe in answered] or [first]:
                found.append(self._answer(pipe, time.monotonic() - begun.pop(pipe)))
        return found

    def _answer(self, pipe: Connection, spent: float) -> float:
        """The seconds that a process tells; where it died or is late, those that it took, and there is another."""
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


def _explore(pool: Pool, task: Task, indices: range) -> list[Report]:
    futures = [pool.submit(explore, replace(task, final=False), index) for index in indices]
    wait(futures)
    return [pool.result(future, task) for future in futures]


def _comparable(reports: list[Report]) -> list[str]:
    return [r.text for r in reports if not r.rejected]


def measure(task: Task, programs: int, workers: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Both rates, their ratio, and where the campaign's time went; `say` is told of each round."""
    size = -(-programs // rounds)
    fuzz, compiled = 0.0, 0.0  # seconds
    every: list[Report] = []
    bare_seconds: list[float] = []
    ratios = []
    with Pool(workers, [task.place.subject.device]) as pool, _bare(pool, task, workers) as loop:
        warm = 2 * workers
        loop.run(_comparable(_explore(pool, task, range(warm))))
        warm_deaths, warm_lost = pool.deaths, loop.lost
        for number in range(rounds):
            first = warm + number * size
            started = time.perf_counter()
            reports = _explore(pool, task, range(first, first + size))
            middle = time.perf_counter()
            bare_seconds += loop.run(_comparable(reports))
            ended = time.perf_counter()
            fuzz += middle - started
            compiled += ended - middle
            every += reports
            ratios.append(round((ended - middle) / (middle - started), 3))
            say(f"round {number + 1}: {middle - started:.1f} s, bare {ended - middle:.1f} s")
    ran = len(_comparable(every))
    phases = ("generate", "reference", "subject", "judge")
    busy = {name: sum(r.seconds.get(name, 0.0) for r in every) for name in phases}
    busy["other"] = fuzz * workers - sum(busy.values())
    return {
        "ratio": round(compiled / fuzz, 4),
        "fuzz_programs_per_s": round(ran / fuzz, 4),
        "bare_programs_per_s": round(ran / compiled, 4),
        "programs": ran,
        "drawn": len(every),
        "lost": {"fuzz": pool.deaths - warm_deaths, "bare": loop.lost - warm_lost},  # workers that died or were killed
        "rounds": rounds,
        "ratio_by_round": ratios,
        "workers": workers,
        "device": task.place.subject.device,
        "backend": task.place.subject.backend,
        "seconds": round(fuzz + compiled, 1),
        # a program's seconds in a process, by phase; `other` holds resets, journal, collection, messages and idling
        "fuzz_seconds_per_program": {name: round(spent / max(ran, 1), 4) for name, spent in busy.items()},
        "bare_seconds_per_program": round(sum(bare_seconds) / max(ran, 1), 4),
    }
