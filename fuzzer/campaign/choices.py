"""The log of a campaign's choices, and the programs of a log again.

Which programs are kept depends on the order in which Reports arrive, and so do mutants of them: they are logged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from fuzzer.campaign.schedule import WithoutFeedback, restore_drawing_settings, submit_numbers
from fuzzer.language.errors import UsageError
from fuzzer.language.text import ParseError, parse
from fuzzer.trial.origin import Mutation
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

LOG_FILE = "choices.jsonl"


class Choice(NamedTuple):
    """How a program is to be made, and where its parents come from.

    source  AROUND or MUTANTS.  parent  a cause, or the id of a kept program;  donor  the id of another.
    """

    source: str
    mutation: Mutation
    parent: str
    donor: str = ""


class ChoiceLog:
    """A line with the settings that programs are drawn from, then one for each program: its number, class, stage, new
    features and CPU seconds; of a mutant also its source, mutator, text and parents."""

    def __init__(self, folder: Path, drawing: Mapping[str, Any]):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / LOG_FILE).open("w")
        self._write(dict(drawing))

    def note(self, number: int, choice: Choice | None, report: Report, new: int) -> None:
        """Write a program's line: with its text where its number does not say it, or its worker died, which leaves
        nothing else; new: features."""
        died = not report.seconds
        row: dict[str, Any] = {"number": number, "class": report.verdict, "stage": report.stage, "new": new}
        row |= {"cpu": round(report.seconds.get("cpu", 0.0), 3)}
        if choice and (died or report.mutator):  # else there is no mutant, and the program is drawn
            row |= {"source": choice.source, "mutator": choice.mutation.mutator}
            row |= {"parent": choice.parent, "donor": choice.donor}
        self._write(row | {"text": report.text} if died or report.mutator else row)

    def close(self) -> None:
        self.file.close()

    def _write(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()


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
