"""What each stage hears of faults that are planted in a known part of inductor (`benches.parts`), and what it cannot.

A fault is *heard* at a level, a stage or the full compile, where its program's verdict is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from benches import parts
from benches.options import json_option, workers_option
from benches.parts import LEVELS, PARTS, Row, rows_on
from benches.stages import at_stage
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool


def canary(name: str) -> str:
    return f"{parts.__name__}:{name}"


@dataclass(frozen=True)
class Heard:
    """Of one fault, the Reports of its program with it and without, by level."""

    name: str
    row: Row
    planted: dict[str, Report]
    benign: dict[str, Report]

    def wrongly(self) -> list[str]:
        """What is not as the table says."""
        told = []
        for level, report in self.planted.items():
            shown = f"{self.name} at {level}: {report.verdict}, {report.rejected or report.built or report.fired}"
            if self.row.heard_at(level) and (report.verdict not in FINDINGS or report.fired != (self.name,)):
                told.append(f"{shown}; it must be heard")
            if not self.row.heard_at(level) and (report.verdict != "agree" or report.fired):
                told.append(f"{shown}; it cannot act there")
        return told + [
            f"{self.name} at {level}, not planted: {report.verdict}, {report.rejected}"
            for level, report in self.benign.items()
            if report.verdict != "agree"
        ]


def listen(task: Task, names: Iterable[str], levels: Sequence[str], pool: Pool) -> list[Heard]:
    """These faults at these levels. Raises NoMachine."""
    asked = {
        (name, level, fault): pool.submit(examine, at_level(task, level, fault), PARTS[name].program)
        for name in names
        for level in levels
        for fault in (canary(name), "")
    }
    found = {key: pool.result(future, task) for key, future in asked.items()}
    return [
        Heard(
            name,
            PARTS[name],
            {level: found[name, level, canary(name)] for level in levels},
            {level: found[name, level, ""] for level in levels},
        )
        for name in dict.fromkeys(name for name, _, _ in found)
    ]


def at_level(task: Task, level: str, fault: str = "") -> Task:
    """The task at a stage or in the full compile, with a fault planted."""
    return replace(at_stage(task, level), canary=fault)


def measure_hearing(task: Task, workers: int) -> dict[str, Any]:
    """Every fault that the task's device can have, at every stage and in the full compile."""
    device = task.place.subject.device
    with Pool(workers, [device]) as pool:
        return {"device": device} | figures(listen(task, rows_on(device), LEVELS, pool))


def figures(found: Sequence[Heard]) -> dict[str, Any]:
    """Of how many faults of each part each level heard; how often nothing was planted, and nothing heard."""
    parts_in_order = dict.fromkeys(heard.row.part for heard in found)
    benign = [report.verdict for heard in found for report in heard.benign.values()]
    return {
        "faults": len(found),
        "heard": {part: _counts([heard for heard in found if heard.row.part == part]) for part in parts_in_order},
        "benign_silent": benign.count("agree"),
        "benign": len(benign),
        "unexpected": [line for heard in found for line in heard.wrongly()],
    }


def _counts(found: Sequence[Heard]) -> dict[str, str]:
    """Heard of planted, by level."""
    return {
        level: f"{sum(heard.planted[level].verdict in FINDINGS for heard in found)} of {len(found)}"
        for level in found[0].planted
    }


@click.command("hearing")
@click.option(
    "--device", default="cpu", show_default=True, is_eager=True, help="cpu or cuda; its code generator is a part."
)
@workers_option
@json_option
def hearing_command(device: str, workers: int, as_json: bool) -> None:
    """Which stages detect the faults that are planted in each part of inductor, and which cannot?"""
    found = measure_hearing(Task(Place(Subject("eager", device), Subject("inductor", device))), workers)
    if as_json:
        print(json.dumps(found))
        return
    for part, counts in found["heard"].items():
        print(f"{part:24}", *(f"{level} {told:10}" for level, told in counts.items()))
    print(f"not planted: {found['benign_silent']} of {found['benign']} silent")
    print(*found["unexpected"], sep="\n")
