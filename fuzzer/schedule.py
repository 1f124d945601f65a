"""What a campaign runs next, and what it learns from each Report: fresh programs, the rarest of several, or a log's.

A schedule has `submit(pool, task, n)`, for the n-th program, and `learn(n, report)`. Guided choices depend on the order
in which reports arrive, so they are logged: `Again` runs the very programs of a log.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from fuzzer.execution.guide import explore_again, explore_rarest
from fuzzer.execution.messages import Report, UsageError
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine, explore
from fuzzer.frontier import Seen
from fuzzer.ops.spec import Limits
from fuzzer.settings import parse_assignment

LOG = "choices.jsonl"


class Schedule(Protocol):
    """What a campaign asks for its programs."""

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]: ...

    def learn(self, n: int, report: Report) -> None: ...


class Fresh:
    """Program n of the seed: the same programs with any number of workers."""

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        return pool.submit(explore, task, n)

    def learn(self, n: int, report: Report) -> None:
        return None


class Rarest:
    """Of several drawings of program n, the one whose trace is rarest among those that were compiled so far.

    The log holds a line with what all programs were drawn from, then one for each program: which candidate, why (the
    novelty of each), and the class of its trial.
    """

    def __init__(self, task: Task, folder: Path):
        self.seen = Seen()
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / LOG).open("w")
        self._write(drawn_from(task))

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        return pool.submit(explore_rarest, task, (n, bytes(self.seen)))

    def learn(self, n: int, report: Report) -> None:
        self.seen.add(report.features)
        scores = [score if score is None else round(score, 4) for score in report.scores]
        row = {"index": n, "candidate": report.candidate, "novelty": scores, "class": report.verdict}
        self._write(
            row if scores else row | {"text": report.text}
        )  # without: the worker died and told only its program

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


# A program's number and its candidate's; or its text, where its worker died.
Chosen = tuple[int, int] | str


class Again:
    """The programs that a log names, in its order."""

    def __init__(self, chosen: list[Chosen]):
        self.chosen = chosen

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        chosen = self.chosen[n]
        return pool.submit(examine if isinstance(chosen, str) else explore_again, task, chosen)

    def learn(self, n: int, report: Report) -> None:
        return None


def drawn_from(task: Task) -> dict[str, Any]:
    """What a task's programs are drawn from, beside their numbers."""
    fixed = [f"{name}={value!r}" for name, value in task.fixed]
    drawn: dict[str, Any] = {"seed": task.seed, "limits": asdict(task.limits), "ops": task.ops, "routes": task.routes}
    return drawn | {"fixed": fixed, "device": _kind_of_device(task)}


def _kind_of_device(task: Task) -> str:
    return task.place.subject.device.split(":")[0]


def read_log(path: Path, task: Task) -> tuple[Task, list[Chosen]]:
    """The task with what the log's programs were drawn from, and what was chosen. Raises UsageError."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        bounds: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in head["limits"].items()}
        known = replace(
            task, seed=head["seed"], limits=Limits(**bounds), ops=tuple(head["ops"]), routes=tuple(head["routes"])
        )
        known = replace(known, fixed=tuple(map(parse_assignment, head["fixed"])))
        chosen = [row.get("text") or (row["index"], row["candidate"]) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a log of choices ({LOG} in a campaign's folder): {error!r}") from None
    if head["device"] != _kind_of_device(task):
        raise UsageError(f"{path}: its programs were drawn for {head['device']}, not {_kind_of_device(task)}: --device")
    return known, chosen
