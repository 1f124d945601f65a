"""What a campaign runs next, and what it learns from each Report: fresh programs, guided ones, or a log's.

A schedule has `submit(pool, task, n)`, for the n-th program, and `learn(n, report)`. Guided choices depend on the order
in which reports arrive, so they are logged: `Again` runs the very programs of a log.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fuzzer.corpus import Corpus
from fuzzer.execution.guide import CANDIDATES, explore_again, explore_heard, explore_rarest
from fuzzer.execution.messages import Report, UsageError
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine, explore
from fuzzer.features import FAMILIES as TRACED
from fuzzer.frontier import STILL
from fuzzer.ops.spec import Limits
from fuzzer.settings import parse_assignment
from fuzzer.structure import FAMILIES as COMPILED

LOG = "choices.jsonl"


@dataclass(frozen=True)
class Guidance:
    """By what a campaign is guided; each level can be switched by itself.

    candidates  drawings of a program: that whose trace is rarest is compiled (tier 0); with 1, the first that is heard.
    credits     families of features: generator knobs, settings profiles and mutators are chosen by what they brought of
                these per CPU second. With none nothing is chosen so.
    mutation    the largest share of candidates that are mutants of kept programs.
    """

    candidates: int = CANDIDATES
    credits: tuple[str, ...] = ()
    mutation: float = 0.0


LINES: tuple[str, ...] = ()
# What is compared (docs/guidance.md); each has what stands before it and one level more.
ARMS: dict[str, Guidance] = {
    "blind": Guidance(candidates=1),
    "trace": Guidance(),
    "compile": Guidance(credits=(*TRACED, *COMPILED)),
    "lines": Guidance(credits=(*TRACED, *COMPILED, *LINES)),
    "mutation": Guidance(credits=(*TRACED, *COMPILED, *LINES), mutation=0.75),
}
SHIPPED = "trace"  # measured: docs/guidance.md


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
    novelty of each), how many features were new, and the class of its trial. What shows something new is kept in the
    corpus. first: the number of the first program.
    """

    def __init__(self, task: Task, folder: Path, corpus: Corpus, guidance: Guidance = ARMS[SHIPPED], first: int = 0):
        self.corpus, self.guidance, self.first = corpus, guidance, first
        self.drawn_from = drawn_from(task) | {"guidance": asdict(guidance)}
        self.families = families(task.place.subject.backend)
        self.pending: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / LOG).open("w")
        self._write(self.drawn_from)
        self.next = first
        self._save()

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        number = self.first + n
        self.next = number + 1
        self.pending.add(number)
        explored = explore_heard if self.guidance.candidates == 1 else explore_rarest
        return pool.submit(explored, task, (number, self.corpus.seen.packed()))

    def learn(self, n: int, report: Report) -> None:
        number, new = self.first + n, self.corpus.learn(report)
        self.pending.discard(number)
        scores = [score if score is None else round(score, 4) for score in report.scores]
        row = {"index": number, "candidate": report.candidate, "novelty": scores, "new": new, "class": report.verdict}
        # without scores: the worker died and told only its program
        self._write(row if scores else row | {"text": report.text})
        if self.corpus.frontier.programs % SAVED_EVERY == 0:
            self._save()

    def told(self) -> str:
        frontier = self.corpus.frontier
        still, silent = frontier.still(self.families), frontier.silent(self.families)
        flat = f", none new in {STILL} programs: {' '.join(still)}" if still else ""
        blind = f", none at all: {' '.join(silent)} (backfuzz doctor)" if silent else ""
        return f"{len(frontier.best)} features, {len(self.corpus.kept)} programs kept{flat}{blind}"

    def close(self) -> None:
        self._save()
        self.log.close()

    def _save(self) -> None:
        """What is still running is run again by who goes on."""
        self.corpus.save({**self.drawn_from, "next": min(self.pending, default=self.next)})

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


def families(backend: str) -> tuple[str, ...]:
    """The families of features that a backend shows."""
    return (*TRACED, *COMPILED) if backend == "inductor" else TRACED


# A program's number and its candidate's; or its text, where its worker died.
Chosen = tuple[int, int] | str


class Again(Unlearned):
    """The programs that a log names, in its order."""

    def __init__(self, chosen: list[Chosen]):
        self.chosen = chosen

    def submit(self, pool: Pool, task: Task, n: int) -> Future[Report]:
        chosen = self.chosen[n]
        return pool.submit(examine if isinstance(chosen, str) else explore_again, task, chosen)


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
    saved = state["guidance"]
    return Guidance(**saved | {"credits": tuple(saved["credits"])})


def _kind_of_device(task: Task) -> str:
    return task.place.subject.device.split(":")[0]


def read_log(path: Path, task: Task) -> tuple[Task, list[Chosen]]:
    """The task with what the log's programs were drawn from, and what was chosen. Raises UsageError."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        known = drawing_from(task, head)
        chosen = [row.get("text") or (row["index"], row["candidate"]) for row in rows]
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a log of choices ({LOG} in a campaign's folder): {error!r}") from None
    return known, chosen
