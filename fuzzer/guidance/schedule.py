"""Schedules that choose. Choices depend on the order in which reports arrive, so they are logged: `FromLog` runs the
programs of a log again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fuzzer.campaign.corpus import resume_corpus
from fuzzer.campaign.schedule import BySeedWithCorpus, WithoutFeedback, restore_drawing_settings
from fuzzer.coverage.structure import LOOPS
from fuzzer.generation.knobs import Knobs
from fuzzer.guidance.arms import CandidateSource, Guidance
from fuzzer.guidance.candidates import CandidateSpec, Choice, LoggedChoice, explore_logged, explore_most_novel
from fuzzer.guidance.cost import CostModel
from fuzzer.guidance.parents import BuiltCorpus, CountingCorpus
from fuzzer.guidance.rarest import Asked, explore_rarest
from fuzzer.language.errors import UsageError
from fuzzer.trial.batch import Batch
from fuzzer.trial.sift import SiftedReport
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

SAVE_EVERY = 8  # programs: what is learned takes up to a megabyte
LOG_FILE, CREDITS_FILE = "choices.jsonl", "credits.json"


class Guided(BySeedWithCorpus):
    """Programs chosen by what was seen so far, as its Guidance says.

    The log, in `folder`, holds a line with what all programs were drawn from, then one for each program: which
    candidate, why (the novelty of each), how it was made, how many features were new, CPU seconds, and the class of its
    trial. What choices brought is written beside it.
    """

    corpus: CountingCorpus
    together = False
    save_every = SAVE_EVERY

    def __init__(
        self,
        task: Task,
        folder: Path,
        corpus: CountingCorpus,
        guidance: Guidance,
        state: Mapping[str, Any] | None = None,
    ):
        self.guidance, self.folder = guidance, folder
        first = state["next"] if state else 0
        self.source = CandidateSource(
            guidance, corpus, random.Random(f"{task.seed}/{first}/offers"), task.limits.dtypes, task.ops
        )
        if state:
            try:
                self.source.restore(state["offers"])
                if state.get("random"):
                    version, numbers, gauss = state["random"]
                    self.source.rng.setstate((version, tuple(numbers), gauss))
            except KeyError as error:
                raise UsageError(
                    f"the corpus is an older backfuzz's, without {error}; fuzz without --resume begins anew"
                ) from None
        super().__init__(task, corpus, state)
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / LOG_FILE).open("w")
        self._write(self.drawing | {"guidance": asdict(guidance)})

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        (n,) = numbers
        counts, number = self.corpus.seen.packed(), self.number(n)
        self.pending[number] = self.source.next_specs()
        what = number, counts, self.pending[number]
        return pool.submit(explore_most_novel, self.task_with_features(task), what, behind=True)

    def learn(self, n: int, report: Report) -> None:
        specs = self.pending.pop(self.number(n))
        new = self.keep(report)
        self.source.learn(specs, report, new)
        self._write(_log_row(self.number(n), specs[report.candidate], report, sum(new.values())))

    def progress(self) -> str:
        return super().progress() + self.source.unproductive()

    def close(self) -> None:
        super().close()
        self.log.close()
        (self.folder / CREDITS_FILE).write_text(json.dumps(self.source.table(), indent=1))

    def state(self) -> dict[str, Any]:
        random_state = self.source.rng.getstate()
        return {"guidance": asdict(self.guidance), "offers": self.source.state(), "random": random_state}

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


class ByCode(BySeedWithCorpus):
    """Programs of the seed, all judged at a stage; those are built whose loops are rarest among what was built so far.

    The log, in `folder`, holds a line with what all programs were drawn from, then one for each program: at which stage
    it was judged ("": built), how rare its loops were, how many features were new, CPU seconds, and its class.
    """

    corpus: BuiltCorpus
    save_every = SAVE_EVERY

    def __init__(
        self,
        task: Task,
        folder: Path,
        corpus: BuiltCorpus,
        guidance: Guidance,
        state: Mapping[str, Any] | None = None,
    ):
        self.guidance, self.cost, self.share = guidance, CostModel(), 1 - task.staged
        if state:
            self.cost.restore(state["price"])
        super().__init__(task, corpus, state)
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / LOG_FILE).open("w")
        self._write(self.drawing | {"guidance": asdict(guidance)})

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        own = tuple(map(self.number, numbers))
        self.pending |= dict.fromkeys(own)
        asked = Asked(Batch(own, pool.deadline), self.corpus.built.packed(), self.share, self.cost.coefficients())
        given = replace(self.task_with_features(task), staged=0.0)
        return pool.submit(explore_rarest, given, asked, len(own), behind=True)

    def learn(self, n: int, report: Report) -> None:
        self.pending.pop(self.number(n))
        new = self.keep(report)
        spent, loops = report.seconds.get("cpu", 0.0), report.features.get(LOOPS, ())
        if loops and not report.stage and not report.built:
            self.cost.learn(len(loops), spent - report.seconds.get("stage", 0.0))
        self._write(_code_row(self.number(n), report, sum(new.values())))

    def close(self) -> None:
        super().close()
        self.log.close()

    def state(self) -> dict[str, Any]:
        return {"guidance": asdict(self.guidance), "price": self.cost.state()}

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()


def _row(number: int, report: Report, new: int) -> dict[str, Any]:
    """A program's row of a log: which drawing of its number, where it was judged, what it brought and cost, its class;
    the text of one whose worker died, which tells nothing else."""
    row: dict[str, Any] = {"index": number, "candidate": report.candidate, "stage": report.stage, "new": new}
    row |= {"cpu": round(report.seconds.get("cpu", 0.0), 3), "class": report.verdict}
    return row if report.seconds else row | {"text": report.text}


def _code_row(number: int, report: Report, new: int) -> dict[str, Any]:
    """A program's row of the log of `ByCode`; with the text where nobody knows how it was drawn."""
    row = _row(number, report, new)
    if not isinstance(report, SiftedReport):  # the worker died
        return row | {"text": report.text}
    return row | {"rarity": report.rarity if report.rarity is None else round(report.rarity, 4)}


def _log_row(number: int, spec: CandidateSpec, report: Report, new: int) -> dict[str, Any]:
    """A program's row of the log: what it takes to run it again, why it was chosen, and what it brought and cost.

    It has the text where the program is a mutant, or its worker died, which tells nothing else.
    """
    found = report.scores if isinstance(report, Choice) else ()
    scores = [score if score is None else round(score, 4) for score in found]
    row: dict[str, Any] = {"index": number, "candidate": report.candidate, "novelty": scores, "new": new}
    row |= {"cpu": round(report.seconds.get("cpu", 0.0), 3), "class": report.verdict}
    if not scores:
        return row | {"text": report.text}
    if spec.parent:
        return row | {"mutator": spec.mutator, "text": report.text}
    return row | {"knobs": turned} if (turned := spec.knobs.non_default()) else row


def _logged_choice(row: dict[str, Any]) -> LoggedChoice | None:
    """The program of a row; None where every candidate was refused, or the worker died before it told one."""
    text = row.get("text", "")
    if "stage" in row:
        return LoggedChoice(row["index"], row["candidate"], text=text, stage=row["stage"])
    if not text and all(score is None for score in row["novelty"]):
        return None
    return LoggedChoice(row["index"], row["candidate"], Knobs(**row.get("knobs", {})), text)


class FromLog(WithoutFeedback):
    """The programs that a log names, in its order."""

    together = False

    def __init__(self, chosen: list[LoggedChoice]):
        self.chosen = chosen

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        (n,) = numbers
        return pool.submit(explore_logged, task, self.chosen[n], behind=True)


def guided(
    task: Task, own: Path, folder: Path, place: dict[str, str], guidance: Guidance, resume: bool = False
) -> Guided | ByCode:
    """A campaign's schedule, with its log in `own` and its corpus in `folder`, new or resumed. Raises UsageError."""
    if guidance.code:
        built, at = resume_corpus(folder, place, BuiltCorpus) if resume else (BuiltCorpus(folder, place).start(), None)
        return ByCode(task, own, built, guidance, at)
    if resume:
        corpus, state = resume_corpus(folder, place, CountingCorpus)
        return Guided(task, own, corpus, guidance, state)
    return Guided(task, own, CountingCorpus(folder, place).start(), guidance)


def restore_guidance(state: dict[str, Any]) -> Guidance | None:
    """The guidance that was saved; None where programs came by their numbers."""
    saved = {name: value for name, value in (state.get("guidance") or {"candidates": 1}).items() if name != "cells"}
    chooses = saved["candidates"] > 1 or saved.get("code")
    return Guidance(**saved | {"credits": tuple(saved["credits"])}) if chooses else None


def read_log(path: Path, task: Task) -> tuple[Task, list[LoggedChoice]]:
    """The task with what the log's programs were drawn from, and what was chosen. Raises UsageError."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        known = replace(restore_drawing_settings(task, head), staged=0.0)  # each row says at which stage
        found = [one for one in map(_logged_choice, rows) if one]
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a log of choices ({LOG_FILE} in a campaign's folder): {error!r}") from None
    return known, found
