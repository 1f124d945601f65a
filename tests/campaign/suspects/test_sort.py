"""A suspect sorted: its first stage, its slice, its statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from fuzzer.campaign.suspects import sort as sorting
from fuzzer.campaign.suspects.sort import STAGE, core_of, is_sortable, keep_differing, places, sort
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Comparison, Signature, Verdict
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.trial import pipeline
from fuzzer.trial.pipeline import REFUSED, report_again, report_program, run_reference
from fuzzer.workers.journal import Journal, journal
from fuzzer.workers.messages import Report, Task
from minimizer.rewrite import Types
from tests.campaign.fakes import OTHER, SIGNATURE

LONG = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
x1 = leaf(f32[4], seed=2)
v0 = sin(x0)
v1 = relu(v0)
v2 = exp(x1)
backward(v1, cotangent(f32[4], values="ones"))
backward(v2, cotangent(f32[4], values="ones"))
"""
RELU = Verdict(SIGNATURE, "x0.grad[2]: compiled 0, eager 1", (Comparison("x0.grad", (2,), 1, 0, 1, 1e-7, 1, 4),))
TASK = Task(place=Place(Subject("eager"), Subject("inductor")))
DOUBLED = Signature("gradients_agree", "wrong", "backward", "constant-ratio")
Shows = Callable[[Program, Task], tuple[Verdict, ...]]


def judge(monkeypatch: pytest.MonkeyPatch, shows: Shows) -> list[tuple[str, str]]:
    """Have `sort` see these verdicts in place of trials. Gives the backend and the text of each trial."""
    ran: list[tuple[str, str]] = []

    def report(program: Program, task: Task, log: Journal) -> Report:
        assert not task.final, "that look waits until code is built"
        ran.append((task.place.subject.backend, show(program)))
        return Report(show(program), shows(program, task))

    monkeypatch.setattr(sorting, "run_reference", lambda program, task, log: program)
    for name in ("report_program", "report_again"):
        monkeypatch.setattr(sorting, name, report)
    return ran


def ops(program: Program) -> list[str]:
    return [node.op for node in program.nodes]


def relu_at(*backends: str) -> Shows:
    return lambda program, task: (RELU,) * ("relu" in ops(program) and task.place.subject.backend in backends)


def test_stages_come_in_the_order_of_the_compiler_and_the_suspects_own_place_last() -> None:
    def backends(backend: str) -> list[str]:
        return [str(place.subject) for place in places(Place(Subject("eager"), Subject(backend, "cpu", 2)))]

    before = ["eager@cpu/2", "aot_eager@cpu/2", "aot_eager_decomp_partition@cpu/2"]
    assert backends("inductor") == [*before, "inductor:graph@cpu/2", "inductor:ir@cpu/2", "inductor@cpu/2"]
    assert backends("aot_eager") == before[:2]
    assert backends("flag_gems") == ["flag_gems@cpu/2"]


def test_what_ends_the_worker_or_needs_other_settings_is_not_sorted() -> None:
    assert is_sortable(SIGNATURE)
    assert not is_sortable(OTHER)
    assert not is_sortable(replace(SIGNATURE, verdict="nondeterministic"))
    assert not is_sortable(replace(SIGNATURE, oracle="settings_agree"))


def test_the_core_has_the_statements_that_are_needed_at_the_first_stage_that_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = judge(monkeypatch, relu_at("inductor:graph", "inductor:ir"))
    core = core_of(sort(TASK, (LONG, SIGNATURE, 60.0)), SIGNATURE)
    assert core is not None
    assert (ops(core.program), core.stage, core.signature) == (["relu"], "inductor:graph", SIGNATURE)
    assert [backend for backend, _ in ran][:4] == ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor:graph"]
    assert "inductor:ir" not in {backend for backend, _ in ran}
    assert ops(parse(ran[4][1])) == ["sin", "relu"], "the outputs that do not depend on x0 go first"


def test_what_only_code_shows_is_cut_there(monkeypatch: pytest.MonkeyPatch) -> None:
    judge(monkeypatch, relu_at("inductor"))
    core = core_of(sort(TASK, (LONG, SIGNATURE, 60.0)), SIGNATURE)
    assert core is not None
    assert (ops(core.program), core.stage, core.builds) == (["relu"], "inductor", 0)


def test_what_does_not_show_again_has_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    judge(monkeypatch, lambda program, task: ())
    report = sort(TASK, (LONG, SIGNATURE, 60.0))
    assert core_of(report, SIGNATURE) is None
    assert report.notes == {}


def test_a_core_is_not_run_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = judge(monkeypatch, relu_at("eager"))
    core = core_of(sort(TASK, (LONG, SIGNATURE, 60.0)), SIGNATURE)
    assert core is not None
    assert len(ran) == len({text for _, text in ran}), "the Report of the smallest candidate is the core's"


def test_candidates_that_show_another_finding_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = Verdict(OTHER, "SIGSEGV")
    judge(
        monkeypatch, lambda p, task: (RELU,) if "sin" in ops(p) and "relu" in ops(p) else (crash,) * (len(p.nodes) < 2)
    )
    report = sort(TASK, (LONG, SIGNATURE, 60.0))
    assert report.notes[STAGE] == "eager"
    assert list(report.files) == [str(OTHER)]


def test_a_program_that_no_stage_can_run_is_not_looked_for_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = judge(monkeypatch, lambda program, task: ())
    program = parse(LONG.replace('"autograd"', '"aoti"'))
    sort(TASK, (show(program), SIGNATURE, 60.0))
    assert not [backend for backend, _ in ran if ":" in backend]


def test_outputs_are_kept_that_depend_on_what_differs() -> None:
    program = parse(LONG)
    [kept] = keep_differing(RELU)(program, Types({}, dict))
    assert ops(kept) == ["sin", "relu"]
    everything = replace(RELU, comparisons=(*RELU.comparisons, replace(RELU.comparisons[0], name="v2")))
    assert list(keep_differing(everything)(program, Types({}, dict))) == []


def test_a_suspect_is_cut_to_what_it_needs_at_the_first_stage_that_shows_it() -> None:
    report = sort(Task(canary="gradients_doubled"), (LONG, DOUBLED, 60.0))
    core = core_of(report, DOUBLED)
    assert core is not None
    assert (core.stage, len(core.program.nodes)) == ("eager", 1)
    assert core.verdict.comparisons
    assert core.before.startswith("x")


def test_each_stage_reports_as_it_does_alone_and_the_reference_runs_once() -> None:
    program, task, log = parse(LONG), Task(canary="gradients_doubled"), journal()
    trial = run_reference(program, task, log)
    for backend in ("eager", "aot_eager"):
        at = replace(task, place=task.place.on(backend), final=False)
        again, alone = report_again(trial, at, log), report_program(program, at, log)
        assert again.verdicts
        assert [(v.signature, v.comparisons) for v in again.verdicts] == [
            (v.signature, v.comparisons) for v in alone.verdicts
        ]
        assert (again.detectable, again.elements) == (alone.detectable, alone.elements)
    with patch.object(pipeline, "_observe_reference", side_effect=AssertionError("it runs again")):
        assert report_again(trial, at, log).verdicts


def test_a_stage_that_cannot_run_the_route_refuses_it_without_a_run() -> None:
    program, at = parse(LONG.replace('"autograd"', '"aoti"')), replace(TASK, place=TASK.place.on("aot_eager"))
    again = report_again(run_reference(program, TASK, journal()), at, journal())
    assert "route aoti is for the backend" in again.rejected
    assert again.rejected == report_program(program, at, journal()).rejected


def test_an_error_that_torch_promises_is_sorted_too() -> None:
    text, task = LONG.replace("relu(", "sigmoid("), replace(TASK, canary="eager_refuses")
    program = parse(text)
    with pytest.raises(REFUSED):
        run_reference(program, task, journal())
    [verdict] = report_program(program, replace(task, place=task.place.on("aot_eager")), journal()).verdicts
    report = sort(task, (text, verdict.signature, 60.0))
    assert report.notes[STAGE] == "aot_eager"


def test_no_smaller_core_is_looked_for_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    judge(monkeypatch, relu_at("aot_eager"))
    core = core_of(sort(TASK, (LONG, SIGNATURE, 0.0)), SIGNATURE)
    assert core is not None
    assert (core.stage, show(core.program)) == ("aot_eager", LONG)
