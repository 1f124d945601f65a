"""What stages cost and hear."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from benches import stages
from benches.__main__ import main
from benches.stages import FULL, Row, StageReport, figures
from click.testing import CliRunner

from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.workers.messages import Report, Task
from tests.benches.here import Here

WRONG = Verdict(Signature("gradients_agree", "wrong", "backward", "scattered"), "x0.grad[2]: compiled 0, eager 1")
OTHER = Verdict(Signature("gradients_agree", "wrong", "backward", "all zero"), "x0.grad[2]: compiled 0, eager 1")
LANES = Verdict(Signature("compile_does_not_raise", "raises", "forward", "Faulty < call"), "lane 3 of 4 stores to buf0")
RAISES = Verdict(Signature("compile_does_not_raise", "raises", "forward", "KeyError < call"), "KeyError")


def row(what: str, ir: Report, full: Report) -> Row:
    return Row(what, {"ir": ir, FULL: full})


def report(*verdicts: Verdict, milliseconds: float = 0.0, **told: Any) -> StageReport:
    return StageReport("program(1)", verdicts, milliseconds=milliseconds, **told)


def test_the_cost_is_that_of_what_a_stage_ran_itself() -> None:
    rows = [
        row("0", report(milliseconds=300), report(milliseconds=2000)),
        row("1", report(milliseconds=500), report(milliseconds=3000)),
        row("2", report(milliseconds=9000, built="route: aoti"), report(milliseconds=9000)),
        row("3", Report("", rejected="torch: no"), Report("", rejected="torch: no")),
    ]
    found = figures(rows, [], ["ir", FULL])
    assert found["programs"] == 3
    assert found["stages"]["ir"]["milliseconds"] == 400
    assert (found["stages"]["ir"]["built_share"], found["stages"]["ir"]["built"]) == (0.3333, {"route: aoti": 1})
    assert found["stages"][FULL]["built"] == {}


def test_a_finding_is_visible_by_its_class_or_as_faulty() -> None:
    agrees = report()
    rows = [
        row("same", report(WRONG), report(WRONG)),
        row("class", report(OTHER), report(WRONG)),
        row("faulty", report(LANES), report(WRONG)),
        row("else", report(RAISES), report(WRONG)),
        row("lost", agrees, report(WRONG)),
        row("not here", agrees, agrees),
    ]
    found = figures([], rows, ["ir", FULL])
    assert (found["findings"], found["shown_here"]) == (6, 5)
    assert found["stages"]["ir"]["visible_share"] == 0.6
    assert found["stages"]["ir"]["same_signature_share"] == 0.2
    assert [lost["finding"] for lost in found["lost"]["ir"]] == ["else", "lost"]
    assert found["lost"]["ir"][1]["full"] == str(WRONG.signature)


def test_what_only_a_stage_shows_is_an_alarm() -> None:
    rows = [
        row("3", report(WRONG), report()),
        row("4", report(WRONG), report(WRONG)),
        row("5", report(), report(WRONG)),
    ]
    found = figures(rows, [], ["ir", FULL])
    assert [(alarm["stage"], alarm["program"], alarm["class"]) for alarm in found["alarms"]] == [("ir", "3", "wrong")]
    assert found["alarms"][0]["text"] == "program(1)"
    assert (found["fresh_shown"], found["fresh_lost"]) == (2, {"ir": ["5"]})


@pytest.mark.slow
def test_the_command_runs_fresh_programs_at_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "Pool", Here)
    given = ["stages", "--programs", "1", "--no-findings", "--full", "none", "--workers", "1", "--json"]
    done = CliRunner().invoke(main, given)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["programs"] == 1
    assert list(found["stages"]) == ["graph", "ir"]
    assert all(stage["milliseconds"] > 0 for stage in found["stages"].values())


def test_only_what_a_stage_shows_is_compiled_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def stream(pool: Any, function: Any, task: Task, items: Iterable[Any]) -> list[tuple[Any, Report]]:
        backend = task.place.subject.backend
        numbers = list(items)
        asked.extend((backend, number) for number in numbers)
        return [(n, report(WRONG) if backend.endswith(":ir") and n == 1 else report()) for n in numbers]

    monkeypatch.setattr(stages, "stream", stream)
    monkeypatch.setattr(stages, "Pool", lambda *given: nullcontext())
    task = Task(Place(Subject("eager", "cpu"), Subject("inductor", "cpu")))
    found = stages.measure_stages(task, 3, None, stages.SHOWN, 1, lambda line: None, ["ir"])
    assert [number for backend, number in asked if backend == "inductor"] == [1]
    assert [alarm["program"] for alarm in found["alarms"]] == ["1"]
