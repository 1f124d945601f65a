"""Where a campaign's programs come from: a seed, a corpus, a guidance or a log. The one user of `guidance`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzer.campaign.corpus import Corpus, resume_corpus
from fuzzer.campaign.plan import BLIND, CELLS, Plan, corpus_environment
from fuzzer.campaign.schedule import BySeed, BySeedWithCorpus, Schedule, restore_drawing_settings
from fuzzer.coverage.features import LINES
from fuzzer.coverage.lines import recorded_share
from fuzzer.guidance import ARMS, FromLog, Guidance, guided, read_log, restore_guidance
from fuzzer.judgement.trial import UNCOMPILED
from fuzzer.language.errors import UsageError
from fuzzer.workers.messages import Task


@dataclass(frozen=True)
class Source:
    """Where programs come from.

    task      what they are drawn from.
    schedule  makes the schedule, of the task and a folder of the campaign's own.
    corpus    whether it keeps programs: then features are told, and it can be resumed.
    guidance  that chooses, if any.  programs: most that it has.
    """

    task: Task
    schedule: Callable[[Task, Path], Schedule]
    corpus: bool = False
    guidance: Guidance | None = None
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
        task, chosen = read_log(again, plan.task)
        return Source(task, lambda task, own: FromLog(chosen), programs=len(chosen))
    if unguided:
        return Source(plan.task, lambda task, own: BySeed())
    if resume:
        return _resumed_source(plan)
    folder, place = plan.explored, corpus_environment(plan.task)
    if guidance in (None, BLIND, CELLS):
        drawn = replace(plan.task, cells=guidance != BLIND)
        return Source(drawn, lambda task, own: BySeedWithCorpus(task, Corpus(folder, place).start()), corpus=True)
    arm = ARMS[guidance]
    return Source(plan.task, lambda task, own: guided(task, own, folder, place, arm), corpus=True, guidance=arm)


def _resumed_source(plan: Plan) -> Source:
    """The source that goes on with the corpus in the plan's folder. Raises UsageError."""
    folder, place = plan.explored, corpus_environment(plan.task)
    corpus, state = resume_corpus(folder, place, Corpus)
    task, arm = restore_drawing_settings(plan.task, state), restore_guidance(state)
    if arm is None:
        return Source(task, lambda task, own: BySeedWithCorpus(task, corpus, state), corpus=True)
    return Source(task, lambda task, own: guided(task, own, folder, place, arm, resume=True), True, arm)


def share_of_lines(asked: bool | None, source: Source) -> float:
    """The share of a source's programs whose lines are recorded. Raises UsageError where that is asked for in vain."""
    credited = bool(source.guidance and set(LINES) & set(source.guidance.credits))
    compiles = source.task.place.subject.backend not in UNCOMPILED
    if asked and not (source.corpus and compiles):
        raise UsageError("--lines goes with a campaign that compiles and keeps a corpus: that holds what was reached")
    if credited and asked is False:
        raise UsageError("--no-lines: what is guided by lines needs them")
    if (asked or credited) and not recorded_share():
        raise UsageError("before Python 3.12, lines are recorded with coverage.py: pip install coverage")
    return recorded_share(credited) if source.corpus and compiles and asked is not False else 0.0
