"""Arms of guidance compared by the planted faults that they find, live. What came out: docs/guidance.md.

`measure_faults` runs campaigns and writes rows as things happen, a JSON object a line, so that a run that is cut off
loses nothing (`rows` reads them). Rows: plan, at (now and then), found, unexplained (wrong, and no fault is to blame),
end.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benches import rare
from benches.race import Judge, Lane, Look, Metered, Race, Run
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.plan import corpus_environment, environment_of
from fuzzer.campaign.schedule import BLIND, BySeedWithCorpus
from fuzzer.coverage.features import LINES
from fuzzer.coverage.lines import recorded_share
from fuzzer.execution.explore import explore
from fuzzer.execution.messages import Report, Task
from fuzzer.execution.pool import Pool
from fuzzer.guidance.arms import ARMS
from fuzzer.guidance.parents import CountingCorpus
from fuzzer.guidance.schedule import Guided

SLICE_SCATTER = (
    "slice_scatter"  # pytorch #180164, gone in torch 2.12: its meta kernel laid a result out like a broadcast
)
_MARKS, _LONGEST_MARK = 100, 60.0  # rows `at` of a campaign; CPU seconds between two


def has_slice_scatter() -> bool:
    """Whether the running torch has that fault itself."""
    return torch.__version__.split(".")[:2] in (["2", "10"], ["2", "11"])


def of_rare(task: Task) -> Judge:
    """Whom a wrong trial is due to, where all rare faults are planted: what acted alone, else a look with each alone;
    where none acted, slice_scatter if it agrees under the meta kernel of torch 2.12."""

    def judge(report: Report, found: set[str]) -> tuple[set[str], list[Look]]:
        acted = set(report.fired)
        if report.verdict != "wrong":
            return set(), []
        if not acted:
            return set(), of_slice_scatter(task)(report, found)[1] if has_slice_scatter() else []
        if len(acted) == 1:
            return acted - found, []
        alone = {name: replace(task, canary=f"{rare.__name__}:{name}") for name in sorted(acted - found)}
        return set(), [Look(name, task, "wrong") for name, task in alone.items()]

    return judge


def of_slice_scatter(task: Task) -> Judge:
    """The same where nothing else is planted; where torch does not have the fault it is planted, and left out again."""
    right = replace(task, canary="slice_scatter_since_2_12")

    def judge(report: Report, found: set[str]) -> tuple[set[str], list[Look]]:
        looked = report.verdict == "wrong" and SLICE_SCATTER not in found
        return set(), [Look(SLICE_SCATTER, right, "agree")] if looked else []

    return judge


@dataclass(frozen=True)
class Plan:
    """What is compared: arms and seeds.

    seconds   of CPU time a campaign may spend;  limit  seconds on the clock.
    lanes     campaigns at a time, each with so many workers of its own.
    minutes   after which no program is begun;  warm  programs a worker before anything counts.
    first     of the seeds.
    """

    arms: tuple[str, ...]
    seeds: int
    lanes: int
    workers: int = 1
    seconds: float = math.inf
    limit: float = math.inf
    minutes: float = math.inf
    warm: int = 2
    first: int = 1


def measure_faults(task: Task, plan: Plan, path: Path, wanted: frozenset[str] = frozenset()) -> None:
    """Run the campaigns of a plan, a row at a time. wanted: these faults end a campaign; with none, all rare ones are
    planted and it ends by its budget."""
    began, place = time.monotonic(), task.place
    path.parent.mkdir(parents=True, exist_ok=True)
    missing = "" if has_slice_scatter() else "slice_scatter_of_2_11"
    task = replace(task, final=False, canary=missing if wanted else rare.ALL)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="race-")))
        rows = stack.enter_context(path.open("a"))
        devices = [place.reference.device, place.subject.device]
        pools: list[Pool] = [stack.enter_context(Metered(plan.workers, devices, gpu=n)) for n in range(plan.lanes)]

        def write(row: dict[str, Any]) -> None:
            rows.write(json.dumps(row) + "\n")
            rows.flush()

        _warm(pools, task, plan.warm * plan.workers)
        seeds = range(plan.first, plan.first + plan.seeds)
        runs = [_run(task, plan, arm, seed, folder, wanted) for seed in seeds for arm in plan.arms]
        lanes = [Lane(pool, runs[n :: plan.lanes]) for n, pool in enumerate(pools)]
        told = {name: None if value == math.inf else value for name, value in asdict(plan).items()}
        told |= {
            "ops": len(task.ops),
            "place": environment_of(task),
            "warm_seconds": round(time.monotonic() - began, 1),
        }
        write({"row": "plan", **told})
        judge = of_slice_scatter(task) if wanted else of_rare(task)
        Race(lanes, judge, write, min(plan.seconds / _MARKS, _LONGEST_MARK)).go(began + 60 * plan.minutes)


def _warm(pools: list[Pool], task: Task, programs: int) -> None:
    """Programs that do not count: the first compile of a process imports and generates what later ones reuse."""
    task = replace(task, seed=0)
    for pool, future in [(pool, pool.submit(explore, task, number)) for pool in pools for number in range(programs)]:
        pool.result(future, task)


def _run(task: Task, plan: Plan, arm: str, seed: int, folder: Path, wanted: frozenset[str]) -> Run:
    """A campaign that has not begun: its corpus and log lie in the folder."""
    own = folder / f"{arm}-{seed}"
    corpus = own / "corpus", corpus_environment(task)
    if arm == BLIND:
        task = replace(task, seed=seed)
        return Run(arm, seed, task, BySeedWithCorpus(task, Corpus(*corpus).start()), plan.seconds, wanted, plan.limit)
    guidance = ARMS[arm]
    task = replace(task, seed=seed, lines=recorded_share(True) if set(LINES) & set(guidance.credits) else 0.0)
    schedule = Guided(task, own, CountingCorpus(*corpus).start(), guidance)
    return Run(arm, seed, task, schedule, plan.seconds, wanted, plan.limit)
