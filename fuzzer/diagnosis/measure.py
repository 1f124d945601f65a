"""The size of a program's error, measured in a worker: an entry point for the pool."""

from __future__ import annotations

from dataclasses import replace

import torch

from fuzzer.judgement.comparison import judge_tensors, ratios
from fuzzer.judgement.trial import Trial
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task


def measure(task: Task, text: str) -> Report:
    """Report on this program. Notes hold, for every tensor that a verdict compares, by its name and the kind of ratio,
    the ratios of wrong to right (`comparison.ratios`) as `repr` writes them. Raises ParseError."""
    return report_program(parse(text), task, journal(), _with_ratios)


def _with_ratios(report: Report, trial: Trial) -> Report:
    names = list(dict.fromkeys(c.name for verdict in report.verdicts for c in verdict.comparisons))
    if not names:
        return report
    with torch.no_grad():
        found = {judged.name: ratios(judged) for judged in judge_tensors(trial, names)}
    notes = {f"{name} {kind}": repr(ratio) for name, told in found.items() for kind, ratio in told.items()}
    return replace(report, notes=report.notes | notes)
