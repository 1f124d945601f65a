"""One trial in steps: record, ask whether a wrong gradient would be detected, run again, compile, judge.

`record_reference` runs the reference side under a recording, which is enough to say what the program exercises and
whether a wrong gradient could be detected (`is_detectable`). `rerun_reference` runs the reference side again where
nothing records, `compile_subject` the side on trial, `judge_trial` asks the oracles. Exploration, replay, verification,
reduction and diagnosis all go this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from fuzzer.coverage.features import Words, feature_ids
from fuzzer.generation.draft import Rejected
from fuzzer.judgement.comparison import judge_tensors
from fuzzer.judgement.narrowing import KEPT, narrowed
from fuzzer.judgement.oracles import about_bare, deaf_elements, detectable, errors_agree, narrowings_agree, verdicts
from fuzzer.judgement.planted import planted
from fuzzer.judgement.promise import promised_error
from fuzzer.judgement.trial import PENDING, RAN, UNCOMPILED, Code, Observation, Trial
from fuzzer.language import routes
from fuzzer.language.errors import UnknownOp
from fuzzer.language.infer import IllTyped, check_draws
from fuzzer.language.private import reset_compiler
from fuzzer.language.program import Program, between, function_body, has_gradient
from fuzzer.language.regions import UnknownRegion
from fuzzer.language.settings import UnknownSetting, shown_before_code, without_choices
from fuzzer.language.text import show
from fuzzer.language.values import UnknownRecipe
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.replay import Unreplayable
from fuzzer.trial.compiled import Compiled
from fuzzer.trial.exercise import Exercise
from fuzzer.trial.observe import observe
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.usage import cpu_seconds


class Refused(ValueError):
    """A program that did not run on the reference side, with the reason."""


class EagerRaised(Refused):
    """A program that the reference side refused. seen: the Observation."""

    def __init__(self, seen: Observation):
        assert seen.raised is not None
        super().__init__(f"{seen.phase} raised {seen.raised.kind}: {seen.raised.message.splitlines()[:1]}")
        self.seen = seen


# Errors that end a program before it is judged; its Report is a refusal.
REFUSED = (
    Rejected, Refused, IllTyped, UnknownOp, UnknownRegion, UnknownSetting, UnknownRecipe, routes.UnknownRoute,
    Unreplayable,
)  # fmt: skip


def refusal(text: str, error: Exception) -> Report:
    """The Report of a program that an error of REFUSED ended."""
    why = "the trace cannot be replayed: " if isinstance(error, Unreplayable) else ""
    return Report(text, rejected=f"{why}{error}")


# ---------------------------------------------------------------- the reference side


def record_reference(code: Code, task: Task, journal: Journal) -> Trial:
    """Log the code, check a program and record the reference side. Raises the errors in REFUSED."""
    journal.begin(text_of(code))
    if isinstance(code, Program):
        routes.route_of(code)
        _check_subject(code, task)
        check_draws(code)
    recorder = Recorder()
    reset_compiler()
    seen = _observe_reference(code, task, journal, recorder)
    targets = {name: recorder.ref(t) for name, t in zip(code.result_names, seen.outputs, strict=True)}
    targets |= {name: recorder.ref(t) for name, t in seen.written.items()}
    gradients = {f"{n}.grad": recorder.ref(t) for n, t in seen.gradients.items() if t is not None}
    recorder.trace.devices = tuple(dict.fromkeys(task.place.devices))
    pending = Observation(PENDING)
    return Trial(code, task.place, seen, pending, recorder.trace, targets | gradients, task.final)


def _check_subject(program: Program, task: Task) -> None:
    """Raise UnknownRoute where the task's side on trial cannot run the program's route."""
    if task.place.subject.backend != "eager":
        routes.check_backend(program.route.name, task.place.subject.compiler)


def text_of(code: Code) -> str:
    """The text of a program; "" of a function, which has none."""
    return show(code) if isinstance(code, Program) else ""


def is_detectable(trial: Trial, journal: Journal) -> bool:
    """Whether an error in some gradient element would exceed its floor, or there is no gradient, and the program is
    judged by its outputs and writes. Raises Unreplayable."""
    if isinstance(trial.code, Program) and not has_gradient(trial.code):
        return True
    journal.phase("reference judge")
    with torch.no_grad():
        return detectable(trial)[0] > 0


def rerun_reference(trial: Trial, task: Task, journal: Journal) -> Trial:
    """The trial with the reference side run without a recorder. Raises Refused.

    It runs twice: under a dispatch mode some backwards take the formula that they have for the compiler (cumprod's and
    prod's, torch 2.11), and what eager itself computes is what a person sees without one.
    """
    trial.reference = _observe_reference(trial.code, task, journal)
    return trial


def _observe_reference(code: Code, task: Task, journal: Journal, recorder: Recorder | None = None) -> Observation:
    """One run of the reference side. Raises EagerRaised."""
    with planted(task.canary, "reference") as tamper:
        seen = observe(code, task.place.reference, lambda name: journal.phase(f"reference {name}"), recorder)
        if seen.raised is not None:
            raise EagerRaised(seen)
        return tamper(seen) if recorder is None else seen


# ---------------------------------------------------------------- the side on trial


def compile_subject(trial: Trial, task: Task, journal: Journal) -> Trial:
    """The trial with the side on trial run too; where the task asks for that, also without the program's settings."""
    trial.also = task.also
    trial.subject = Compiled(trial.code, task, journal).run(trial)
    trial.kept = compile_kept(trial, task, journal)
    if not about_bare(task.also):
        return trial
    bare = without_settings(trial.program)
    acting = shown_before_code if task.place.subject.stage else tuple
    if acting(bare.settings) != acting(trial.program.settings):
        journal.begin(show(bare))
        reset_compiler()
        trial.bare = Compiled(bare, task, journal).run(trial)
    return trial


def compile_kept(trial: Trial, task: Task, journal: Journal) -> Observation | None:
    """The run that drops no rounding to half precision, where the task asks for it and a dropped one explains
    something; else None."""
    if narrowings_agree.__name__ not in task.also:
        return None
    with torch.no_grad():
        if not narrowed(trial):
            return None
    code = replace(trial.program, settings=tuple(sorted({**dict(trial.program.settings), **dict([KEPT])}.items())))
    journal.begin(show(code))
    reset_compiler()
    return Compiled(code, task, journal).run(trial)


def without_settings(program: Program) -> Program:
    """The program under torch's defaults (`without_choices`)."""
    return replace(program, settings=without_choices(program.settings))


# ---------------------------------------------------------------- the verdict


# Called with the Report of a trial while its tensors are there; gives the Report, or one with more in it.
OnJudged = Callable[[Report, Trial], Report]


def keep_report(report: Report, trial: Trial) -> Report:
    """The Report as it is."""
    return report


def judge_trial(trial: Trial, journal: Journal) -> Report:
    """The Report of a trial, with the oracles' verdicts. Raises Unreplayable."""
    journal.phase("judge")
    started = cpu_seconds()
    with torch.no_grad():
        found = tuple(verdicts(trial))
        ran = trial.subject.outcome == RAN
        seen, total, deaf = (*detectable(trial), deaf_elements(trial)) if ran else (0, 0, 0)
    seconds = {"reference": trial.reference.seconds, "subject": trial.subject.seconds}
    seconds["judge"] = cpu_seconds() - started
    told = Report(text_of(trial.code), found, detectable=seen, elements=total, deaf=deaf, seconds=seconds)
    subject = trial.subject
    stage = "" if subject.built else trial.place.subject.stage
    forward = isinstance(trial.code, Program) and not has_gradient(trial.code)
    return replace(
        told, gradients=nonzero_gradients(trial), fired=subject.fired, stage=stage, built=subject.built, forward=forward
    )


def nonzero_gradients(trial: Trial) -> int:
    """The number of gradients that both sides have and that are not zero everywhere on the reference side."""
    theirs = trial.subject.gradients
    mine = ((name, g) for name, g in trial.reference.gradients.items() if g is not None)
    return sum(bool(g.any()) for name, g in mine if theirs.get(name) is not None)


# ---------------------------------------------------------------- all of it


def run_reference(program: Program, task: Task, journal: Journal) -> Trial:
    """The reference side of a program, recorded and run again. Raises the errors in REFUSED."""
    return rerun_reference(record_reference(program, task, journal), task, journal)


def run_both(program: Program, task: Task, journal: Journal) -> Trial:
    """Both sides of a program, run and not judged. Raises the errors in REFUSED."""
    return compile_subject(run_reference(program, task, journal), task, journal)


def report_trial(trial: Trial, task: Task, journal: Journal, on_judged: OnJudged = keep_report) -> Report:
    """The Report of a trial whose reference side was recorded: run again, compiled, judged."""
    return report_and_words(trial, task, journal, on_judged)[0]


def report_and_words(
    trial: Trial, task: Task, journal: Journal, on_judged: OnJudged = keep_report
) -> tuple[Report, Words]:
    """`report_trial`, and the words of what the program exercises; none where the task asks for no features."""

    def compiled() -> Trial:
        return compile_subject(rerun_reference(trial, task, journal), task, journal)

    return conclude(trial, compiled, Exercise(trial.program.route.name, task, journal), journal, on_judged)


def conclude(
    trial: Trial, compiled: Callable[[], Trial], exercise: Exercise, journal: Journal, on_judged: OnJudged = keep_report
) -> tuple[Report, Words]:
    """The Report of a trial, of which `compiled` gives both sides while it is watched; and its words."""
    text = show(trial.program)
    journal.begin(text)
    try:
        with exercise.turn():
            told = judge_trial(compiled(), journal)
    except REFUSED as error:
        return refusal(text, error), {}
    words = exercise.words(trial)
    return on_judged(replace(told, features=feature_ids(words)), trial), words


def report_again(trial: Trial, task: Task, journal: Journal) -> Report:
    """The Report of a trial that `run_reference` gave, for a side on trial at another place. The reference side does
    not run again."""

    def compiled() -> Trial:
        _check_subject(trial.program, task)
        other = trial.with_subject(Observation(PENDING))
        other.place, other.final = task.place, task.final
        return compile_subject(other, task, journal)

    return conclude(trial, compiled, Exercise(trial.program.route.name, task, journal), journal)[0]


def report_refused(program: Program, task: Task, journal: Journal, error: Exception) -> Report:
    """The Report of a program that was refused. An error that torch promises in eager must be raised by the compiled
    side too."""
    refused = refusal(show(program), error)
    compiles = task.place.subject.backend not in UNCOMPILED
    if not (isinstance(error, EagerRaised) and error.seen.raised and promised_error(error.seen.raised) and compiles):
        return refused
    reset_compiler()
    trial = Trial(program, task.place, error.seen, Observation(PENDING), final=task.final)
    trial.subject = Compiled(program, task, journal).observe()
    found = errors_agree(trial)
    if found is None or (between(program) and _saved_otherwise(program, task, journal, trial.subject)):
        return refused
    return replace(refused, rejected="", verdicts=(found,))


def _saved_otherwise(program: Program, task: Task, journal: Journal, seen: Observation) -> bool:
    """Whether a side that ran has the gradients of the program without the statements between forward and backward.
    Then it saved other values than those that were overwritten, and had nothing to refuse."""
    try:
        trial = run_reference(replace(program, body=function_body(program)), task, journal)
        trial.subject = replace(seen, written={})
        with torch.no_grad():
            return not any(judge_tensors(trial, [name for name in trial.targets if name.endswith(".grad")]))
    except REFUSED:
        return False


def report_program(program: Program, task: Task, journal: Journal, on_judged: OnJudged = keep_report) -> Report:
    """The Report of a program: recorded, run again, compiled, judged."""
    try:
        trial = record_reference(program, task, journal)
    except REFUSED as error:
        return report_refused(program, task, journal, error)
    return report_trial(trial, task, journal, on_judged)
