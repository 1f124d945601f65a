"""What judging costs: the share of a campaign's CPU time that its oracles take, and how often the first look is enough.

Programs are explored as a campaign does it. The oracles' time is that of the judgement (the reference, the replicas,
all comparisons) and of the compiled code's second run. `settings_agree`, which compiles a sample of programs anew, is
counted on neither side.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from benches.calibrate import beyond_first_look, stream
from fuzzer.judgement.trial import Trial
from fuzzer.trial import tasks as exploration
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.usage import cpu_seconds


@dataclass(frozen=True)
class CostReport(Report):
    """A Report with CPU seconds: `all` of them, those of `judge` and of the `rerun`; and whether more was looked at."""

    cpu: dict[str, float] = field(default_factory=dict)
    beyond: bool = False


def explore_cost(task: Task, index: int) -> Report:
    """The campaign's `explore_cost`, with what it cost."""
    started = cpu_seconds()
    found = exploration.explore(task, index, priced)
    spent = cpu_seconds() - started
    known = found if isinstance(found, CostReport) else CostReport(**vars(found))
    known.cpu["all"] = spent - known.cpu.pop("settings_agree", 0.0)
    return known


def priced(report: Report, trial: Trial) -> Report:
    """The Report with what its parts cost."""
    spent = {"judge": report.seconds["judge"]}
    if trial.subject.again is not None:
        spent["rerun"] = trial.subject.again.cpu_seconds
    if trial.bare is not None:
        spent["settings_agree"] = trial.bare.cpu_seconds
    return CostReport(**vars(report), cpu=spent, beyond=beyond_first_look(trial))


def measure_cost(task: Task, programs: int, workers: int) -> dict[str, Any]:
    """Explore `programs` programs; what it cost."""
    started = time.perf_counter()
    with Pool(workers, [task.place.subject.device]) as pool:
        reports = stream(pool, explore_cost, replace(task, final=False), range(programs), None)
    figures = cost_summary([report for _, report in reports])
    return figures | {"seconds": round(time.perf_counter() - started, 1)}


def cost_summary(reports: list[Report]) -> dict[str, Any]:
    """The figures of these reports."""
    found = [r for r in reports if isinstance(r, CostReport)]
    ran = [r for r in found if not r.rejected]
    spent: Counter[str] = Counter()
    for report in found:
        spent.update(report.cpu)
    oracles = spent["judge"] + spent["rerun"]
    return {
        "programs": len(ran),
        "oracles_cpu_share": round(oracles / max(spent["all"], 1e-9), 4),
        "beyond_first_look_share": round(sum(r.beyond for r in ran) / max(len(ran), 1), 4),
        "cpu_seconds_per_program": {name: round(s / max(len(ran), 1), 4) for name, s in sorted(spent.items())},
        "classes": dict(Counter(r.verdict for r in reports)),
    }
