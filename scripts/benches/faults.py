"""Ways to choose programs, compared by the planted faults that they find, live. What came out: docs/guidance.md.

`measure_faults` runs campaigns and writes rows as things happen, a JSON object a line, so that a run that is cut off
loses nothing (`rows` reads them). Rows: plan, at (now and then), found, unexplained (no planted fault is to blame),
end; of suspects that were built once more checked (a planted fault showed again), real (something showed with nothing
planted), lost (nothing did).
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
from benches.race import SERIOUS, Judge, Lane, Look, Race, Run
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.mixture import Mixture
from fuzzer.campaign.parents import shipped_parents
from fuzzer.campaign.plan import BLIND, GUIDANCES, STAGED, corpus_environment, environment_of
from fuzzer.trial.batch import usual_batch
from fuzzer.trial.draw import STAGE
from fuzzer.trial.tasks import explore
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

SLICE_SCATTER = (
    "slice_scatter"  # pytorch #180164, gone in torch 2.12: its meta kernel laid a result out like a broadcast
)


@dataclass(frozen=True)
class Arm:
    """Under what a campaign runs.

    guidance  as of `backfuzz fuzz`;  staged  the share of programs that are not built;  alone  a worker has one at a
              time.
    """

    guidance: str = BLIND
    staged: float = STAGED
    alone: bool = False


# Each is what `backfuzz fuzz` ships but for its guidance; blind-full has neither stages nor batches.
ARMS = {
    "blind-full": Arm(staged=0.0, alone=True),
    "blind-staged": Arm(),
    **{name: Arm(name) for name in GUIDANCES if name != BLIND},
}
_MARKS, _LONGEST_MARK = 100, 60.0  # rows `at` of a campaign; CPU seconds between two


def has_slice_scatter() -> bool:
    """Whether the running torch has that fault itself."""
    return torch.__version__.split(".")[:2] in (["2", "10"], ["2", "11"])


def of_rare(task: Task) -> Judge:
    """Whom a trial is due to, where all rare faults are planted: what acted alone and gave wrong numbers; of others a
    look with each alone; where none acted, slice_scatter if it agrees under the meta kernel of torch 2.12."""

    def judge(report: Report, found: set[str]) -> tuple[set[str], list[Look]]:
        acted = set(report.fired)
        if report.verdict not in SERIOUS:
            return set(), []
        if not acted:
            return set(), of_slice_scatter(task)(report, found)[1] if has_slice_scatter() else []
        if len(acted) == 1 and report.verdict == "wrong":
            return acted - found, []
        alone = {name: replace(task, canary=f"{rare.__name__}:{name}") for name in sorted(acted - found)}
        if len(acted) == 1:  # raised: also without it?
            return set(), [Look(name, replace(task, canary=""), "agree") for name in alone]
        return set(), [Look(name, task, report.verdict) for name, task in alone.items()]

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
    first     of the seeds;  batch  programs that begin together where several do; None: as many as are shipped.
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
    batch: int | None = None


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
        pools = [stack.enter_context(Pool(plan.workers, devices)) for _ in range(plan.lanes)]

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
            "in_code": sorted(getattr(rare, "CODE", ())),
            "warm_seconds": round(time.monotonic() - began, 1),
        }
        write({"row": "plan", **told})
        judge, check = (of_slice_scatter(task), None) if wanted else (of_rare(task), built_once_more)
        Race(lanes, judge, write, min(plan.seconds / _MARKS, _LONGEST_MARK), check).go(began + 60 * plan.minutes)


def built_once_more(task: Task, fault: str) -> Task:
    """The task under which a suspect of a campaign is checked: built, by itself, under the final look; where no planted
    fault did it, without any."""
    return replace(task, staged=0.0, features=False, fresh=True, final=True, canary=task.canary if fault else "")


def _warm(pools: list[Pool], task: Task, programs: int) -> None:
    """Programs that do not count: the first compile of a process imports and generates what later ones reuse."""
    tasks = [replace(task, seed=0, place=task.place.at(STAGE)), replace(task, seed=0)]
    asked = [(pool, tasks[n % 2], n) for n in range(programs) for pool in pools]
    for pool, future in [(pool, pool.submit(explore, own, number)) for pool, own, number in asked]:
        pool.result(future, task)


def _run(task: Task, plan: Plan, name: str, seed: int, folder: Path, wanted: frozenset[str]) -> Run:
    """A campaign that has not begun: its corpus and log lie in the folder."""
    own, arm = folder / f"{name}-{seed}", ARMS[name]
    guidance = GUIDANCES[arm.guidance]
    task = replace(task, seed=seed, staged=arm.staged, cells=guidance.cells)
    corpus = Corpus(own / "corpus", corpus_environment(task)).start()
    schedule = Mixture(task, own, corpus, arm.guidance, shipped_parents() if guidance.around else None)
    batch = 1 if arm.alone else plan.batch or usual_batch(task.place.subject, arm.staged)
    return Run(name, seed, task, schedule, plan.seconds, wanted, plan.limit, batch)
