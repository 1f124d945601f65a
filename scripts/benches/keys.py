"""Does a key name one fault? The findings of a ledger are sorted, each as a suspect of a campaign that knows nothing.

Findings that their stage does not show with this torch, on this device, have no key and are left out.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import click

from benches.agreement import ROOT, compare
from benches.options import device_option, json_option, print_figures, task_on, workers_option
from fuzzer.campaign.suspects.sort import core_of, is_sortable, sort
from fuzzer.judgement.oracles import ASKED
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_SECONDS = 30.0  # after which no smaller core of a finding is looked for


@dataclass(frozen=True)
class Sorted:
    """A finding as a suspect.

    fault   that the ledger gives it;  key  and stage of its core, "" where it has none.
    cpu_seconds  that sorting it took.
    """

    finding: str
    fault: str
    key: str
    stage: str
    cpu_seconds: float


def task_for(finding: Finding, task: Task) -> Task:
    """The task, with the finding's oracle where that speaks only if it is asked."""
    return replace(task, also=tuple({finding.signature.oracle} & {*ASKED}))


def sort_all(asked: list[tuple[Finding, str]], task: Task, pool: Pool) -> list[Sorted]:
    """The findings, each with its fault, sorted on the pool."""

    def begin(finding: Finding) -> Future[Any]:
        what = (finding.original, finding.signature, _SECONDS)
        return pool.submit(sort, task_for(finding, task), what)

    futures = [begin(finding) for finding, _ in asked]
    return [
        told(finding, fault, pool.result(future, task_for(finding, task)))
        for (finding, fault), future in zip(asked, futures, strict=True)
    ]


def told(finding: Finding, fault: str, report: Report) -> Sorted:
    """What a Report of `sort` says of a finding."""
    core = core_of(report, finding.signature)
    spent = report.seconds.get("cpu", 0.0)
    return Sorted(finding.id, fault, str(core.key) if core else "", core.stage if core else "", spent)


def figures(rows: list[Sorted]) -> dict[str, Any]:
    """How well keys and faults agree, over findings that have a key; and what sorting took.

    merged  of the pairs under one key, the share that are two faults; `mixed` lists these keys.  one_of_each  faults
    that are met if only the first finding of each key is looked into.
    """
    found = [row for row in rows if row.key]
    keys, faults = dict[str, list[str]](), dict[str, list[str]]()
    for row in found:
        keys.setdefault(row.key, []).append(row.finding)
        faults.setdefault(row.fault, []).append(row.finding)
    agreed = compare(list(keys.values()), faults)
    fault_of = {row.finding: row.fault for row in found}
    spent = [row.cpu_seconds for row in rows]
    return {
        "findings": len(rows),
        "with_a_key": len(found),
        "stages": dict(Counter(row.stage or "none" for row in rows)),
        "keys": len(keys),
        "faults": len(faults),
        "one_of_each": len({fault_of[names[0]] for names in keys.values()}),
        "merged": round(1 - agreed["precision"], 4),
        "cpu_seconds": {"median": round(median(spent), 2), "mean": round(mean(spent), 2)} if spent else {},
        "mixed": {key: met for key, names in keys.items() if len(met := _faults(names, fault_of)) > 1},
        "split": {fault: len({r.key for r in found if r.fault == fault}) for fault in agreed["split"]},
    }


def _faults(names: list[str], fault_of: dict[str, str]) -> list[str]:
    return sorted({fault_of[name] for name in names})


def chosen(db: Path, task: Task, every: int) -> list[tuple[Finding, str]]:
    """Every n-th finding of a ledger that was found with inductor on the task's device and can be sorted; its fault."""
    device = task.place.subject.device
    with open_store(db, create=False) as store:
        fault_of = {row["id"]: row["fault"] for row in store.rows(Wanted(), "id, fault")}
        own = [f for f in store.list() if (f.place.get("backend"), f.place.get("device")) == ("inductor", device)]
    return [(f, fault_of[f.id]) for f in own if is_sortable(f.signature)][::every]


@click.command("keys")
@click.option("--db", type=click.Path(path_type=Path), default=ROOT / "findings.db", help="The ledger.")
@click.option("--every", type=click.IntRange(1), default=1, show_default=True, help="Take every n-th finding.")
@device_option
@workers_option
@json_option
def keys_command(db: Path, every: int, device: str, workers: int, as_json: bool) -> None:
    """Does the key of a sorted suspect name one fault?"""
    task = task_on(device)
    with Pool(workers, task.place.devices) as pool:
        print_figures(figures(sort_all(chosen(db, task, every), task, pool)), as_json)
