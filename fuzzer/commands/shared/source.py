"""The origin of a campaign's programs: a seed, a corpus, or a log."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fuzzer.campaign.by_kin import ByKin, in_turns
from fuzzer.campaign.choices import FromLog, read_log
from fuzzer.campaign.corpus import Corpus, resume_corpus
from fuzzer.campaign.mixture import Mixture
from fuzzer.campaign.parents import Parents, by_ops, parents_in, shipped_parents
from fuzzer.campaign.plan import AROUND, CELLS, GUIDANCES, Plan, corpus_environment
from fuzzer.campaign.schedule import BySeed, Schedule, restore_drawing_settings
from fuzzer.commands.shared.call import find_call, running
from fuzzer.commands.shared.reference import load_program
from fuzzer.coverage.lines import recorded_share
from fuzzer.judgement.trial import UNCOMPILED
from fuzzer.language.errors import UsageError
from fuzzer.language.pieces import pieces
from fuzzer.language.transcribe import Inexpressible
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


class Chosen(NamedTuple):
    """What the options of `fuzz` say about where programs come from."""

    around: tuple[str, ...] = ()
    kin: tuple[str, ...] = ()
    guidance: str | None = None
    unguided: bool = False
    resume: bool = False
    again: Path | None = None


def find_source(plan: Plan, chosen: Chosen) -> Source:
    """The source that the options of `fuzz` name. Raises UsageError."""
    if chosen.again and chosen.resume:
        raise UsageError("--again runs what was chosen before, --resume chooses: take one of them")
    if chosen.unguided and (chosen.guidance or chosen.resume):
        raise UsageError("--unguided chooses nothing and keeps no corpus: leave out --guidance and --resume")
    if chosen.resume and chosen.guidance:
        raise UsageError("--resume goes on with its corpus' own guidance: leave out --guidance")
    if chosen.around and (chosen.unguided or chosen.resume or chosen.again):
        raise UsageError("--around names programs for a new campaign: leave out --unguided, --resume (which goes on "
                         "around the same programs) and --again")  # fmt: skip
    if chosen.around and chosen.guidance and not GUIDANCES[chosen.guidance].around:
        known = ", ".join(name for name, guidance in GUIDANCES.items() if guidance.around)
        raise UsageError(f"--guidance {chosen.guidance} has no mutants around given programs; with --around: {known}")
    if chosen.kin and (chosen.around or chosen.guidance or chosen.unguided or chosen.resume or chosen.again):
        raise UsageError("--kin says by itself which programs run: leave out --around, --guidance, --unguided, "
                         "--resume and --again")  # fmt: skip
    if chosen.kin:
        kin = in_turns([text for what in chosen.kin for text in _texts_of(what, plan.db)])
        return Source(plan.task, lambda task, own: ByKin(kin), programs=len(kin))
    if chosen.again:
        task, logged = read_log(chosen.again, plan.task)
        return Source(task, lambda task, own: FromLog(logged), programs=len(logged))
    if chosen.unguided:
        return Source(plan.task, lambda task, own: BySeed())
    folder, place, most = plan.explored, corpus_environment(plan.task), plan.bounds.kept
    if chosen.resume:
        corpus, state = resume_corpus(folder, place, most)
        named = state.get("guidance")
        guidance = named if named in [*GUIDANCES] else CELLS  # of an older backfuzz
        parents = Parents.read(folder) if GUIDANCES[guidance].around else None
        task = restore_drawing_settings(plan.task, state)
        return Source(task, lambda task, own: Mixture(task, own, corpus, guidance, parents, state), corpus=True)
    guidance = chosen.guidance or (AROUND if chosen.around else CELLS)
    parents = _parents(chosen.around) if GUIDANCES[guidance].around else None
    drawn = replace(plan.task, cells=GUIDANCES[guidance].cells)
    return Source(
        drawn, lambda task, own: Mixture(task, own, Corpus(folder, place, most).start(), guidance, parents), corpus=True
    )


def _parents(named: Collection[str]) -> Parents:
    """The programs that --around names; without it, those that are shipped. Raises UsageError, StoreError."""
    return functools.reduce(operator.or_, map(parents_of, named)) if named else shipped_parents()


def _texts_of(what: str, db: Path) -> list[str]:
    """A program of each cause that --kin names, or that of a finding's or fault's id. Raises UsageError, StoreError."""
    if Path(what).exists() or ":" in what:
        return [texts[0] for texts in parents_of(what).causes.values()]
    return [load_program(what, db)[1]]


def parents_of(what: str) -> Parents:
    """What --around names. Raises UsageError, StoreError."""
    if Path(what).suffix != ".py" and (Path(what).exists() or ":" not in what):
        return parents_in(Path(what))
    found = find_call(what)
    try:
        with running(f"{found.where}:{found.name}", but=Inexpressible):
            return by_ops(pieces(found.function, found.inputs))
    except Inexpressible as error:
        raise UsageError(f"{what}: no piece of it is a program: {error}") from None


def share_of_lines(asked: bool | None, source: Source) -> float:
    """The share of a source's programs whose lines are recorded. Raises UsageError where that is asked for in vain."""
    compiles = source.task.place.subject.backend not in UNCOMPILED
    if asked and not (source.corpus and compiles):
        raise UsageError("--lines goes with a campaign that compiles and keeps a corpus: that holds what was reached")
    if asked and not recorded_share():
        raise UsageError("before Python 3.12, lines are recorded with coverage.py: pip install coverage")
    return recorded_share() if source.corpus and compiles and asked is not False else 0.0
