"""The bench that tells of what the judge speaks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benches import silence
from benches.silence import Suspect, measure_silence, silence_figures

from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.program import Program
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.worker import INTERNAL_ERROR
from tests.benches.here import Here

TEXT = """program(1)
route("autograd")
x0 = leaf(f32[3], seed=1)
v0 = neg(x0)
backward(v0, cotangent(f32[3], seed=2))
"""
WRONG = Verdict(Signature("gradients_agree", "wrong", "backward", "scattered"), "x0.grad[2]: compiled 0, eager 1")
RAISES = Verdict(Signature("compile_does_not_raise", "raises", "forward", "KeyError < call"), "KeyError")


def suspect(number: int, built: str, fault: str = "") -> Suspect:
    return Suspect(number, "wrong", str(WRONG.signature), WRONG.detail, TEXT, built, built == "wrong", fault)


def test_what_stands_is_told_by_fault_and_what_is_open_is_counted() -> None:
    suspects = [suspect(7, "wrong", "F1"), suspect(2, "wrong"), suspect(5, "agree"), suspect(9, "wrong", "F1")]
    figures = silence_figures(Counter(agree=96, wrong=4), suspects)
    assert (figures["programs"], figures["suspects"], figures["stand"], figures["open"]) == (100, 4, 3, 1)
    assert figures["explained"] == {"F1": 2}
    assert figures["at_the_stage_alone"] == {"wrong, built: agree": 1}
    assert [row["number"] for row in figures["rows"]] == [2, 5, 7, 9]


def test_only_differences_of_numbers_are_built_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = {0: Report(TEXT), 1: Report(TEXT, (WRONG,)), 2: Report(TEXT, (RAISES,)), 3: Report(TEXT, (WRONG,))}
    drawn[4] = Report(TEXT, rejected=f"{INTERNAL_ERROR}: ZeroDivisionError()", stderr="Traceback")
    built: list[str] = []

    def build(task: Task, text: str) -> Report:
        assert task.fresh
        assert not task.place.subject.stage
        built.append(text)
        return Report(text, (WRONG,) if len(built) == 1 else ())

    def fault(program: Program, *given: Any) -> tuple[str | None, int]:
        return None, 0

    monkeypatch.setattr(silence, "Pool", Here)
    monkeypatch.setattr(silence, "explore", lambda task, number: drawn[number])
    monkeypatch.setattr(silence, "examine", build)
    monkeypatch.setattr(silence, "fault_shown", fault)
    figures = measure_silence(Task(), "ir", range(5), [], 1, tmp_path / "rows.jsonl")
    assert len(built) == 2
    assert figures["classes"] == {"wrong": 2, "agree": 1, "raises": 1, "rejected": 1}
    assert figures["own_failures"] == [{"number": 4, "said": "Traceback", "text": TEXT}]
    assert (figures["stand"], figures["open"]) == (1, 1)
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert sorted(row["number"] for row in kept) == [1, 3]
