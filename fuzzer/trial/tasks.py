"""The functions that the pool runs in workers: (task, argument) to Report, for a program by its number or by its text.

The text of a program comes through the pipe (`verify.ask`); each function parses it once.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fuzzer.judgement.comparison import first_spread
from fuzzer.judgement.trial import Trial
from fuzzer.language import interpret
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.rounding.deaf import deafening
from fuzzer.trial.draw import draw_detectable, program_task, report_drawn, write_down
from fuzzer.trial.pipeline import (
    REFUSED,
    OnJudged,
    keep_report,
    record_reference,
    refusal,
    report_and_words,
    report_program,
    run_both,
)
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task


def explore_announced(task: Task, index: int) -> Report:
    """Draw program number `index`, in the drawing of which a worker died. Each program that runs in eager on the way is
    written into the journal before it runs: if this worker dies too, its obituary names the program."""
    drawn = draw_detectable(program_task(task, index), index, journal(), write_down)
    return drawn if isinstance(drawn, Report) else Report(show(drawn.trial.program), rejected="it was drawn after all")


def explore(task: Task, index: int, on_judged: OnJudged = keep_report) -> Report:
    """Draw program number `index` of the task's seed, and report on it. Depends on the task and the index alone."""
    task, log = program_task(task, index), journal()
    return report_drawn(draw_detectable(task, index, log), task, log, on_judged)


# ---------------------------------------------------------------- programs given as text


def examine(task: Task, text: str) -> Report:
    """Report on this program. Raises ParseError."""
    return report_program(parse(text), task, journal())


def report_words(task: Task, text: str) -> Report:
    """The words that this program exercises: the Report's `files` hold them by family, one word a line, and as `deaf`
    the kernels that make elements of it deaf. Raises ParseError."""
    try:
        trial = record_reference(parse(text), task, journal())
    except REFUSED as error:
        return refusal(text, error)
    told, words = report_and_words(trial, replace(task, features=True), journal())
    files = {family: "\n".join(sorted(found)) for family, found in words.items()}
    with torch.no_grad():
        makers = [] if told.rejected else deafening(trial.model, first_spread(trial))
    return replace(told, files={**files, "deaf": "\n".join(map(str, makers))})


def run_trial(task: Task, program: Program) -> Trial:
    """Both sides of this program, run and not judged. Raises the errors in REFUSED."""
    trial = run_both(program, task, journal())
    journal().phase("look")
    return trial


def record_values(task: Task, text: str) -> Report:
    """The Report's `recorded` holds recipes of the program's values on the reference side. Raises ParseError."""
    program, log = parse(text), journal()
    log.begin(text)
    log.phase("reference forward")
    try:
        return Report(text, recorded=interpret.value_recipes(program, task.place.reference.device))
    except Exception as error:  # what is not recorded is not proposed
        return Report(text, rejected=f"it cannot be recorded: {error!r}")
