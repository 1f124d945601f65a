"""What features cost: what is timed, and how it is put together."""

from __future__ import annotations

import json

import pytest
from benches import feedback
from benches.__main__ import main
from benches.feedback import TimedReport, feedback_summary, measure_feedback, run_ways
from click.testing import CliRunner

from fuzzer.coverage.features import TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import show
from fuzzer.trial.draw import draw_program
from fuzzer.workers.messages import Report, Task

EAGER = Task(Place(Subject("eager"), Subject("eager")), seed=4, final=False)


def test_every_way_runs_the_same_program_and_only_one_times_the_parts() -> None:
    plain, structure = (run_ways(EAGER, (1, way)) for way in ("plain", "structure"))
    assert isinstance(plain, TimedReport)
    assert isinstance(structure, TimedReport)
    assert plain.text == structure.text
    assert plain.text in {show(draw_program(EAGER, 1, attempt)) for attempt in range(4)}
    assert min(plain.cpu.values()) > 0
    assert not plain.parts
    assert set(structure.parts) == {*TRACE_FAMILIES, *COMPILED_FAMILIES, *feedback.SHARED, "cotangents"}
    assert structure.cpu["candidate"] > 0
    assert structure.features["operand"]


def row(plain: float, structure: float, lines: float) -> dict[str, Report]:
    parts = dict.fromkeys((*TRACE_FAMILIES, *COMPILED_FAMILIES, *feedback.SHARED, "cotangents"), 0.01)
    cpu = {"drawing": 0.5, "candidate": 0.02}
    ways = {"plain": plain, "structure": structure, "lines": lines}
    return {
        way: TimedReport("", cpu=cpu | {"rest": s, "own": s - 0.5}, parts=parts if way == "structure" else {})
        for way, s in ways.items()
    }


def test_shares_are_of_what_a_program_takes_without_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "learning", lambda reports: 0.02)
    figures = feedback_summary([row(1.5, 1.6, 2.0), row(1.5, 1.5, 1.9)], 0.25)
    assert figures["cpu_seconds_per_program"] == 2.0
    compiled = 0.005 * (len(COMPILED_FAMILIES) + len(feedback.SHARED))  # a hundredth of a second each, of two
    shares = {"trace": 0.015, "compile": pytest.approx(compiled), "lines": 0.05, "campaign": 0.01, "candidates": 0.03}
    assert figures["shares"] == shares
    assert figures["share"] == pytest.approx(0.075 + compiled)
    assert figures["share_with_candidates"] == pytest.approx(0.105 + compiled)
    assert figures["lines"] == {"recorded_share": 0.25, "where_recorded": 0.2, "error": 0.0}
    assert figures["paired"]["structure"] == {"share": 0.025, "error": 0.025}
    assert figures["paired"]["lines"]["share"] == 0.225


def test_who_goes_first_changes_and_what_is_refused_counts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []

    class Asked:
        """A pool whose second program is refused in one way."""

        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *_: object) -> None: ...

        def submit(self, function: object, task: Task, what: tuple[int, str]) -> Asked:
            asked.append(what)
            return self

        def exception(self) -> None: ...

        def result(self, *_: object) -> Report:
            index, way = asked[-1]
            return Report("", rejected="no") if (index, way) == (1, "lines") else row(1.5, 1.6, 2.0)[way]

    monkeypatch.setattr(feedback, "Pool", Asked)
    assert measure_feedback(EAGER, 3)["programs"] == 2
    firsts = [asked[n][1] for n in range(0, 9, 3)]
    assert sorted(firsts) == sorted(feedback.WAYS)
    assert {n for n, _ in asked} == {0, 1, 2}


@pytest.mark.slow
def test_the_command_tells_every_tier_and_family() -> None:
    done = CliRunner().invoke(main, ["feedback", "--programs", "3", "--json"])
    figures = json.loads(done.output.splitlines()[-1])
    assert figures["programs"] > 0
    assert {"trace", "compile", "lines", "candidates", "campaign"} == set(figures["shares"])
    assert {*TRACE_FAMILIES, *COMPILED_FAMILIES} < set(figures["families"])
    assert 0 < figures["shares"]["compile"] < 0.2
