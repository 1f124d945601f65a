"""Candidates: which is compiled, how it was made, and that it can be run again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from fuzzer.coverage import watch
from fuzzer.generation.knobs import Knobs
from fuzzer.generation.sets import SETS
from fuzzer.guidance import candidates
from fuzzer.guidance.candidates import (
    CANDIDATES,
    CandidateSpec,
    LoggedChoice,
    explore_logged,
    explore_most_novel,
)
from fuzzer.guidance.novelty import SLOTS, FeatureCounts
from fuzzer.judgement.trial import Place, Subject, Trial
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.trial import pipeline
from fuzzer.trial.draw import draw_program
from fuzzer.trial.pipeline import Refused, record_reference, rerun_reference
from fuzzer.workers.messages import Task
from tests.guidance.eager import EAGER

FRESH = (CandidateSpec(),) * CANDIDATES


def test_the_rarest_of_the_candidates_is_compiled() -> None:
    report = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH))
    assert len(report.scores) == CANDIDATES
    ran = [score for score in report.scores if score is not None]
    assert report.scores[report.candidate] == max(ran) or report.redrawn
    assert report.text == show(draw_program(EAGER, 3, report.candidate))
    assert report.features["operand"]
    assert report.features["edge"]


def test_what_was_met_often_is_chosen_no_more() -> None:
    fresh = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH))
    seen = FeatureCounts()
    for _ in range(50):
        seen.add(fresh.features)
    other = explore_most_novel(EAGER, (3, seen.packed(), FRESH))
    assert other.scores[fresh.candidate] < fresh.scores[fresh.candidate]  # type: ignore[operator]
    assert other.candidate != fresh.candidate


def test_the_choice_depends_on_the_task_and_the_counts_alone() -> None:
    seen = FeatureCounts()
    seen.counts[:] = [i % 7 for i in range(SLOTS)]
    once, twice = (explore_most_novel(EAGER, (5, seen.packed(), FRESH)) for _ in range(2))
    assert (once.text, once.scores, once.features) == (twice.text, twice.scores, twice.features)


def test_a_candidate_in_whose_gradients_no_fault_could_show_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    best = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH)).candidate
    deaf = show(draw_program(EAGER, 3, best))
    monkeypatch.setattr(candidates, "is_detectable", lambda trial, journal: show(trial.program) != deaf)
    report = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH))
    assert report.candidate != best
    assert report.redrawn == 1
    monkeypatch.setattr(candidates, "is_detectable", lambda trial, journal: False)
    assert explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH)).candidate == best, "the rarest all the same"


def test_a_program_of_which_every_candidate_is_refused_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Refused("it raised")

    monkeypatch.setattr(candidates, "record_reference", refuse)
    report = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH))
    assert (report.verdict, report.rejected, report.scores) == ("rejected", "it raised", (None,) * CANDIDATES)


def test_candidates_are_only_recorded_and_the_chosen_one_runs_again_unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def once(trial: Trial, *rest: Any) -> Trial:
        ran.append(show(trial.program))
        return rerun_reference(trial, *rest)

    monkeypatch.setattr(pipeline, "rerun_reference", once)
    report = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH))
    assert (report.verdict, ran) == ("agree", [report.text])

    def refuse(*_: Any) -> Any:
        raise Refused("it raised")

    monkeypatch.setattr(pipeline, "rerun_reference", refuse)
    again = explore_most_novel(EAGER, (3, FeatureCounts().packed(), FRESH))
    assert (again.verdict, again.rejected, again.text) == ("rejected", "it raised", report.text)


def test_candidates_run_on_the_cpu_and_the_chosen_one_on_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = replace(EAGER, place=Place(Subject("eager", "cpu:0"), Subject("eager", "cpu:0")))
    ran: list[tuple[str, str]] = []
    refused = ""

    def on(program: Program, task: Task, journal: Any) -> Trial:
        ran.append((task.place.reference.device, show(program)))
        if ran[-1] == ("cpu:0", refused):
            raise Refused("it raised")
        return record_reference(program, task, journal)

    monkeypatch.setattr(candidates, "record_reference", on)
    best = explore_most_novel(elsewhere, (3, FeatureCounts().packed(), FRESH))
    assert (best.verdict, [device for device, _ in ran]) == ("agree", ["cpu"] * CANDIDATES + ["cpu:0"])
    assert ran[-1][1] == best.text == show(draw_program(elsewhere, 3, best.candidate))
    refused = best.text
    second = explore_most_novel(elsewhere, (3, FeatureCounts().packed(), FRESH))
    assert (second.verdict, second.candidate != best.candidate) == ("agree", True)

    def nowhere(program: Program, task: Task, journal: Any) -> Trial:
        if task.place.reference.device != "cpu":
            raise Refused("it raised")
        return record_reference(program, task, journal)

    monkeypatch.setattr(candidates, "record_reference", nowhere)
    last = explore_most_novel(elsewhere, (3, FeatureCounts().packed(), FRESH))
    assert (last.rejected, last.text) == ("it raised", show(draw_program(elsewhere, 3, last.candidate)))


PARENT = """program(1)
route("autograd")
x0 = leaf(f32[4, 6], seed=1)
v0 = exp(x0)
v1 = softmax(v0, dim=1)
backward(v1, cotangent(f32[4, 6], seed=2))
"""


def bred(mutator: str) -> CandidateSpec:
    return CandidateSpec(mutator=mutator, parent=PARENT, donor=PARENT)


def test_mutants_compete_with_fresh_programs_and_run_again_from_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = (bred("append_reduction"), bred("toggle_requires_grad"), CandidateSpec(Knobs(nodes=0.0)), bred("havoc"))
    report, again = (explore_most_novel(EAGER, (3, FeatureCounts().packed(), specs)) for _ in range(2))
    assert (report.text, report.scores) == (again.text, again.scores)
    assert [score is None for score in report.scores] == [False, True, False, False], "no gradient is left"
    assert [one.refused for one in report.stats] == [False, True, False, False]
    assert {"exp", "softmax"} <= set(report.stats[0].ops)
    assert all(one.seconds > 0 for one in report.stats)
    for n in (0, 2):
        alone = explore_most_novel(EAGER, (3, FeatureCounts().packed(), (*specs[:n], specs[n])))
        assert alone.scores[n] == report.scores[n], "each is made by itself"
    monkeypatch.setattr(candidates, "is_detectable", lambda trial, journal: True)
    for n in (0, 2, 3):
        favoured = tuple(replace(spec, weight=100.0 if n == i else 1.0) for i, spec in enumerate(specs))
        assert explore_most_novel(EAGER, (3, FeatureCounts().packed(), favoured)).candidate == n
    mutant = explore_most_novel(EAGER, (3, FeatureCounts().packed(), specs[:1]))
    assert len(parse(mutant.text).nodes) == 3
    assert explore_logged(EAGER, LoggedChoice(3, text=mutant.text)).text == mutant.text


def test_code_from_a_cache_shows_nothing_and_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant may be compiled to the very graphs of its parent: AOTAutograd then hands inductor no graph."""
    hooks: list[Any] = []

    def hooked(hook: Any) -> contextlib.AbstractContextManager[None]:
        hooks.append(hook)
        return contextlib.nullcontext()

    monkeypatch.setattr(watch, "inner_graphs", hooked)
    monkeypatch.setattr(watch, "output_code", hooked)
    with watch.watch_inductor("autograd", lambda: "forward") as seen:
        hooks[1]("def call(args): ...")
    assert not any(seen.words().values())


def test_a_mutant_is_such_a_program_as_the_campaign_draws() -> None:
    fixed = (("inductor.max_fusion_size", 4),)
    report = explore_most_novel(replace(EAGER, fixed=fixed), (3, FeatureCounts().packed(), (bred("append_reduction"),)))
    assert parse(report.text).settings == fixed
    few = replace(EAGER, ops=("exp", "softmax", *SETS["core"]))
    grown = [explore_most_novel(few, (n, FeatureCounts().packed(), (bred("insert_node"),))) for n in range(8)]
    texts = [report.text for report in grown if not report.rejected]
    assert len(texts) > 3
    assert all(node.op in few.ops for text in texts for node in parse(text).nodes)
    alone = replace(EAGER, routes=("autograd",))
    for n in range(4):
        refused = explore_most_novel(alone, (n, FeatureCounts().packed(), (bred("reroute"),))).rejected
        assert refused == "reroute made no other program"
