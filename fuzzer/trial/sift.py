"""Several programs in one worker, all judged at the last stage before code; some of them are then built, together.

A program is drawn and recorded once, for both. Who is refused, shows something at the stage, or had to be built there,
is done; of the others somebody chooses, by what each would have inductor build.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fuzzer.coverage.features import Features
from fuzzer.judgement.trial import PENDING, Observation
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.private import reset_compiler
from fuzzer.language.text import show
from fuzzer.trial.batch import Batch, Member, build_together
from fuzzer.trial.draw import STAGE, draw_detectable, program_task
from fuzzer.trial.exercise import Exercise
from fuzzer.trial.pipeline import REFUSED, compile_subject, conclude, refusal
from fuzzer.workers.messages import Report, Task


class Sifted(NamedTuple):
    """What was decided of a program: whether it is built, and how rare what would be built is."""

    built: bool
    rarity: float


# Of what programs exercise at the stage: what is decided of each, in order.
Choose = Callable[[Sequence[Features]], Sequence[Sifted]]


@dataclass(frozen=True)
class SiftedReport(Report):
    """The Report of where a program was judged last. rarity: None where nobody had to choose."""

    rarity: float | None = None


def explore_sifted(task: Task, batch: Batch, choose: Choose) -> list[Report]:
    """The Reports of the programs of these numbers, in order. The seconds of one that is built are of both places;
    `stage` are those of the CPU until it was judged at the stage."""
    tasks = [program_task(task, number) for number in batch.numbers]
    draws = [functools.partial(draw_detectable, own, n) for own, n in zip(tasks, batch.numbers, strict=True)]
    members = list(map(_Sieved, range(len(tasks)), tasks, draws))
    build_together(members, batch.deadline, functools.partial(_sift, choose=choose))
    return [member.sifted() for member in members]


def _sift(members: Sequence[_Sieved], choose: Choose) -> None:
    """Judge all at the stage; who is not chosen has its Report of there."""
    for member in members:
        member.take_turn(member.judge_at_stage)
        member.at_stage = member.cpu_seconds
    reset_compiler()
    waiting = [member for member in members if member.report is None]
    for member, sifted in zip(waiting, choose([member.told.features for member in waiting]), strict=True):
        member.rarity = sifted.rarity
        if not sifted.built:
            member.take_turn(member.leave)


class _Sieved(Member):
    """A program that is judged at the stage first.

    told  what came of that;  at_stage  its CPU seconds until then;  rarity  of what it would have built.
    """

    told: Report
    at_stage = 0.0
    rarity: float | None = None

    def judge_at_stage(self) -> Report | None:
        """Its Report, where nobody has to choose."""
        task = replace(self.task, place=self.task.place.at(STAGE))
        try:
            trial = self.drawn.trial.with_subject(Observation(PENDING))
        except REFUSED as error:
            return self.drawn.told(refusal(show(self.drawn.trial.program), error))
        trial.place = task.place
        reset_compiler()
        exercise = Exercise(trial.program.route.name, task, self.log)
        compiled = functools.partial(compile_subject, trial, task, self.log)
        told = self.drawn.told(conclude(trial, compiled, exercise, self.log)[0])
        if told.rejected or told.built or told.verdict in FINDINGS:
            return told
        self.told, self.exercise.lines = told, exercise.lines
        self.drawn.trial.known |= trial.with_subject(Observation(PENDING)).known
        return None

    def leave(self) -> Report:
        """Its Report: that of the stage."""
        return self.told

    def sifted(self) -> SiftedReport:
        """Its Report, with how it was chosen."""
        assert self.report is not None
        self.report.seconds["stage"] = self.at_stage
        return SiftedReport(**vars(self.report), rarity=self.rarity)
