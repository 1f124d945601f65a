"""The origin of a campaign's programs: a seed, a corpus, or a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzzer.campaign.corpus import Corpus, resume_corpus
from fuzzer.campaign.mutants import ByMutation, FromLog, read_log
from fuzzer.campaign.plan import BLIND, MUTANTS, Plan, corpus_environment
from fuzzer.campaign.schedule import BySeed, BySeedWithCorpus, Schedule, restore_drawing_settings
from fuzzer.coverage.lines import recorded_share
from fuzzer.judgement.trial import UNCOMPILED
from fuzzer.language.errors import UsageError
from fuzzer.workers.messages import Task


@dataclass(frozen=True)
class Source:
    """Where programs come from.

    task      what they are drawn from.
    schedule  makes the schedule, of the task and a folder of the campaign's own.
    corpus    whether it keeps programs: then features are told, and it can be resumed.
    programs  most that it has.
    """

    task: Task
    schedule: Callable[[Task, Path], Schedule]
    corpus: bool = False
    programs: int | None = None


def find_source(plan: Plan, guidance: str | None, unguided: bool, resume: bool, again: Path | None) -> Source:
    """The source that the options of `fuzz` name. Raises UsageError."""
    if again and resume:
        raise UsageError("--again runs what was chosen before, --resume chooses: take one of them")
    if unguided and (guidance or resume):
        raise UsageError("--unguided chooses nothing and keeps no corpus: leave out --guidance and --resume")
    if resume and guidance:
        raise UsageError("--resume goes on with its corpus' own guidance: leave out --guidance")
    if again:
        task, logged = read_log(again, plan.task)
        return Source(task, lambda task, own: FromLog(logged), programs=len(logged))
    if unguided:
        return Source(plan.task, lambda task, own: BySeed())
    folder, place = plan.explored, corpus_environment(plan.task)
    if resume:
        corpus, state = resume_corpus(folder, place)
        task, mutates = restore_drawing_settings(plan.task, state), state.get("guidance") == MUTANTS
        return Source(task, lambda task, own: _schedule(task, own, corpus, mutates, state), corpus=True)
    drawn, mutates = replace(plan.task, cells=guidance != BLIND), guidance == MUTANTS
    return Source(drawn, lambda task, own: _schedule(task, own, Corpus(folder, place).start(), mutates), corpus=True)


def _schedule(
    task: Task, own: Path, corpus: Corpus, mutates: bool, state: Mapping[str, Any] | None = None
) -> BySeedWithCorpus:
    """The schedule of a campaign with a corpus; state: of the campaign that it goes on with."""
    return ByMutation(task, own, corpus, state) if mutates else BySeedWithCorpus(task, corpus, state)


def share_of_lines(asked: bool | None, source: Source) -> float:
    """The share of a source's programs whose lines are recorded. Raises UsageError where that is asked for in vain."""
    compiles = source.task.place.subject.backend not in UNCOMPILED
    if asked and not (source.corpus and compiles):
        raise UsageError("--lines goes with a campaign that compiles and keeps a corpus: that holds what was reached")
    if asked and not recorded_share():
        raise UsageError("before Python 3.12, lines are recorded with coverage.py: pip install coverage")
    return recorded_share() if source.corpus and compiles and asked is not False else 0.0
