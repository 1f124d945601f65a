"""Campaigns that mutate programs that they kept. Choices depend on the order in which Reports arrive, so they are
logged: `FromLog` runs the programs of a log again."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.plan import MUTANTS
from fuzzer.campaign.schedule import BySeedWithCorpus, WithoutFeedback, restore_drawing_settings, submit_numbers
from fuzzer.coverage.frontier import KeptProgram
from fuzzer.generation.mutate import MUTATOR_NAMES
from fuzzer.language.errors import UsageError
from fuzzer.language.text import ParseError, parse
from fuzzer.trial.origin import Mutation
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

LOG_FILE = "choices.jsonl"
SHARE = 0.5  # of the programs are mutants; the others are fresh, so that there are parents that nothing was bred for
_DONORS = 3  # kept programs, the smallest of which is the donor: few mutants that it makes large are in the domain


class Choice(NamedTuple):
    """How a program is to be made: a mutator's name, and two kept programs."""

    mutator: str
    parent: KeptProgram
    donor: KeptProgram


class ByMutation(BySeedWithCorpus):
    """Fresh programs of the seed, and mutants of programs that were kept.

    Seed and number decide whether a program is a mutant, and by which mutator. The choice of the parent also depends
    on the programs that are kept at that time: a feature is drawn, each as likely, and its smallest program taken.

    The log, in `folder`, holds a line with the settings that programs are drawn from, then one for each program: its
    number, class, stage, new features and CPU seconds; of a mutant also its mutator, text and parents' ids.
    """

    def __init__(self, task: Task, folder: Path, corpus: Corpus, state: Mapping[str, Any] | None = None):
        super().__init__(task, corpus, state)
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / LOG_FILE).open("w")
        self._write(self.drawing)

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        own = tuple(map(self.number, numbers))
        # who runs again, since a worker died, stays as it was chosen
        self.pending |= {number: self.choose(number) for number in own if number not in self.pending}
        chosen = {number: choice for number in own if (choice := self.pending[number])}
        made = {number: self._mutation(choice) for number, choice in chosen.items()}
        return submit_numbers(pool, self.task_with_features(task), own, made)

    def choose(self, number: int) -> Choice | None:
        """How program `number` is made of those that are kept by now; None: it is fresh."""
        rng, frontier = random.Random(f"{self.drawing['seed']}/{number}/mutation"), self.corpus.frontier
        if rng.random() >= SHARE or not frontier.features:
            return None
        mutator, donors = rng.choice(MUTATOR_NAMES), rng.choices(self.corpus.kept, k=_DONORS)
        return Choice(mutator, frontier.best[rng.choice(frontier.features)], min(donors))

    def _mutation(self, choice: Choice) -> Mutation:
        return Mutation(choice.mutator, self.corpus.text(choice.parent), self.corpus.text(choice.donor))

    def learn(self, n: int, report: Report) -> None:
        number = self.number(n)
        choice = self.pending.pop(number)
        self._write(_row(number, choice, report, sum(self.keep(report).values())))

    def close(self) -> None:
        super().close()
        self.log.close()

    def state(self) -> dict[str, Any]:
        return {"guidance": MUTANTS}

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


def _row(number: int, choice: Choice | None, report: Report, new: int) -> dict[str, Any]:
    """A program's row of the log: with its text where its number does not say it, or its worker died, which leaves
    nothing else; new: features."""
    died = not report.seconds
    row: dict[str, Any] = {"number": number, "class": report.verdict, "stage": report.stage, "new": new}
    row |= {"cpu": round(report.seconds.get("cpu", 0.0), 3)}
    if choice and (died or report.mutator):  # else no mutant came of it, and the program is fresh
        row |= {"mutator": choice.mutator, "parent": choice.parent.id, "donor": choice.donor.id}
    return row | {"text": report.text} if died or report.mutator else row


class Logged(NamedTuple):
    """A program of a log: its number, and its text where the number does not say it."""

    number: int
    text: str = ""


class FromLog(WithoutFeedback):
    """The programs that a log names, in its order."""

    def __init__(self, logged: list[Logged]):
        self.logged = logged

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        rows = [self.logged[n] for n in numbers]
        texts = {row.number: row.text for row in rows if row.text}
        return submit_numbers(pool, task, [row.number for row in rows], texts)


def read_log(path: Path, task: Task) -> tuple[Task, list[Logged]]:
    """The task with the settings that the log's programs were drawn from, and the programs. Raises UsageError."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        known = restore_drawing_settings(task, head)
        logged = [Logged(row["number"], row.get("text", "")) for row in rows]
        for text in {row.text for row in logged} - {""}:
            parse(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UsageError) and not isinstance(error, ParseError):
            raise
        raise UsageError(f"{path}: not a log of choices ({LOG_FILE} in a campaign's folder): {error!r}") from None
    return known, logged
