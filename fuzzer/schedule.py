"""What a campaign runs next, and what it learns from each Report: fresh programs, guided ones, or a log's.

A schedule has `submit(pool, task, n)`, for the n-th program, and `learn(n, report)`. Guided choices depend on the order
in which reports arrive, so they are logged: `Again` runs the very programs of a log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from fuzzer.corpus import Corpus
from fuzzer.execution.guide import Chosen, Offer, explore_again, explore_heard, explore_rarest
from fuzzer.execution.messages import Report, UsageError
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import REDRAWS, Task, explore
from fuzzer.features import FAMILIES as TRACED
from fuzzer.features import LINES
from fuzzer.frontier import STILL
from fuzzer.guidance import ARMS, SHIPPED, Guidance, Offers
from fuzzer.knobs import Knobs
from fuzzer.ops.spec import Limits
from fuzzer.settings import parse_assignment
from fuzzer.structure import FAMILIES as COMPILED

LOG, CREDITS = "choices.jsonl", "credits.json"


class Schedule(Protocol):
    """What a campaign asks for its programs."""

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]: ...

    def learn(self, n: int, report: Report) -> None: ...

    def told(self) -> str:
        """What it has learned, for the campaign's line; "" where it learns nothing."""
        ...

    def close(self) -> None: ...


class Unlearned:
    """A schedule that learns nothing."""

    def learn(self, n: int, report: Report) -> None:
        return None

    def told(self) -> str:
        return ""

    def close(self) -> None:
        return None


class Fresh(Unlearned):
    """Program n of the seed: the same programs with any number of workers."""

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        return pool.submit(explore, task, n)


SAVED_EVERY = 32  # programs


class Guided:
    """Programs chosen by what was seen so far, as its Guidance says.

    The log holds a line with what all programs were drawn from, then one for each program: which candidate, why (the
    novelty of each), how it was made, how many features were new, CPU seconds, and the class of its trial. What shows
    something new is kept in the corpus; what choices brought is written into the log's folder.

    state   of the campaign that this one goes on with (`Corpus.state`).
    """

    def __init__(
        self,
        task: Task,
        folder: Path,
        corpus: Corpus,
        guidance: Guidance = ARMS[SHIPPED],
        state: Mapping[str, Any] | None = None,
    ):
        first = state["next"] if state else 0
        self.corpus, self.guidance, self.first, self.folder = corpus, guidance, first, folder
        self.drawn_from = drawn_from(task) | {"guidance": asdict(guidance), "lines": task.lines}
        self.families, self.lines = families(task.place.subject.backend), task.lines
        rng = random.Random(f"{task.seed}/{first}/offers")
        self.offers = Offers(guidance, corpus, rng, task.limits.dtypes, task.ops)
        if state:
            try:
                self.offers.restore(state["offers"])
            except KeyError as error:
                raise UsageError(
                    f"the corpus is an older backfuzz's, without {error}; fuzz without --resume begins anew"
                ) from None
        self.pending: dict[int, tuple[Offer, ...]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / LOG).open("w")
        self._write(self.drawn_from)
        self.next = first
        self._save()

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        number, counts, task = self.first + n, self.corpus.seen.packed(), replace(task, campaign=self.folder.name)
        self.next = number + 1
        if self.guidance == ARMS["blind"]:
            self.pending[number] = (Offer(),) * (REDRAWS + 1)
            return pool.submit(explore_heard, task, (number, counts))
        self.pending[number] = self.offers.made()
        return pool.submit(explore_rarest, task, (number, counts, self.pending[number]))

    def learn(self, n: int, report: Report) -> None:
        number, new = self.first + n, self.corpus.learn(report)
        offers = self.pending.pop(number)
        self.offers.learn(offers, report, new)
        self._write(logged(number, offers[report.candidate], report, new.total()))
        if self.corpus.frontier.programs % SAVED_EVERY == 0:
            self._save()

    def told(self) -> str:
        frontier = self.corpus.frontier
        still = frontier.still(self.families)
        silent = frontier.silent(self.families) + (frontier.silent(LINES, self.lines) if self.lines else [])
        reached = sum(frontier.families[family] for family in LINES)
        kept = f"{len(frontier.best) - reached} features, {len(self.corpus.kept)} programs kept{self._lines(reached)}"
        flat = f", none new in {STILL} programs: {' '.join(still)}" if still else ""
        blind = f", none at all: {' '.join(silent)} (backfuzz doctor)" if silent else ""
        return kept + flat + blind + self.offers.unearned()

    def _lines(self, reached: int) -> str:
        frontier = self.corpus.frontier
        dried = any(frontier.dried_up(family, self.lines) for family in LINES) if self.lines else False
        since = f" (none new since program {max(frontier.moved[f] for f in LINES)})" if dried else ""
        return f", {reached} lines of the compiler{since}" if reached else ""

    def close(self) -> None:
        self._save()
        self.log.close()
        (self.folder / CREDITS).write_text(json.dumps(self.offers.table(), indent=1))

    def _save(self) -> None:
        """What is still running is run again by who goes on."""
        state = self.offers.state()
        self.corpus.save({**self.drawn_from, "next": min(self.pending, default=self.next), "offers": state})

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


def logged(number: int, offer: Offer, report: Report, new: int) -> dict[str, Any]:
    """A program's row of the log: what it takes to run it again, why it was chosen, and what it brought and cost.

    It has the text where the program is a mutant, or its worker died, which tells nothing else.
    """
    scores = [score if score is None else round(score, 4) for score in report.scores]
    row: dict[str, Any] = {"index": number, "candidate": report.candidate, "novelty": scores, "new": new}
    row |= {"cpu": round(report.seconds.get("cpu", 0.0), 3), "class": report.verdict}
    if not scores:
        return row | {"text": report.text}
    if offer.parent:
        return row | {"mutator": offer.mutator, "text": report.text}
    return row | {"knobs": turned} if (turned := offer.knobs.turned()) else row


def chosen(row: dict[str, Any]) -> Chosen | None:
    """The program of a row; None where every candidate was refused, or the worker died before it told one."""
    text = row.get("text", "")
    if not text and all(score is None for score in row["novelty"]):
        return None
    return Chosen(row["index"], row["candidate"], Knobs(**row.get("knobs", {})), text)


def families(backend: str) -> tuple[str, ...]:
    """The families of features that a backend shows."""
    return (*TRACED, *COMPILED) if backend == "inductor" else TRACED


class Again(Unlearned):
    """The programs that a log names, in its order."""

    def __init__(self, chosen: list[Chosen]):
        self.chosen = chosen

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        return pool.submit(explore_again, task, self.chosen[n])


def drawn_from(task: Task) -> dict[str, Any]:
    """What a task's programs are drawn from, beside their numbers."""
    fixed = [f"{name}={value!r}" for name, value in task.fixed]
    drawn: dict[str, Any] = {"seed": task.seed, "limits": asdict(task.limits), "ops": task.ops, "routes": task.routes}
    return drawn | {"fixed": fixed, "device": _kind_of_device(task)}


def drawing_from(task: Task, drawn: dict[str, Any]) -> Task:
    """The task with what programs were drawn from. Raises UsageError where that was another kind of device."""
    if drawn["device"] != _kind_of_device(task):
        raise UsageError(f"the programs were drawn for {drawn['device']}, not {_kind_of_device(task)}: --device")
    bounds: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in drawn["limits"].items()}
    task = replace(
        task, seed=drawn["seed"], limits=Limits(**bounds), fixed=tuple(map(parse_assignment, drawn["fixed"]))
    )
    return replace(task, ops=tuple(drawn["ops"]), routes=tuple(drawn["routes"]))


def guidance_from(state: dict[str, Any]) -> Guidance:
    """The guidance that was saved."""
    saved = state.get("guidance")
    if saved is None:
        raise UsageError("the corpus is an older backfuzz's, without what guided it; fuzz without --resume begins anew")
    return Guidance(**saved | {"credits": tuple(saved["credits"])})


def _kind_of_device(task: Task) -> str:
    return task.place.subject.device.split(":")[0]


def read_log(path: Path, task: Task) -> tuple[Task, list[Chosen]]:
    """The task with what the log's programs were drawn from, and what was chosen. Raises UsageError."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        known = drawing_from(task, head)
        found = [one for one in map(chosen, rows) if one]
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a log of choices ({LOG} in a campaign's folder): {error!r}") from None
    return known, found
