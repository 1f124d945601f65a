"""The functions that a pool runs: what each gives, for a program by its number and by its text."""

from __future__ import annotations

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import parse, show
from fuzzer.trial.draw import draw_program
from fuzzer.trial.tasks import examine, explore, record_values, report_words, run_trial
from fuzzer.workers.messages import Task

TASK = Task(Place(subject=Subject("eager")), seed=5, ops=("sin", "mul", "sum"))
TEXT = """program(1)
route("autograd")
x0 = leaf(f32[3], values="normal", seed=1)
v0 = sin(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""


def test_a_program_is_the_same_by_its_number_and_by_its_text() -> None:
    by_number = explore(TASK, 3)
    drawn = draw_program(TASK, 3, by_number.candidate)
    assert by_number.text == show(drawn)
    by_text = examine(TASK, by_number.text)
    assert (by_text.verdict, by_text.elements, by_text.detectable) == (
        "agree",
        by_number.elements,
        by_number.detectable,
    )
    assert by_number.detectable > 0


def test_words_are_told_by_family_and_features_only_where_asked() -> None:
    told = report_words(TASK, TEXT)
    assert "sin" in told.files["operand"]
    assert told.features
    assert examine(TASK, TEXT).features == {}


def test_both_sides_are_run_and_not_judged() -> None:
    trial = run_trial(TASK, parse(TEXT))
    assert trial.subject.outcome == trial.reference.outcome == "ran"
    assert trial.subject.gradients["x0"].equal(trial.reference.gradients["x0"])


def test_values_are_recorded_by_name_and_a_program_that_cannot_run_says_why() -> None:
    assert set(record_values(TASK, TEXT).recorded) == {"x0", "v0"}
    refused = record_values(TASK, TEXT.replace("v0 = sin(x0)", "v0 = mm(x0, x0)"))
    assert refused.recorded == {}
    assert refused.rejected.startswith("it cannot be recorded: ")
