"""What each stage costs and hears: fresh programs and stored findings at every stage, against the full compile.

A stage stops inductor early (`fuzzer.stages`). What it costs is the CPU time of the side on trial, compile
and both runs, where the stage ran the program itself. What it hears is told by the full compile of the same program: a
finding is *visible* where the stage shows the same class of verdict, or its own verdict `Faulty`; an *alarm* is a
finding that the stage shows and the full compile does not. To count alarms alone, only what a stage shows is compiled
in full (SHOWN).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from benches.options import device_option, json_option, print_figures, seed_option, task_on, workers_option
from benches.stream import stream
from fuzzer.judgement.trial import Place, Trial
from fuzzer.judgement.verdict import FINDINGS, follows
from fuzzer.language.text import parse
from fuzzer.ledger.store import open_store
from fuzzer.stages import STAGES
from fuzzer.stages.cannot import Faulty
from fuzzer.trial.pipeline import report_program
from fuzzer.trial.tasks import explore
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

FULL = "full"
ALL, SHOWN, NONE = "all", "shown", "none"  # the programs that the full compile is asked of


@dataclass(frozen=True)
class StageReport(Report):
    """A Report with the CPU milliseconds of the side on trial."""

    milliseconds: float = 0.0


def timed(report: Report, trial: Trial) -> Report:
    """The Report with what its side on trial cost, both runs; 0 where it raised."""
    seen = trial.subject
    spent = seen.cpu_seconds + (seen.again.cpu_seconds if seen.again is not None else 0.0)
    return StageReport(**vars(report), milliseconds=1000 * spent)


def run_fresh(task: Task, index: int) -> Report:
    """Program number `index` as a campaign explores it, timed."""
    return explore(task, index, timed)


def run_stored(task: Task, text: str) -> Report:
    """A stored program, timed."""
    return report_program(parse(text), task, journal(), timed)


@dataclass(frozen=True)
class Row:
    """One program at every stage: what it is (its number, or a finding's id), and the Report of each stage by name."""

    what: str
    reports: Mapping[str, Report]

    @property
    def shown(self) -> bool:
        """Whether the full compile shows a finding."""
        return self.reports[FULL].verdict in FINDINGS if FULL in self.reports else False

    def visible(self, stage: str) -> bool:
        """Whether a stage shows what the full compile does: its class, or that something is faulty."""
        return self.reports[stage].verdict == self.reports[FULL].verdict or _faulty(self.reports[stage])

    def same(self, stage: str) -> bool:
        """Whether a stage shows the full compile's very signature."""
        wanted = self.reports[FULL].verdicts[:1]
        return any(follows(v.signature, own.signature) for v in wanted for own in self.reports[stage].verdicts)

    def alarming(self, stage: str) -> bool:
        """Whether a stage shows a finding where the full compile shows none."""
        return self.reports[stage].verdict in FINDINGS and not self.shown


def _faulty(report: Report) -> bool:
    return report.verdict == "raises" and report.verdicts[0].signature.pattern.startswith(Faulty.__name__)


def measure_stages(
    task: Task,
    programs: int,
    db: Path | None,
    full: str,
    workers: int,
    say: Callable[[str], None],
    chosen: Sequence[str] = tuple(STAGES),
) -> dict[str, Any]:
    """`programs` fresh programs of the task's seed, and all findings of a ledger, at the chosen stages. Raises
    NoMachine.

    full: of which programs the full compile is asked: ALL, SHOWN (those that a stage shows as a finding) or NONE.
    """
    started, names = time.perf_counter(), [*chosen, *([FULL] if full != NONE else [])]
    stored = _stored(db) if db is not None else {}
    with Pool(workers, task.place.devices) as pool:
        stream(pool, run_fresh, at_stage(task, names[0]), range(2 * workers))  # first compiles are another matter
        fresh = _rows(pool, run_fresh, task, {str(n): n for n in range(programs)}, names, say, full == SHOWN)
        known = _rows(pool, run_stored, task, stored, names, say, full == SHOWN)
    return figures(fresh, known, names) | {
        "device": task.place.subject.device,
        "seed": task.seed,
        "seconds": round(time.perf_counter() - started, 1),
    }


def _stored(db: Path) -> dict[str, str]:
    """The minimal programs of a ledger's findings about inductor, by id."""
    with open_store(db, create=False) as store:
        return {found.id: found.program for found in store.list() if found.place.get("backend") == "inductor"}


def _rows(
    pool: Pool,
    function: Callable[[Task, Any], Report],
    task: Task,
    given: Mapping[str, Any],
    names: Sequence[str],
    say: Callable[[str], None],
    only_shown: bool,
) -> list[Row]:
    """Every program at every stage, one stage after the other; in full only what is shown by then, if so asked."""
    found: dict[str, dict[str, Report]] = {what: {} for what in given}
    for name in names if given else ():
        asked = list(given)
        if name == FULL and only_shown:
            asked = [what for what in given if any(r.verdict in FINDINGS for r in found[what].values())]
        reports = stream(pool, function, at_stage(task, name), [given[what] for what in asked])
        for what, (_, report) in zip(asked, reports, strict=True):
            found[what][name] = report
        say(f"{name}: {dict(Counter(report.verdict for _, report in reports))}")
    return [Row(what, reports) for what, reports in found.items()]


def at_stage(task: Task, name: str) -> Task:
    """The task with a stage on trial; the full compile for FULL."""
    subject = task.place.subject
    backend = subject.compiler if name == FULL else f"{subject.compiler}:{name}"
    return replace(task, fresh=True, place=Place(task.place.reference, replace(subject, backend=backend)))


def figures(fresh: Sequence[Row], known: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    """The figures of rows."""
    early = [name for name in names if name != FULL]
    here = [row for row in known if row.shown]
    alarms = [
        {"stage": name, "program": row.what, **_told(row.reports[name])}
        for row in fresh
        for name in early
        if row.alarming(name)
    ]
    return {
        "programs": sum(not row.reports[names[0]].rejected for row in fresh),
        "findings": len(known),
        "shown_here": len(here),
        "stages": {name: _cost(fresh, name) | (_heard(here, name) if name in early else {}) for name in names},
        "fresh_shown": sum(row.shown for row in fresh),
        "fresh_lost": {name: [row.what for row in fresh if row.shown and not row.visible(name)] for name in early},
        "lost": {name: [_loss(row, name) for row in here if not row.visible(name)] for name in early},
        "alarms": alarms,
    }


def _cost(rows: Iterable[Row], name: str) -> dict[str, Any]:
    """What a stage took of the programs that it ran, and why it did not run the others."""
    reports = [row.reports[name] for row in rows if name in row.reports and not row.reports[name].rejected]
    took = [r.milliseconds for r in reports if isinstance(r, StageReport) and r.milliseconds and not r.built]
    why = Counter(report.built for report in reports if report.built)
    return {
        "milliseconds": round(sum(took) / max(len(took), 1)),
        "built_share": round(why.total() / max(len(reports), 1), 4),
        "built": dict(why.most_common()),
        "classes": dict(Counter(report.verdict for report in reports)),
    }


def _heard(here: Sequence[Row], name: str) -> dict[str, Any]:
    """The share of findings that a stage shows, those that it could not run among them."""
    count = max(len(here), 1)
    return {
        "visible_share": round(sum(row.visible(name) for row in here) / count, 4),
        "same_signature_share": round(sum(row.same(name) for row in here) / count, 4),
        "visible_built": sum(row.visible(name) and bool(row.reports[name].built) for row in here),
    }


def _loss(row: Row, name: str) -> dict[str, Any]:
    """A finding that a stage does not show: what the full compile says, and what the stage does."""
    full = row.reports[FULL]
    told = full.verdicts[0] if full.verdicts else None
    return {"finding": row.what, "full": str(told.signature) if told else full.verdict, **_told(row.reports[name])}


def _told(report: Report) -> dict[str, Any]:
    first = report.verdicts[0] if report.verdicts else None
    return {
        "class": report.verdict,
        "detail": first.detail if first else report.rejected,
        "built": report.built,
        "text": report.text,
    }


@click.command("stages")
@click.option(
    "--programs", default=200, show_default=True, type=click.IntRange(0), help="How many fresh programs to draw."
)
@click.option("--findings/--no-findings", default=True, help="Run the ledger's findings too.")
@click.option(
    "--stage",
    "chosen",
    multiple=True,
    type=click.Choice(list(STAGES)),
    help="A stage; repeatable. Default: all stages.",
)
@click.option(
    "--full",
    type=click.Choice([ALL, SHOWN, NONE]),
    default=ALL,
    show_default=True,
    help="Which programs are compiled in full too, to tell what a stage should show: all; those that a stage shows "
    "as a finding, which tells false alarms alone; none.",
)
@seed_option
@device_option
@workers_option
@json_option
def stages_command(
    programs: int, findings: bool, chosen: tuple[str, ...], full: str, seed: int, device: str, workers: int,
    as_json: bool,
) -> None:  # fmt: skip
    """What does each stage of the compiler cost, and which findings of the full compile does it show?

    Fresh programs and stored findings run at every stage.
    """
    ledger = Path(__file__).parents[2] / "findings.db" if findings else None
    task, say = task_on(device, seed=seed), partial(click.echo, err=True)
    print_figures(measure_stages(task, programs, ledger, full, workers, say, chosen or tuple(STAGES)), as_json)
