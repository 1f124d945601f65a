"""What the rows of `faults.measure_faults` tell: arms at equal CPU time, and seconds on the clock until a fault."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.faults import SLICE_SCATTER
from benches.guided import rank_test
from benches.survival import Time, kaplan_meier, log_rank, median


@dataclass(frozen=True)
class Told:
    """What the rows of one campaign say: features at CPU seconds, and when each fault was found."""

    arm: str
    marks: tuple[tuple[float, int, int], ...]  # CPU seconds, features, programs
    found: dict[str, tuple[float, float, int]]  # CPU seconds, seconds on the clock, programs
    wall: float  # seconds on the clock, in all

    @property
    def spent(self) -> float:
        return max([mark[0] for mark in self.marks] + [cpu for cpu, _, _ in self.found.values()], default=0.0)

    def at(self, cpu: float) -> tuple[int, int]:
        """Features and programs after so many CPU seconds."""
        return max(((features, programs) for spent, features, programs in self.marks if spent <= cpu), default=(0, 0))

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
        found = {row["fault"]: (row["cpu"], row["wall"], row["programs"]) for row in own if row["row"] == "found"}
        told.append(Told(arm, marks, found, max(row["wall"] for row in own)))
    return plan, told


def report(paths: Sequence[Path]) -> dict[str, Any]:
    """Arms at the CPU time that every campaign had: faults and features, each against the first arm; and each fault."""
    plan, runs = read_rows(paths)
    budget = min(run.spent for run in runs)
    arms = {arm: [run for run in runs if run.arm == arm] for arm in plan["arms"]}
    arms = {arm: own for arm, own in arms.items() if own}
    blind = next(iter(arms.values()))
    every = sorted({fault for run in runs for fault in run.faults(budget)})
    rows = [_arm_row(arm, own, blind, every, budget) for arm, own in arms.items()]
    faults = {fault: {arm: _fault_row(fault, own, budget) for arm, own in arms.items()} for fault in every}
    return {
        "cpu_seconds": round(budget, 1),
        "campaigns": len(runs),
        "place": plan["place"],
        "arms": rows,
        "faults": faults,
    }


def _arm_row(arm: str, own: list[Told], blind: list[Told], every: list[str], budget: float) -> dict[str, Any]:
    """One arm's figures: medians, ranges, and tests against blind."""
    found, known = ([len(run.faults(budget)) for run in runs] for runs in (own, blind))
    shown, base = ([run.at(budget)[0] for run in runs] for runs in (own, blind))
    strata = [(_times(fault, own, budget), _times(fault, blind, budget)) for fault in every]
    rate, p = log_rank(strata)
    level = statistics.median(base)
    return {
        "arm": arm,
        "campaigns": len(own),
        "programs": statistics.median(run.at(budget)[1] for run in own),
        "faults": {"median": statistics.median(found), "range": [min(found), max(found)], "p": rank_test(found, known)},
        "any": len({fault for run in own for fault in run.faults(budget)}),
        "rate": {"of_blind": _finite(rate, 3), "p": p},
        "features": {
            "median": statistics.median(shown),
            "range": [min(shown), max(shown)],
            "p": rank_test(shown, base),
        },
        "blinds_features_at": _finite(statistics.median(run.reached(level) for run in own) / budget, 3),
    }


def _times(fault: str, runs: list[Told], budget: float) -> list[Time]:
    found = [run.found.get(fault, (math.inf, 0.0, 0))[0] for run in runs]
    return [Time(min(cpu, budget), cpu <= budget) for cpu in found]


def _fault_row(fault: str, runs: list[Told], budget: float) -> dict[str, Any]:
    found = _times(fault, runs, budget)
    return {"found": sum(t.found for t in found), "of": len(found), "median": _finite(median(found), 1)}


def clock(paths: Sequence[Path]) -> dict[str, Any]:
    """For each arm the seconds on the clock until slice_scatter was found, the programs until then, and for how long
    the other campaigns looked; the median (None: fewer than half) is that of Kaplan and Meier."""
    plan, runs = read_rows(paths)
    figures: dict[str, Any] = {"place": plan["place"], "workers": plan["workers"], "ops": plan["ops"]}
    for arm in plan["arms"]:
        own = [run for run in runs if run.arm == arm and run.wall]  # others never began
        found = [run.found[SLICE_SCATTER] for run in own if SLICE_SCATTER in run.found]
        vain = [run.wall for run in own if SLICE_SCATTER not in run.found]
        middle = kaplan_meier([Time(wall, True) for _, wall, _ in found] + [Time(wall, False) for wall in vain])
        told: dict[str, Any] = {"median": _finite(middle, 1)}
        told |= {"seconds": [round(wall, 1) for _, wall, _ in found], "programs": [n for _, _, n in found]}
        figures[arm] = told | {"in_vain": [round(wall, 1) for wall in vain]}
    return figures


def table(figures: dict[str, Any]) -> list[str]:
    """The report as Markdown."""
    head = ("arm", "campaigns", "programs", "faults: median (range)", "p", "rate of finding, of blind's", "p",
            "any seed", "features: median (range)", "p", "blind's features at")  # fmt: skip
    lines = [f"{figures['cpu_seconds']} CPU seconds a campaign, {figures['campaigns']} campaigns", "", *_ruled(head)]
    for row in figures["arms"]:
        found, shown, rate = row["faults"], row["features"], row["rate"]
        cells = [row["arm"], row["campaigns"], f"{row['programs']:g}", _spread(found), f"{found['p']:.2g}"]
        cells += [_dash(rate["of_blind"]), f"{rate['p']:.2g}", row["any"], _spread(shown), f"{shown['p']:.2g}"]
        lines.append(_ruled([*cells, _dash(row["blinds_features_at"])])[0])
    arms = [row["arm"] for row in figures["arms"]]
    lines += ["", *_ruled(["fault: found, median CPU seconds", *arms])]
    for fault, own in figures["faults"].items():
        told = [f"{own[arm]['found']}/{own[arm]['of']}, {_dash(own[arm]['median'])}" for arm in arms]
        lines.append(_ruled([fault, *told])[0])
    return lines


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
