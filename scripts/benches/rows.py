"""What the rows of `faults.measure_faults` tell: arms at equal CPU time, and seconds on the clock until a fault."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.faults import SLICE_SCATTER


@dataclass(frozen=True)
class Told:
    """What the rows of one campaign say: features at CPU seconds, and when each fault was found."""

    arm: str
    marks: tuple[tuple[float, int, int], ...]  # CPU seconds, features, programs
    found: dict[str, tuple[float, float, int]]  # CPU seconds, seconds on the clock, programs
    wall: float  # seconds on the clock, in all
    real: dict[str, float] = field(default_factory=dict)  # signatures that nothing planted explains: CPU seconds
    built: tuple[tuple[float, int], ...] = ()  # CPU seconds, programs that were built

    @property
    def spent(self) -> float:
        return max([mark[0] for mark in self.marks] + [cpu for cpu, _, _ in self.found.values()], default=0.0)

    def at(self, cpu: float) -> tuple[int, int]:
        """Features and programs after so many CPU seconds."""
        return max(((features, programs) for spent, features, programs in self.marks if spent <= cpu), default=(0, 0))

    def built_at(self, cpu: float) -> int:
        """Programs that were built after so many CPU seconds."""
        return max((built for spent, built in self.built if spent <= cpu), default=0)

    def real_at(self, cpu: float) -> int:
        """Signatures that nothing planted explains, after so many CPU seconds."""
        return sum(spent <= cpu for spent in self.real.values())

    def faults(self, cpu: float) -> set[str]:
        return {fault for fault, (spent, _, _) in self.found.items() if spent <= cpu}

    def reached(self, features: float) -> float:
        """CPU seconds until it showed so many features; infinity where it did not."""
        return min((spent for spent, shown, _ in self.marks if shown >= features), default=math.inf)


def read_rows(paths: Iterable[Path]) -> tuple[dict[str, Any], list[Told]]:
    """The plan, and the campaigns, of files that `measure` wrote. Several files are as many seeds more."""
    plan: dict[str, Any] = {}
    rows: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
    for number, path in enumerate(paths):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["row"] == "plan":
                plan = row
            else:
                rows.setdefault((number, row["arm"], row["seed"]), []).append(row)
    told = []
    for (_, arm, _), own in rows.items():
        marks = tuple((row["cpu"], row["features"], row["programs"]) for row in own if "features" in row)
        real: dict[str, float] = {}
        for row in own:
            if row["row"] == "real":
                real[row["signature"]] = min(row["cpu"], real.get(row["signature"], math.inf))
        built = tuple((row["cpu"], row["built"]) for row in own if "built" in row and "features" in row)
        told.append(Told(arm, marks, _found(own), max(row["wall"] for row in own), real, built))
    return plan, told


def _found(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[float, float, int]]:
    """When a campaign found each fault; what did not show when it was built once more was not found then."""
    found: dict[str, tuple[float, float, int]] = {}
    for row in rows:
        if row["row"] == "found":
            found.setdefault(row["fault"], (row["cpu"], row["wall"], row["programs"]))
        elif row["row"] == "lost":
            found.pop(row["fault"], None)
    return found


def report(paths: Sequence[Path], chosen: Sequence[str] = ()) -> dict[str, Any]:
    """Arms at the CPU time that every campaign had: faults and features, each against the first arm; and each fault.

    chosen: these arms alone, in this order.
    """
    plan, runs = read_rows(paths)
    runs = [run for run in runs if run.arm in (chosen or plan["arms"])]
    budget = min(run.spent for run in runs)
    arms = {arm: [run for run in runs if run.arm == arm] for arm in chosen or plan["arms"]}
    arms = {arm: own for arm, own in arms.items() if own}
    blind = next(iter(arms.values()))
    every = sorted({fault for run in runs for fault in run.faults(budget)})
    rows = [_arm_row(arm, own, blind, budget, set(plan.get("in_code", ()))) for arm, own in arms.items()]
    faults = {fault: {arm: _fault_row(fault, own, budget) for arm, own in arms.items()} for fault in every}
    return {
        "cpu_seconds": round(budget, 1),
        "campaigns": len(runs),
        "place": plan["place"],
        "arms": rows,
        "faults": faults,
    }


def _arm_row(arm: str, own: list[Told], blind: list[Told], budget: float, in_code: set[str]) -> dict[str, Any]:
    """One arm's figures: medians, ranges, and tests against blind. in_code: faults that show in code alone."""
    level = statistics.median(run.at(budget)[0] for run in blind)
    return {
        "arm": arm,
        "campaigns": len(own),
        "programs": statistics.median(run.at(budget)[1] for run in own),
        "built": statistics.median(run.built_at(budget) for run in own),
        "faults": _compared(own, blind, lambda run: len(run.faults(budget))),
        "in_code": _compared(own, blind, lambda run: len(run.faults(budget) & in_code)),
        "real": _compared(own, blind, lambda run: run.real_at(budget)),
        "any": len({fault for run in own for fault in run.faults(budget)}),
        "features": _compared(own, blind, lambda run: run.at(budget)[0]),
        "blinds_features_at": _finite(statistics.median(run.reached(level) for run in own) / budget, 3),
    }


def _compared(own: list[Told], blind: list[Told], count: Callable[[Told], int]) -> dict[str, Any]:
    """Median and range of a count, the mean in units of blind's, and the p of a rank test against blind."""
    mine, theirs = ([count(run) for run in runs] for runs in (own, blind))
    ratio = statistics.mean(mine) / statistics.mean(theirs) if any(theirs) else math.nan
    told: dict[str, Any] = {"median": statistics.median(mine), "range": [min(mine), max(mine)]}
    return told | {"of_blind": _finite(ratio, 2), "p": _rank_test(mine, theirs)}


def _rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of Mann and Whitney (1947): that neither tends to be larger; 1 where all are equal. Normal
    approximation, corrected for ties."""
    from scipy import stats

    p = float(stats.mannwhitneyu(a, b, method="asymptotic").pvalue) if {*a, *b} != {a[0]} else 1.0
    return min(p, 1.0)


def _fault_row(fault: str, runs: list[Told], budget: float) -> dict[str, Any]:
    """How many campaigns found a fault, and the median of their CPU seconds; None where fewer than half did."""
    times = [cpu if (cpu := run.found.get(fault, (math.inf, 0.0, 0))[0]) <= budget else math.inf for run in runs]
    found = sum(map(math.isfinite, times))
    return {"found": found, "of": len(times), "median": _finite(statistics.median(times), 1)}


def clock(paths: Sequence[Path]) -> dict[str, Any]:
    """For each arm the seconds on the clock until slice_scatter was found, the programs until then, and for how long
    the other campaigns looked; the median counts these as infinite (None: fewer than half found it)."""
    plan, runs = read_rows(paths)
    figures: dict[str, Any] = {"place": plan["place"], "workers": plan["workers"], "ops": plan["ops"]}
    for arm in plan["arms"]:
        own = [run for run in runs if run.arm == arm and run.wall]  # others never began
        found = [run.found[SLICE_SCATTER] for run in own if SLICE_SCATTER in run.found]
        vain = [run.wall for run in own if SLICE_SCATTER not in run.found]
        times = [wall for _, wall, _ in found] + [math.inf] * len(vain)
        told: dict[str, Any] = {"median": _finite(statistics.median(times), 1) if times else None}
        told |= {"seconds": [round(wall, 1) for _, wall, _ in found], "programs": [n for _, _, n in found]}
        figures[arm] = told | {"in_vain": [round(wall, 1) for wall in vain]}
    return figures


def table(figures: dict[str, Any]) -> list[str]:
    """The report as Markdown."""
    head = ("arm", "campaigns", "programs", "of blind's", "built", "faults: median (range)", "of blind's", "p",
            "any seed", "in code alone", "of blind's", "p", "real", "of blind's",
            "p", "features: median (range)", "p", "blind's features at")  # fmt: skip
    lines = [f"{figures['cpu_seconds']} CPU seconds a campaign, {figures['campaigns']} campaigns", "", *_ruled(head)]
    for row in figures["arms"]:
        shown = row["features"]
        times = row["programs"] / (figures["arms"][0]["programs"] or math.nan)
        cells = [row["arm"], row["campaigns"], f"{row['programs']:g}", _dash(_finite(times, 2)), f"{row['built']:g}"]
        cells += [*_against(row["faults"]), row["any"]]
        cells += [*_against(row["in_code"]), *_against(row["real"]), _spread(shown), f"{shown['p']:.2g}"]
        lines.append(_ruled([*cells, _dash(row["blinds_features_at"])])[0])
    arms = [row["arm"] for row in figures["arms"]]
    lines += ["", *_ruled(["fault: found, median CPU seconds", *arms])]
    for fault, own in figures["faults"].items():
        told = [f"{own[arm]['found']}/{own[arm]['of']}, {_dash(own[arm]['median'])}" for arm in arms]
        lines.append(_ruled([fault, *told])[0])
    return lines


def _against(figure: dict[str, Any]) -> list[str]:
    return [_spread(figure), _dash(figure["of_blind"]), f"{figure['p']:.2g}"]


def _dash(number: float | None) -> str:
    return "-" if number is None else f"{number:g}"


def _ruled(cells: Sequence[Any]) -> list[str]:
    """A line of a Markdown table, and the rule that stands below a head."""
    return [f"| {' | '.join(map(str, cells))} |", "|---" * len(cells) + "|"]


def _finite(x: float, digits: int) -> float | None:
    """The number rounded; None where there is none, for JSON knows neither infinity nor NaN."""
    return round(x, digits) if math.isfinite(x) else None


def _spread(figure: dict[str, Any]) -> str:
    low, high = figure["range"]
    return f"{figure['median']:g} ({low}-{high})"
