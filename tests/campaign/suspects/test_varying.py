"""The scope of a fault on the pool: what is asked where, what is built, and that time ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.suspects import varying
from fuzzer.campaign.suspects.varying import other_devices, vary
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import SUMS, Comparison, Finding, Natural, Signature, Verdict
from fuzzer.language.text import parse
from fuzzer.ledger.scope import AGREES, FAILS, OTHER, UNSAID, Row, Scope
from fuzzer.trial.tasks import record_values
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from minimizer.neighbours import AXES, numbers
from tests.campaign.fakes import FakePool
from tests.ledger.found import finding
from tests.minimizer.test_neighbours import SLICED

FOUND = finding(SLICED)
RAISES = Signature("compile_does_not_raise", "raises", "backward", "RuntimeError")
INDUCTOR = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")))
Answer = Callable[[Task, str], Report]


class Asked(FakePool):
    """Remembers (stage, text) of what was asked; eager alone tells what it refuses."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, str]] = []

        def told(task: Task, text: str) -> Report:
            self.asked.append((task.place.subject.stage, text))
            return answer(task, text)

        super().__init__(told)

    def submit(self, function: Any, task: Task, what: Any, seconds: float | None = None) -> Future[Report]:
        if function is not record_values:
            return super().submit(function, task, what)
        in_eager: Future[Report] = Future()
        in_eager.set_result(Report(what, rejected=self.answer(task, what).rejected))
        return in_eager


def measured(answer: Answer, found: Finding = FOUND, task: Task = INDUCTOR, seconds: float = 60.0) -> Scope:
    pool: Any = Asked(answer)
    scope = vary(found, task, pool, "2026-01-01T00:00:00Z", seconds)
    assert scope is not None
    return scope


def wrong(text: str, ratio: float = 0.0, signature: Signature = FOUND.signature) -> Report:
    told = (Comparison("x0.grad", (0,), 1.0, ratio, 1.0, 0.0, 1, 3),)
    notes = {f"x0.grad {SUMS}": repr(ratio), "x0.grad elsewhere": "7"}
    return Report(text, (Verdict(signature, "it is wrong", told),), notes=notes)


def by_value(scope: Scope) -> dict[str, Row]:
    return {row.value: row for row in scope.rows}


def of_2_11(task: Task, text: str) -> Report:
    """As torch 2.11 does it; eager refuses a source that does not fit."""
    held = numbers(parse(text))
    n, k = held["x0.shape[0]"], held["x1.shape[0]"]
    start, end = held["start"], held.get("end", n)
    if len(range(n)[start : end : held["step"]]) != k or min(start, end) < 0:
        return Report(text, rejected="sizes do not fit")
    return Report(text) if n == k else wrong(text, n / (n - k) if start else 0.0)


def test_a_formula_is_found_although_the_program_itself_loses_everything() -> None:
    scope = measured(of_2_11)
    assert str(scope.formula) == "n / (n - k), n = x0.shape[0], k = x1.shape[0]"
    assert scope.summary.startswith("fails in f32, f64, bf16 and f16; where x0.shape[0] > x1.shape[0]; any layout of 3")
    assert "zero where start = 0" in scope.summary
    assert not [row for row in scope.rows if row.outcome == UNSAID]
    shapes = [tuple(row.numbers.values()) for row in scope.rows if row.axis in ("program", "size", "attribute")]
    assert len(set(shapes)) >= len(shapes) - 1  # one that differs in what has no number


def test_the_first_stage_that_shows_it_is_asked_and_some_of_what_fails_is_built() -> None:
    def told(task: Task, text: str) -> Report:
        return Report(text) if task.place.subject.stage == "graph" else wrong(text)

    pool: Any = Asked(told)
    scope = vary(FOUND, INDUCTOR, pool, "2026-01-01T00:00:00Z", 60.0)
    assert scope is not None
    assert scope.stage == "ir"
    assert [stage for stage, _ in pool.asked].count("graph") == 1
    built = [row for row in scope.rows if row.built]
    assert {"itself", "f64", "bf16", "f16"} <= {row.value for row in built}
    assert {row.axis for row in built} == {"program", "dtype", "layout", "route", "attribute", "setting", "size"}
    assert len(built) < len(scope.rows) / 2


def test_what_a_stage_shows_and_code_does_not_is_no_failure() -> None:
    def told(task: Task, text: str) -> Report:
        return Report(text) if "f16[" in text and not task.place.subject.stage and "bf16" not in text else wrong(text)

    row = by_value(measured(told))["f16"]
    assert (row.outcome, row.why) == (AGREES, "a stage shows it, and what is built does not")


def test_another_fault_is_told_apart_and_what_eager_refuses_cannot_be_said() -> None:
    def told(task: Task, text: str) -> Report:
        if "f16[" in text and "bf16" not in text:
            return Report(text, rejected="no kernel\nfor Half")
        return wrong(text, signature=RAISES) if "vjp" in text else wrong(text)

    rows = by_value(measured(told))
    assert (rows["f16"].outcome, rows["f16"].why) == (UNSAID, "no kernel for Half")
    assert (rows["vjp"].outcome, rows["vjp"].why) == (OTHER, "raises, it is wrong")
    assert rows["f64"].outcome == FAILS


def test_what_raises_may_raise_in_the_other_direction() -> None:
    def told(task: Task, text: str) -> Report:
        signature = replace(RAISES, direction="forward") if "vjp" in text else RAISES
        return wrong(text, signature=replace(signature, pattern="KeyError") if "f64" in text else signature)

    rows = by_value(measured(told, finding(SLICED, signature=RAISES)))
    assert (rows["vjp"].outcome, rows["f64"].outcome) == (FAILS, OTHER)


def test_the_natural_program_is_varied_and_the_minimal_one_where_that_alone_shows_it() -> None:
    natural = SLICED.replace("[3]", "[5]")
    grown = replace(FOUND, natural=Natural(natural, FOUND.signature, "it is wrong"))
    assert measured(lambda task, text: wrong(text), grown).rows[0].program == natural
    told = measured(lambda task, text: Report(text) if "f32[5]" in text else wrong(text), grown)
    assert told.rows[0].program == SLICED


def test_what_shows_nowhere_has_no_scope() -> None:
    pool: Any = Asked(lambda task, text: Report(text))
    assert vary(FOUND, INDUCTOR, pool, "2026-01-01T00:00:00Z", 60.0) is None


def test_another_backend_has_no_stages_and_no_settings_of_inductor() -> None:
    task = Task(place=Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu")))
    scope = measured(lambda task, text: wrong(text), task=task)
    values = {row.value for row in scope.along("setting", "route")}
    assert scope.stage == ""
    assert "functorch.donated_buffer=False" in values
    assert not [value for value in values if value.startswith("inductor.") or value == "aoti"]


def test_after_its_time_nothing_is_waited_for() -> None:
    class Slow(Asked):
        abandoned = 0

        def submit(self, function: Any, task: Task, what: Any, seconds: float | None = None) -> Future[Report]:
            return super().submit(function, task, what) if what == SLICED or function is record_values else Future()

        def abandon(self, futures: list[Any]) -> None:
            self.abandoned += len(futures)

    pool: Any = Slow(lambda task, text: wrong(text))
    started = time.monotonic()
    scope = vary(FOUND, INDUCTOR, pool, "2026-01-01T00:00:00Z", 1.0)
    assert scope is not None
    assert time.monotonic() - started < 30
    assert {row.why for row in scope.rows[1:]} == {"no time was left"}
    assert {"dtype", "size", "setting"} <= {row.axis for row in scope.rows}
    assert pool.abandoned >= len(scope.rows) - 1


def test_devices_are_those_beside_the_own_and_none_where_two_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.campaign.suspects.varying.default_device_type", lambda: "cuda")
    assert other_devices(INDUCTOR.place) == ["cuda"]
    both = Place(Subject("eager", "cpu"), Subject("inductor", "cuda"))
    assert other_devices(both) == []
    monkeypatch.setattr("fuzzer.campaign.suspects.varying.default_device_type", lambda: "cpu")
    assert other_devices(INDUCTOR.place) == []


@pytest.mark.slow
def test_a_planted_fault_has_its_scope_and_its_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.11 lays out a slice_scatter: of the sum's gradient all n positions are counted, or none. Nothing is
    built here, and no route or setting asked, which say nothing of a formula: tests above do."""
    monkeypatch.setattr(varying, "AXES", tuple(axis for axis in AXES if axis.__name__ not in ("route", "setting")))
    planted = "slice_scatter_of_2_11"
    lowered = Task(place=INDUCTOR.place.at("ir"))
    found = replace(FOUND, signature=Signature("gradients_agree", "wrong", "backward", "all-zero"))
    with Pool(1, ["cpu"], scratch=tmp_path) as pool:
        scope = vary(found, replace(lowered, canary=planted), pool, "2026-01-01T00:00:00Z", 300.0)
        assert vary(found, replace(lowered, canary="slice_scatter_since_2_12"), pool, "", 60.0) is None
    assert scope is not None
    assert str(scope.formula) == "n / (n - k), n = x0.shape[0], k = x1.shape[0]"
    assert scope.summary.startswith("fails in f32, f64, bf16 and f16; where x0.shape[0] > x1.shape[0]; ")
