"""Which of several candidates should be compiled? Policies replayed over a pool of programs that all were.

The pool is a file with a line for each program: ids of the features of its trace (`before`) and of its compile, CPU
seconds of drawing and eager (`draw`), of asking whether it is detectable (`look`), of the compile (`compile`), and how
many programs were drawn until one was detectable (`draws`). Recording goes on where the file ends.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzzer.coverage.features import TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.generation.draft import Rejected
from fuzzer.guidance.novelty import FeatureCounts, novelty, trace_features
from fuzzer.trial.draw import MAX_REDRAWS, draw_program
from fuzzer.trial.pipeline import REFUSED, is_detectable, record_reference, report_trial
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.usage import cpu_seconds

KS, POWERS = (2, 4, 8, 16), (0.0, 0.5, 1.0)
_SHARE = 4  # blind compiles one of so many of the programs
H200_SECONDS = 0.5  # CPU seconds of a compile there, on average


# ---------------------------------------------------------------- the pool


def _profiled(task: Task, index: int) -> Report:
    """Program number `index`, drawn blindly and compiled: its features, and CPU seconds by phase (see the module)."""
    log = journal()
    try:
        for attempt in range(MAX_REDRAWS + 1):
            log.begin(f"# program {index} of seed {task.seed}, not drawn yet")
            marks = [cpu_seconds()]
            trial = record_reference(draw_program(task, index, attempt), task, log)
            marks.append(cpu_seconds())
            heard = is_detectable(trial, log)
            marks.append(cpu_seconds())
            if heard:
                told = report_trial(trial, replace(task, features=True), log)
                marks.append(cpu_seconds())
                return replace(told, seconds=_spent(marks), redrawn=attempt)
    except (Rejected, *REFUSED) as error:
        return Report("", rejected=str(error))
    return Report("", rejected="no fault would show")


def _spent(marks: Sequence[float]) -> dict[str, float]:
    """The time between one mark and the next, by phase."""
    between = (late - early for early, late in itertools.pairwise(marks))
    return dict(zip(("draw", "look", "compile"), between, strict=True))


def fill(task: Task, path: Path, programs: int, workers: int) -> None:
    """Compile programs until so many numbers are in the pool's file; those that do not run have a line without."""
    done = len(path.read_text().splitlines()) if path.exists() else 0
    task = replace(task, fresh=True, final=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file, Pool(workers, [task.place.subject.device]) as pool:
        for first in range(done, programs, 4 * workers):
            futures = [pool.submit(_profiled, task, n) for n in range(first, min(first + 4 * workers, programs))]
            wait(futures)
            for future in futures:
                file.write(json.dumps(line(pool.result(future, task))) + "\n")
            file.flush()


def line(report: Report) -> dict[str, Any]:
    """A program's line of the pool."""
    after = {family: sorted(report.features.get(family, ())) for family in COMPILED_FAMILIES}
    told: dict[str, Any] = {
        "before": sorted(trace_features(report.features)),
        "after": after,
        "draws": report.redrawn + 1,
    }
    return {} if "compile" not in report.seconds else told | {k: round(v, 4) for k, v in report.seconds.items()}


@dataclass(frozen=True)
class Profile:
    """A program of the pool. after: (family, number) of every feature of its compile."""

    before: tuple[int, ...]
    after: frozenset[tuple[str, int]]
    draw: float
    look: float
    compile: float
    draws: int


def read_pool(path: Path) -> list[Profile]:
    """The programs of a pool that ran, in their order."""
    found = []
    for row in map(json.loads, path.read_text().splitlines()):
        if row:
            after = frozenset((family, number) for family, numbers in row["after"].items() for number in numbers)
            seconds = (row["draw"], row["look"], row["compile"])
            found.append(Profile(tuple(row["before"]), after, *seconds, row["draws"]))
    return found


# ---------------------------------------------------------------- the replay


@dataclass(frozen=True)
class Policy:
    """The rarest of k by `novelty` over size to this power; k = 1 is blind."""

    k: int = 1
    power: float = 0.0

    def __str__(self) -> str:
        return "blind" if self.k == 1 else f"best of {self.k}, size^{self.power:g}"


@dataclass(frozen=True)
class PolicyCost:
    """CPU seconds: of a candidate, of the look, and by how much a compile's are multiplied."""

    candidate: float
    look: float
    scale: float = 1.0

    def seconds(self, policy: Policy, program: Profile) -> float:
        return policy.k * self.candidate + self.look + self.scale * program.compile


def policy_cost(pool: Sequence[Profile], compile: float | None = None) -> PolicyCost:
    """What programs of this pool cost; compiles as they did, or this long on average. Who is passed over costs too."""
    draws = statistics.mean(p.draws for p in pool)
    scale = 1.0 if compile is None else compile / statistics.mean(p.compile for p in pool)
    return PolicyCost(
        draws * statistics.mean(p.draw for p in pool), draws * statistics.mean(p.look for p in pool), scale
    )


def replay(pool: Sequence[Profile], policy: Policy, cost: PolicyCost, budget: float, seed: int) -> tuple[set[Any], int]:
    """What the policy's compiles show within this many CPU seconds, in one random order; and how many they are."""
    rng, left, seen = random.Random(seed), list(range(len(pool))), FeatureCounts()
    shown: set[Any] = set()
    spent, compiled = 0.0, 0
    while left:
        offered = rng.sample(left, min(policy.k, len(left)))
        chosen = max(offered, key=lambda n: novelty(pool[n].before, seen, policy.power)) if policy.k > 1 else offered[0]
        spent += cost.seconds(policy, pool[chosen])
        if spent > budget:
            break
        left.remove(chosen)
        seen.add({TRACE_FAMILIES[0]: frozenset(pool[chosen].before)})
        shown |= pool[chosen].after
        compiled += 1
    return shown, compiled


def rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of Mann and Whitney (1947): that neither tends to be larger; 1 where all are equal. Normal
    approximation, corrected for ties."""
    from scipy import stats

    p = float(stats.mannwhitneyu(a, b, method="asymptotic").pvalue) if {*a, *b} != {a[0]} else 1.0
    return min(p, 1.0)


def compare(pool: Sequence[Profile], orders: int, compile: float | None = None) -> list[dict[str, Any]]:
    """A row for each policy: features of compiles at the CPU time that blind needs for a share of the pool."""
    cost = policy_cost(pool, compile)
    typical = cost.candidate + cost.look + cost.scale * statistics.mean(p.compile for p in pool)
    budget = len(pool) // _SHARE * typical
    policies = [Policy(), *(Policy(k, power) for k in KS for power in POWERS)]
    rows: list[dict[str, Any]] = []
    blind: list[int] = []
    for policy in policies:
        runs = [replay(pool, policy, cost, budget, seed) for seed in range(orders)]
        counts = [len(shown) for shown, _ in runs]
        blind = blind or counts
        row = {"policy": str(policy), "k": policy.k, "power": policy.power, "features": statistics.median(counts)}
        row |= {"range": [min(counts), max(counts)], "compiles": statistics.median(n for _, n in runs)}
        row |= {"ratio": round(statistics.median(counts) / statistics.median(blind), 4), "p": rank_test(counts, blind)}
        by = {f: statistics.median(sum(g == f for g, _ in shown) for shown, _ in runs) for f in COMPILED_FAMILIES}
        rows.append(row | {"families": by})
    return rows


def measure_policies(path: Path, orders: int) -> dict[str, Any]:
    """Comparison F of docs/guidance.md: choose on the even programs, judge on the odd; at two prices of a compile."""
    pool = read_pool(path)
    figures: dict[str, Any] = {"programs": len(pool), "orders": orders}
    for name, compile in (("as measured", None), ("compiles of 0.5 s", H200_SECONDS)):
        even, odd = compare(pool[::2], orders, compile), compare(pool[1::2], orders, compile)
        chosen = max(range(1, len(even)), key=lambda n: even[n]["features"])
        cost = policy_cost(pool, compile)
        told = {"candidate_s": round(cost.candidate, 4), "look_s": round(cost.look, 4)}
        told |= {"compile_s": round(cost.scale * statistics.mean(p.compile for p in pool), 3)}
        figures[name] = {**told, "chosen": odd[chosen], "even": even, "odd": odd}
    return figures
