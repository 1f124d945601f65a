"""Both looks at planted errors."""

from __future__ import annotations

import json
import random

import pytest
import torch
from benches import first_look
from benches.__main__ import main
from benches.first_look import Look, Looked, compared, first_look_summary, look_at_planted, looked
from click.testing import CliRunner

from fuzzer.judgement.comparison import spread
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.errors import UsageError
from fuzzer.language.text import parse
from fuzzer.rounding.floors import FIRST_LOOK
from fuzzer.trial.pipeline import report_program, run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from tests.benches.here import Here

EAGER = Task(Place(Subject("eager"), Subject("eager")))
KINKS = """
program(1)
route("autograd")
x0 = leaf(f32[4, 16], values=around(-3.0, 0.0, 3.0), seed=1)
v0 = hardswish(x0)
backward(v0, cotangent(f32[4, 16], seed=3))
"""


def test_some_planted_errors_are_flagged_some_are_not_and_none_is_dismissed() -> None:
    found = report_program(parse(KINKS), EAGER, Journal(None), on_judged=looked)
    assert isinstance(found, Looked)
    assert found.look.planted == 2 * 64
    assert 0 < found.look.final <= found.look.first < 128
    assert found.look.dismissed == 0


def test_a_first_look_that_is_too_generous_is_found_out() -> None:
    with torch.enable_grad():
        trial = run_both(parse(KINKS), EAGER, Journal(None))
    shown = spread(trial, FIRST_LOOK)
    shown.deviation = [8 * d for d in shown.deviation]  # it is kept with the trial
    with torch.no_grad():
        assert compared(trial, random.Random(1)).dismissed > 0


def test_a_planted_error_is_a_number_of_its_dtype_around_the_floor() -> None:
    reference, floor = torch.ones(400, dtype=torch.float64), torch.full((400,), 0.125, dtype=torch.float64)
    moved = look_at_planted(reference, floor, torch.bfloat16, random.Random(1))
    assert torch.equal(moved, moved.bfloat16().double())
    off = (moved - reference).abs() / floor
    assert float(off.min()) < 0.25
    assert 4 < float(off.max()) <= 16
    assert bool((moved != reference).any())


def test_where_nothing_may_round_the_error_is_a_few_units() -> None:
    moved = look_at_planted(torch.ones(100).double(), torch.zeros(100).double(), torch.float32, random.Random(1))
    assert 0 < float((moved - 1).abs().max()) <= 16 * torch.finfo(torch.float32).eps


def test_the_summary_adds_up_and_shows_what_was_dismissed() -> None:
    figures = first_look_summary(
        [Looked(KINKS, look=Look(10, 4, 5, 1)), Looked(KINKS, look=Look(10, 3, 2)), Report("")]
    )
    assert (figures["programs"], figures["planted"], figures["flagged_by_first"]) == (2, 20, 7)
    assert (figures["flagged_by_final"], figures["dismissed"], figures["programs_dismissed"]) == (7, 1, 1)
    assert [row["text"] for row in figures["missed"]] == [KINKS]


@pytest.mark.slow
def test_the_command_dismisses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "Pool", Here)
    done = CliRunner().invoke(main, ["first-look", "--programs", "3", "--workers", "1", "--seed", "7", "--json"])
    figures = json.loads(done.output.splitlines()[-1])
    assert figures["programs"] > 0
    assert figures["flagged_by_final"] > 0
    assert figures["dismissed"] == 0


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("--pair", pair) for pair in ("eager", "inductor,eager", "eager@cpu/2,eager", "eager,eager@tpu")),
        ("--dtypes", "bf16,f8"),
    ],
)
def test_a_pair_is_two_sides_of_which_the_first_records_and_a_dtype_has_gradients(option: str, text: str) -> None:
    with pytest.raises(UsageError):
        CliRunner().invoke(main, ["first-look", option, text], catch_exceptions=False)
