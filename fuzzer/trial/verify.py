"""Programs run again: on all workers of a pool, and in fresh processes before a finding is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzer.judgement.verdict import Signature, Verdict, follows
from fuzzer.language.program import Program
from fuzzer.language.text import show
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

RUNS = 3  # fresh processes; all must agree before anything is stored


@dataclass(frozen=True)
class Verification:
    """How often a program reproduced its signature in fresh processes, and the verdict of the first that did."""

    reproduced: int = 0
    runs: int = 0
    verdict: Verdict | None = None


def ask(
    pool: Pool, function: Callable[[Task, str], Report], task: Task, program: Program, seconds: float | None = None
) -> Future[Report]:
    """Run a function of the worker's (`trial.tasks`) on a program. Its text goes through the pipe, and the function
    parses it there. seconds: after which its worker is killed; None: the pool's deadline. Raises Stopped."""
    return pool.submit(function, task, show(program), seconds=seconds)


def examine_each(pool: Pool, asked: Sequence[tuple[Task, Program]]) -> Iterator[Report]:
    """The Reports of several programs, each under its task, run on all workers, in order, each as soon as it ended."""
    futures = [ask(pool, examine, task, program) for task, program in asked]
    return (pool.result(future, task) for future, (task, _) in zip(futures, asked, strict=True))


def examine_all(pool: Pool, asked: Sequence[tuple[Task, Program]]) -> list[Report]:
    """The Reports of several programs, each under its task, run on all workers, in order."""
    return list(examine_each(pool, asked))


def matching(report: Report, signature: Signature) -> Verdict | None:
    """The report's verdict that is the same finding; None where there is none."""
    return next((v for v in report.verdicts if follows(signature, v.signature)), None)


def verify(
    program: Program, task: Task, signature: Signature, workers: int, devices: list[str], scratch: Path
) -> Verification:
    """Run the program in RUNS fresh processes with the compiler's caches off."""
    fresh = replace(task, fresh=True)
    with Pool(min(workers, RUNS), devices, scratch=scratch, fresh=True) as pool:
        reports = examine_all(pool, [(fresh, program)] * RUNS)
    found = [v for report in reports if (v := matching(report, signature)) is not None]
    return Verification(len(found), RUNS, found[0] if found else None)
