"""What diagnosing takes, and which culprits it changes: of the finding that stands for each fault that shows here."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from fuzzer.commands.shared.again import diagnose_one
from fuzzer.commands.shared.reference import runs_here
from fuzzer.diagnosis.diagnose import CPU_SECONDS, PROGRAMS
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.cause import cause_of
from fuzzer.ledger.store import Store, open_store

ROOT = Path(__file__).parents[2]
LIMIT = 60.0  # seconds that a diagnosis may take on two quiet cores


def one(finding: Finding, device: str | None, workers: int) -> tuple[Finding | None, dict[str, Any]]:
    """(the finding diagnosed, None where it does not show; a row of figures)."""
    started = time.perf_counter()
    found = diagnose_one(finding, device, workers)
    row: dict[str, Any] = {"id": finding.id, "wall": round(time.perf_counter() - started, 1)}
    if found is None:
        return None, row | {"shows": False}
    before, after = cause_of(finding), cause_of(found)
    return found, row | {
        "shows": True,
        "cpu": int(found.diagnosis[CPU_SECONDS]),
        "experiments": int(found.diagnosis[PROGRAMS]),
        "culprit_before": finding.diagnosis.get("culprit", ""),
        "culprit": found.diagnosis["culprit"],
        "changed": (before.stage, before.decided) != (after.stage, after.decided),
        "joins": after.shares(before),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over the findings that showed. `quiet`: the share whose CPU seconds two cores do within the limit."""
    shown = [row for row in rows if row["shows"]]
    if not shown:
        return {"asked": len(rows), "shown": 0}
    wall, cpu = ([row[name] for row in shown] for name in ("wall", "cpu"))
    return {
        "asked": len(rows),
        "shown": len(shown),
        "wall_median": statistics.median(wall),
        "wall_worst": max(wall),
        "within_limit": round(sum(w <= LIMIT for w in wall) / len(shown), 3),
        "cpu_median": statistics.median(cpu),
        "cpu_worst": max(cpu),
        "quiet": round(sum(c / 2 <= LIMIT for c in cpu) / len(shown), 3),
        "changed": sum(row["changed"] for row in shown),
        "joins": sum(row["joins"] for row in shown),
    }


def chosen(store: Store, ids: Sequence[str]) -> Iterator[Finding]:
    """The findings with these ids; else those that stand for the faults."""
    yield from map(store.get, ids) if ids else store.representatives().values()


@click.command("diagnosis")
@click.argument("ids", nargs=-1)
@click.option("--db", type=click.Path(path_type=Path), default=ROOT / "findings.db", help="The ledger; only read.")
@click.option("--into", type=click.Path(path_type=Path), default=None, help="A copy that takes the diagnoses.")
@click.option("--device", default=None, help="Of both sides. Default: each finding's own, where it is here.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def diagnosis_command(
    ids: Sequence[str], db: Path, into: Path | None, device: str | None, workers: int, as_json: bool
) -> None:
    """How long does a diagnosis take, and which culprits does it change?

    Diagnosed is the finding that stands for each fault, or those named.
    """
    if into is not None:
        shutil.copy(db, into)
    with open_store(db, create=False) as store:
        findings = [finding for finding in chosen(store, ids) if runs_here(finding, device)]
    rows = []
    for finding in findings:
        found, row = one(finding, device, workers)
        rows.append(row)
        click.echo(json.dumps(row), err=as_json)
        if into is not None and found is not None:
            with open_store(into) as store:
                store.set_diagnosis(found)
    figures = summary(rows)
    click.echo(json.dumps(figures | {"rows": rows}) if as_json else "\n".join(f"{k}: {v}" for k, v in figures.items()))
