"""What a campaign runs next, and what it learns from each Report.

A schedule has `submit(pool, task, n)`, for the n-th program or several in a batch, and `learn(n, report)`. Those here
draw blindly: program n is that of its number, whatever others showed. `mutants` holds the one that chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Any, Protocol

from fuzzer.campaign.corpus import Corpus
from fuzzer.coverage.features import LINES, TRACE_FAMILIES
from fuzzer.coverage.frontier import STALL_PROGRAMS
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.language.errors import UsageError
from fuzzer.language.ops.spec import Limits
from fuzzer.language.settings import parse_assignment
from fuzzer.trial.batch import Batch, explore_batch
from fuzzer.trial.origin import ALL_DRAWN, Origin, explore_from
from fuzzer.trial.tasks import explore
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool


class Schedule(Protocol):
    """What a campaign asks for its programs."""

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        """Begin these programs, one or several: `Pool.results` gives their Reports, in order."""
        ...

    def learn(self, n: int, report: Report) -> None: ...

    def progress(self) -> str:
        """What it has learned, for the campaign's line; "" where it learns nothing."""
        ...

    def features(self) -> Mapping[str, int]:
        """How many features were seen, by family; empty where it learns nothing."""
        ...

    def plateau(self) -> bool:
        """Whether no family of features grows any more; False where it learns nothing, or no more."""
        ...

    def full(self) -> bool:
        """Whether it learns no more, because it keeps as much as it may."""
        ...

    def close(self) -> None: ...


class WithoutFeedback:
    """A schedule that learns nothing."""

    def learn(self, n: int, report: Report) -> None:
        return None

    def progress(self) -> str:
        return ""

    def features(self) -> Mapping[str, int]:
        return {}

    def plateau(self) -> bool:
        return False

    def full(self) -> bool:
        return False

    def close(self) -> None:
        return None


class BySeed(WithoutFeedback):
    """Program n of the seed: the same programs with any number of workers."""

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        return submit_numbers(pool, task, numbers)


def submit_numbers(
    pool: Pool, task: Task, numbers: Sequence[int], origins: Mapping[int, Origin] = ALL_DRAWN
) -> Future[Any]:
    """Begin the programs of these numbers of the task's seed, several as a batch; origins: by number, of those that are
    not drawn."""
    if len(numbers) > 1:
        return pool.submit(
            explore_batch, task, Batch(tuple(numbers), pool.deadline, origins), len(numbers), behind=True
        )
    (number,) = numbers
    if number in origins:
        return pool.submit(explore_from, task, (number, origins[number]), behind=True)
    return pool.submit(explore, task, number, behind=True)


class BySeedWithCorpus(WithoutFeedback):
    """Program n of the seed; what shows something new is kept in a corpus, and where to go on is written down there.

    state   of the campaign that this one goes on with (`Corpus.state`).
    """

    def __init__(self, task: Task, corpus: Corpus, state: Mapping[str, Any] | None = None):
        # what was under way comes first, then the next number
        self.again: list[int] = sorted(state.get("pending", ())) if state else []
        self.first: int = state["next"] if state else 0
        self.corpus = corpus
        self.families, self.lines = _families(task.place.subject.backend), task.lines
        self.drawing = drawing_settings(task) | {"lines": task.lines}
        self.pending: dict[int, Any] = {}
        self.next, self.begun = self.first, 0
        self.save()

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        self.pending |= dict.fromkeys(map(self.number, numbers))
        return submit_numbers(pool, self.task_with_features(task), list(map(self.number, numbers)))

    def number(self, n: int) -> int:
        """The number of this campaign's n-th program."""
        self.begun = max(self.begun, n + 1)
        if n < len(self.again):
            return self.again[n]
        number = self.first + n - len(self.again)
        self.next = max(self.next, number + 1)
        return number

    def task_with_features(self, task: Task) -> Task:
        """The task, with features told. A worker tells a corpus each line of the compiler once."""
        return replace(task, features=True, campaign=str(self.corpus.folder))

    def learn(self, n: int, report: Report) -> None:
        self.pending.pop(self.number(n))
        self.keep(report)

    def keep(self, report: Report) -> Mapping[str, int]:
        """Count a program into the corpus. How many features were new, by family."""
        new = self.corpus.learn(report)
        self.save()
        return new

    def progress(self) -> str:
        frontier = self.corpus.frontier
        still = frontier.stalled(self.families)
        silent = frontier.absent(self.families) + (frontier.absent(LINES, self.lines) if self.lines else [])
        reached = sum(frontier.families[family] for family in LINES)
        kept = f"{len(frontier.best) - reached} features, {len(self.corpus.kept)} programs kept{self._lines(reached)}"
        if self.corpus.full:
            return f"{kept}, and no more will be: --resume with a larger --keep, or backfuzz cmin before it, makes room"
        flat = f", none new in {STALL_PROGRAMS} programs: {' '.join(still)}" if still else ""
        return kept + flat + (f", none at all: {' '.join(silent)} (backfuzz doctor)" if silent else "")

    def features(self) -> Mapping[str, int]:
        return self.corpus.frontier.families

    def plateau(self) -> bool:
        frontier = self.corpus.frontier
        known = [family for family in self.families if family in frontier.last_new]
        return bool(known) and not self.full() and all(frontier.saturated(family) for family in known)

    def full(self) -> bool:
        return self.corpus.full

    def _lines(self, reached: int) -> str:
        frontier = self.corpus.frontier
        dried = any(frontier.saturated(family, self.lines) for family in LINES) if self.lines else False
        since = f" (none new since program {max(frontier.last_new[f] for f in LINES)})" if dried else ""
        return f", {reached} lines of the compiler{since}" if reached else ""

    def close(self) -> None:
        self.save()

    def save(self) -> None:
        """Write down where to go on: what is still running is run again by who does."""
        under_way = sorted({*self.pending, *self.again[self.begun :]})
        self.corpus.save({**self.drawing, "next": self.next, "pending": under_way, **self.state()})

    def state(self) -> dict[str, Any]:
        """What this schedule needs to go on, beside what programs are drawn from and the next number."""
        return {}


def _families(backend: str) -> tuple[str, ...]:
    """The families of features that a backend shows."""
    return (*TRACE_FAMILIES, *COMPILED_FAMILIES) if backend == "inductor" else TRACE_FAMILIES


def drawing_settings(task: Task) -> dict[str, Any]:
    """What a task's programs are drawn from, beside their numbers."""
    fixed = [f"{name}={value!r}" for name, value in task.fixed]
    drawn: dict[str, Any] = {"seed": task.seed, "limits": asdict(task.limits), "ops": task.ops, "routes": task.routes}
    return drawn | {
        "fixed": fixed,
        "staged": task.staged,
        "forward": task.forward,
        "cells": task.cells,
        "device": _kind_of_device(task),
    }


def restore_drawing_settings(task: Task, drawn: dict[str, Any]) -> Task:
    """The task with what programs were drawn from. Raises UsageError where that was another kind of device."""
    if drawn["device"] != _kind_of_device(task):
        raise UsageError(f"the programs were drawn for {drawn['device']}, not {_kind_of_device(task)}: --device")
    bounds: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in drawn["limits"].items()}
    fixed = tuple(map(parse_assignment, drawn["fixed"]))
    task = replace(task, seed=drawn["seed"], limits=Limits(**bounds), fixed=fixed, staged=drawn.get("staged", 0.0))
    task = replace(task, cells=drawn.get("cells", False), forward=drawn.get("forward", 0.0))
    return replace(task, ops=tuple(drawn["ops"]), routes=tuple(drawn["routes"]))


def _kind_of_device(task: Task) -> str:
    return task.place.subject.device.split(":")[0]
