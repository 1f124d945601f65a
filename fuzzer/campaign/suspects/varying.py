"""The scope of a fault, measured: neighbours of a finding's natural program run on the pool.

They run at the cheapest stage of the compiler that reproduces the finding. Some of those that fail there are then
compiled in full, so that each axis has been seen in code.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace

import torch

from fuzzer.campaign.suspects.growing import alike, visible_error
from fuzzer.diagnosis.measure import measure
from fuzzer.judgement.trial import Place
from fuzzer.judgement.verdict import ELEMENTS, FINDINGS, SUMS, WORST, Finding, Signature, Verdict, follows
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.text import parse, show
from fuzzer.ledger.scope import AGREES, FAILS, OTHER, PROGRAM, UNSAID, Row, Scope
from fuzzer.stages import STAGES, cannot_run
from fuzzer.trial.tasks import record_values
from fuzzer.trial.verify import ask
from fuzzer.workers.accelerator import default_device_type
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from minimizer.neighbours import AXES, SHAPES, Axis, Neighbour, changed, neighbours, numbers, setting, size
from minimizer.reduce import typed

_MOST_BUILT = 8
_NO_TIME = "no time was left"
_WIDTH = 120  # characters of a reason
_Asked = tuple[Task, Neighbour]


def vary(finding: Finding, task: Task, pool: Pool, created: str, seconds: float) -> Scope | None:
    """The scope of the finding's fault here and now: of its natural program, or of the minimal one where only that
    reproduces it. None where neither does.

    task, pool   where the finding reproduces; the pool has the devices of `other_devices` too.
    created      the time that the ledger keeps.  seconds  after which no further neighbour is waited for.
    """
    until = time.monotonic() + seconds
    for shown in (finding.grown, finding)[: 1 if finding.grown is finding else 2]:
        found = typed(parse(shown.program))
        if found is None:
            continue
        measuring = _Measuring(shown.signature, found[0], replace(task, fresh=True), pool, until)
        if measuring.start():
            where = task.place.subject
            rows = measuring.run()
            stage = measuring.stage.place.subject.stage
            return Scope(finding.id, torch.__version__.split("+")[0], where.device.split(":")[0], stage, created, rows)
    return None


def other_devices(place: Place) -> list[str]:
    """The types of device at hand beside that of both sides; none where these differ."""
    own = {device.split(":")[0] for device in place.devices}
    return [name for name in dict.fromkeys(("cpu", default_device_type())) if name not in own] if len(own) == 1 else []


@dataclass
class _Measuring:
    """One program's neighbours: what is known of them so far."""

    signature: Signature
    program: Program
    task: Task
    pool: Pool
    until: float

    def start(self) -> bool:
        """Whether the program reproduces the finding here; chooses the stage for its neighbours."""
        itself = Neighbour(PROGRAM, "itself", self.program)
        backend = self.task.place.subject.backend
        stages = [replace(self.task, place=self.task.place.at(s)) for s in STAGES] if backend == "inductor" else []
        told = list(self.ask([(task, itself) for task in (*stages, self.task)]))
        self.stage = next(
            (task for task, row in zip(stages, told, strict=False) if row.outcome == FAILS and not row.built), self.task
        )
        self.rows, self.slow = [told[-1]], list[_Asked]()  # what no stage can run comes last
        return told[-1].outcome == FAILS

    def run(self) -> tuple[Row, ...]:
        """The rows of all neighbours, those of one axis together."""
        self.rows += self.along(self.program, AXES)
        there = [Neighbour("device", name, self.program) for name in other_devices(self.task.place)]
        self.rows += self.ask([(replace(self.stage, place=_on(self.stage.place, n.value)), n) for n in there])
        base = self.telling()
        if base is not None:
            self.rows += self.along(base, (size,))
        self.build()
        self.rows += self.ask(self.slow)
        order = [PROGRAM, *(axis.__name__ for axis in AXES), "device"]
        return tuple(sorted(self.rows, key=lambda row: order.index(row.axis)))

    def along(self, program: Program, axes: Iterable[Axis]) -> list[Row]:
        """The rows of a program's neighbours; of shapes only those that eager runs, and none twice."""
        told = [row.numbers for row in self.rows if row.axis in (PROGRAM, *SHAPES)]
        found = neighbours(program, axes, self.runs)
        fresh = [n for n in found if n.axis not in SHAPES or "=" not in n.value or numbers(n.program) not in told]
        slow = [n for n in fresh if self.stage is not self.task and cannot_run(n.program)]
        self.slow += [(self.stage, n) for n in slow]
        rows = self.ask([(self.stage, n) for n in fresh if n not in slow and self.acts(n)])
        kept = [row for row in rows if row.axis not in SHAPES or row.outcome != UNSAID or row.why == _NO_TIME]
        return kept if program is self.program else [_named(row, numbers(self.program)) for row in kept]

    def acts(self, neighbour: Neighbour) -> bool:
        """Whether a neighbour is one for the backend on trial."""
        compiler = self.task.place.subject.compiler
        if neighbour.axis == setting.__name__:
            return compiler == "inductor" or not neighbour.value.startswith("inductor.")
        backends = ROUTES[neighbour.program.route.name].backends
        return not backends or compiler in backends

    def telling(self) -> Program | None:
        """A program whose ratio a formula can use, where that of this program is zero or missing; else None."""
        if any(ratio for ratio in self.rows[0].ratios.values()):
            return None
        rows = (row for row in self.rows if row.axis in SHAPES and row.outcome == FAILS)
        return next((parse(row.program) for row in rows if any(r not in (0, 1) for r in row.ratios.values())), None)

    def runs(self, batch: Sequence[Program]) -> list[bool]:
        """Which of these programs eager runs."""
        asked = [ask(self.pool, record_values, self.task, program) for program in batch]
        wait(asked)
        reports = [self.pool.result(future, self.task) for future in asked]
        return [not report.rejected and not report.verdicts for report in reports]

    def build(self) -> None:
        """Build what fails at a stage: every dtype, a device, and the first of every other axis and of those shapes
        that have a ratio. What then shows nothing agrees."""
        if self.stage is self.task:
            return
        wanted: list[int] = []
        axes = set[str]()
        for i, row in enumerate(self.rows):
            if row.outcome == FAILS and not row.built and (row.axis in ("dtype", "device") or row.axis not in axes):
                axes.add(row.axis)
                wanted.append(i)
        telling = [i for i, row in enumerate(self.rows) if row.axis in SHAPES and any(row.ratios.values())]
        chosen = list(dict.fromkeys([*telling[-1:], *wanted]))[:_MOST_BUILT]
        rows = [self.rows[i] for i in chosen]
        asked = [(self.built(row), Neighbour(row.axis, row.value, parse(row.program))) for row in rows]
        for i, row in zip(chosen, self.ask(asked), strict=True):
            if row.outcome in (FAILS, OTHER):
                self.rows[i] = row
            elif row.outcome == AGREES:
                self.rows[i] = replace(row, why="a stage shows it, and what is built does not")

    def built(self, row: Row) -> Task:
        """The task that builds a row's program."""
        return replace(self.task, place=_on(self.task.place, row.value)) if row.axis == "device" else self.task

    def ask(self, asked: Sequence[_Asked]) -> list[Row]:
        """A row for each, as far as time allows."""
        futures = [ask(self.pool, measure, task, n.program) for task, n in asked]
        rows: list[Row] = []
        for (task, neighbour), future in zip(asked, futures, strict=True):
            wait([future], timeout=max(0.0, self.until - time.monotonic()))
            if future.done():
                rows.append(self.row(neighbour, self.pool.result(future, task), task))
            else:
                rows.append(_row(neighbour, UNSAID, _NO_TIME))
        left = [future for future in futures if not future.done()]
        if left:
            self.pool.abandon(left)
        return rows

    def row(self, neighbour: Neighbour, report: Report, task: Task) -> Row:
        built = bool(report.built) or not task.place.subject.stage
        verdict = next((v for v in report.verdicts if _shows(self.signature, v.signature)), None)
        if report.rejected:
            return _row(neighbour, UNSAID, report.rejected)
        if verdict is None:
            other = next((v for v in report.verdicts if v.signature.verdict in FINDINGS), None)
            told = (AGREES, "") if other is None else (OTHER, f"{other.signature.verdict}, {other.detail}")
            return replace(_row(neighbour, *told), built=built)
        return replace(_failing(neighbour, verdict, report), built=built)


def _shows(own: Signature, shown: Signature) -> bool:
    if follows(own, shown) or alike(own, shown):
        return True
    # where one graph holds both directions, what raised in the forward raises in the backward
    return own.verdict == "raises" and replace(shown, direction=own.direction) == own


def _row(neighbour: Neighbour, outcome: str, why: str = "") -> Row:
    program, reason = neighbour.program, " ".join(why.split())[:_WIDTH]
    return Row(neighbour.axis, neighbour.value, outcome, show(program), reason, numbers=numbers(program))


def _failing(neighbour: Neighbour, verdict: Verdict, report: Report) -> Row:
    row = _row(neighbour, FAILS)
    if not verdict.comparisons:
        return row
    row = replace(row, error=visible_error(verdict, neighbour.program))
    worst = verdict.comparisons[0]
    kinds = {key.removeprefix(f"{worst.name} "): note for key, note in report.notes.items()}
    found = {kind: float(note) for kind, note in kinds.items() if kind in (ELEMENTS, SUMS, WORST)}
    return replace(row, eager=worst.eager, compiled=worst.compiled, ratios=found)


def _named(row: Row, before: dict[str, int]) -> Row:
    return replace(row, value=changed(before, row.numbers))


def _on(place: Place, device: str) -> Place:
    return Place(replace(place.reference, device=device), replace(place.subject, device=device))
