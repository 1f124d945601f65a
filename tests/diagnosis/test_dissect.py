"""A closer look at a program that differs: what is drawn of the error, and what the bisector ended on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.canaries import read_program
from fuzzer.diagnosis import dissect as dissection
from fuzzer.diagnosis.dissect import describe_difference, run_bisector
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Verdict
from fuzzer.ledger.diagnosed import TRACEBACK
from fuzzer.workers.messages import Report, Task
from tests.diagnosis.cases import PROGRAM, SIGNATURE

LIGHT = Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu")))


def test_what_differs_is_named_counted_and_drawn() -> None:
    found = describe_difference(replace(LIGHT, canary="gradients_doubled"), PROGRAM)
    assert (found.notes["tensors"], found.notes["shapes"]) == ("x0.grad", "[4]")
    assert (found.notes["ratio"], found.notes["elements"]) == ("constant factor 2", "whole: all 4")
    assert "####" in found.files["x0.grad.txt"]


def test_of_what_agrees_there_is_no_picture() -> None:
    found = describe_difference(LIGHT, PROGRAM)
    assert not found.rejected
    assert set(found.notes) == {"shapes"}
    assert not found.files


def test_of_what_raises_the_whole_traceback_is_kept_without_this_machines_paths() -> None:
    place = Place(Subject("eager", "cpu"), Subject("aot_eager_decomp_partition", "cpu"))
    found = describe_difference(Task(place=place, canary="compiler_raises"), read_program("three_activations"))
    told = found.files[TRACEBACK]
    assert told.startswith("Traceback (most recent call last)")
    assert 'File "torch/_dynamo/' in told
    assert "site-packages" not in told
    assert str(Path.cwd()) not in told
    assert "raised" in found.notes["outcome"]
    assert found.notes["raised"].partition(" ")[0].rstrip(":") in told


def test_what_torch_refuses_is_told() -> None:
    refused = describe_difference(LIGHT, PROGRAM.replace("tanh(x0)", "mm(x0, x0)"))
    assert "must be a matrix" in refused.rejected


def ended(monkeypatch: pytest.MonkeyPatch, bisect: Callable[[Callable[[], bool]], Any], *verdicts: Report) -> Report:
    """What is told where PyTorch's bisector runs like this and the program's runs say that, one after the other."""
    answers = iter(verdicts)
    monkeypatch.setattr(dissection, "bisect", bisect)
    monkeypatch.setattr(dissection, "report_program", lambda *_: next(answers))
    return run_bisector(LIGHT, (PROGRAM, SIGNATURE, 60.0))


WRONG, AGREES = Report(PROGRAM, (Verdict(SIGNATURE, "it is wrong"),)), Report(PROGRAM)


def test_the_bisector_is_told_whether_the_finding_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def bisect(agrees: Callable[[], bool]) -> Any:
        asked.extend(agrees() for _ in range(3))
        return "inductor", "lowerings", 7, "<OpOverload(op='aten.tanh_backward', overload='default')>"

    found = ended(monkeypatch, bisect, WRONG, AGREES, replace(AGREES, rejected="it could not run"))
    assert asked == [False, True, True]
    assert found.notes["bisector"] == (
        "inductor: lowerings, number 7, aten.tanh_backward.default; "
        "1 of 3 runs showed something else and counted as good"
    )
    assert (found.notes["backend"], found.notes["subsystem"]) == ("inductor", "lowerings")


def test_a_bisector_that_ends_on_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def contradicts(agrees: Callable[[], bool]) -> Any:
        agrees()
        raise RuntimeError("which was good before")

    assert ended(monkeypatch, lambda agrees: None).notes == {"bisector": "the difference was gone with every backend"}
    assert ended(monkeypatch, contradicts, WRONG).notes == {"bisector": "gave up after 1 runs: which was good before"}
    monkeypatch.setattr(dissection, "bisect", lambda agrees: agrees())
    late = run_bisector(LIGHT, (PROGRAM, SIGNATURE, -1.0))
    assert late.notes == {"bisector": "ran out of its -1 s after 0 runs"}
