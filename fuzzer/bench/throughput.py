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
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import replace
from typing import Any

from fuzzer.bench import bare
from fuzzer.execution.messages import Report
from fuzzer.execution.pool import Pool, clean_environment, environment, start_worker
from fuzzer.execution.worker import Task, explore


class Bare:
    """The bare loop's processes."""

    def __init__(self, pool: Pool, task: Task, workers: int):
        import torch

        self.context, self.deadline, self.subject = pool.context, pool.deadline, task.place.subject
        self.scratch = tempfile.mkdtemp(prefix="bare-")
        self.todo, self.done = pool.context.SimpleQueue(), pool.context.SimpleQueue()
        with environment(clean_environment()):
            gpus = torch.cuda.device_count() if pool.cuda else 0
        self.turns = pool.context.Value("i", 0)  # kept: its semaphore goes with the last reference here
        self.start = (self.scratch, self.turns, gpus, not pool.cuda)
        self.processes = [self._process(slot) for slot in range(workers)]
        self.begun: dict[int, float] = {}  # slot -> when its program began, on the monotonic clock
        self.lost = 0

    def _process(self, slot: int) -> Any:
        given = (self.todo, self.done, slot, self.subject.backend, self.subject.device, start_worker, self.start)
        with environment(clean_environment()):
            process = self.context.Process(target=bare.serve, args=given)
            process.start()
        return process

    def run(self, texts: list[str]) -> list[float]:
        """Seconds of each, in order of completion; what killed or outlasted its process cost the time until then."""
        for text in texts:
            self.todo.put(text)
        found: list[float] = []
        while len(found) < len(texts):
            found += self._answers()
            found += self._lost()
            time.sleep(0.01)
        return found

    def _answers(self) -> list[float]:
        found = []
        while not self.done.empty():
            slot, seconds = self.done.get()
            if seconds is None:
                self.begun[slot] = time.monotonic()
            else:
                del self.begun[slot]
                found.append(seconds)
        return found

    def _lost(self) -> list[float]:
        """Replace processes that died or outlasted the deadline. Raises RuntimeError where no program is to blame."""
        found = []
        for slot, process in enumerate(self.processes):
            spent = time.monotonic() - self.begun.get(slot, time.monotonic())
            if not process.is_alive() or spent > self.deadline:
                process.kill()
                process.join()
                last = self._answers()  # it may have begun a program, or ended one just in time
                found += last
                if self.begun.pop(slot, None) is not None:
                    found.append(spent)
                elif not last:
                    raise RuntimeError(f"a process of the bare loop ended before a program (status {process.exitcode})")
                self.lost += 1
                self.processes[slot] = self._process(slot)
        return found

    def close(self) -> None:
        for _ in self.processes:
            self.todo.put(None)
        for process in self.processes:
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


def measure(task: Task, programs: int, workers: int, rounds: int) -> dict[str, Any]:
    """Both rates, their ratio, and where the campaign's time went."""
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
