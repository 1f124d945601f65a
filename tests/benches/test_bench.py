"""The measuring tools: the independent bound, the corruptions, and what `scripts/bench` counts."""

from __future__ import annotations

import math
import random
import threading
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benches import bare, sensitivity, throughput
from benches.bound import Bounds, gamma
from benches.sensitivity import KINDS, Corruption, Detections, corrupted, detect, sensitivity_summary
from benches.smallest import Smallest, bisected, smallest, table
from benches.throughput import Bare, Pace, Side, pace

from fuzzer.campaign.schedule import BySeed, WithoutFeedback
from fuzzer.judgement.oracles import verdicts
from fuzzer.judgement.trial import Place, Subject, Trial
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.errors import UsageError
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import nonzero_gradients, run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

EAGER = Task(Place(Subject("eager"), Subject("eager")))

CHAIN = """
program(1)
x0 = leaf({dtype}[5, 7], seed=1)
x1 = leaf({dtype}[7, 3], seed=2)
v0 = matmul(x0, x1)
v1 = sigmoid(v0)
backward(v1, cotangent({dtype}[5, 3], seed=3))
"""
WHOLE = """
program(1)
x0 = leaf(f32[4, 6], values="integers", seed=1)
x1 = leaf(f32[6, 3], values="integers", seed=2)
v0 = matmul(x0, x1)
v1 = sum(v0, dim=1)
backward(v1, cotangent(f32[4], values="integers", seed=3))
"""


def trial_of(text: str) -> Trial:
    with torch.enable_grad():
        return run_both(parse(text), EAGER, Journal(None))


def bounds_of(trial: Trial) -> Bounds:
    assert trial.trace is not None
    return Bounds(trial.program, trial.trace, trial.targets)


@pytest.mark.parametrize(("dtype", "most"), [("f64", 1e-12), ("f32", 1e-4), ("bf16", 0.5), ("f16", 0.1)])
def test_the_bound_covers_eager_and_is_not_vacuous(dtype: str, most: float) -> None:
    trial = trial_of(CHAIN.format(dtype=dtype))
    bounds = bounds_of(trial)
    for name, reference in bounds.reference.items():
        eager = trial.reference.gradients[name.removesuffix(".grad")].double().flatten()
        top = float(reference.abs().max())
        for i, r in enumerate(reference.flatten().tolist()):
            limit = bounds.at(name, i)
            assert limit is not None
            assert abs(float(eager[i]) - r) <= limit <= most * top


def test_a_program_over_integers_has_the_bound_zero() -> None:
    bounds = bounds_of(trial_of(WHOLE))
    assert [bounds.at(name, 0) for name in bounds.reference] == [0.0] * len(bounds.reference) != []


def test_there_is_no_bound_where_a_choice_among_equal_elements_is_free() -> None:
    text = """
program(1)
x0 = leaf(f32[9], values="{values}", seed=1)
v0, v1 = median(x0, dim=0)
backward(v0, cotangent(f32[()], seed=3))
"""
    tied, plain = (bounds_of(trial_of(text.format(values=values))) for values in ("ties", "normal"))
    assert tied.at("x0.grad", 0) is None
    assert plain.at("x0.grad", 0) is not None


def test_there_is_no_bound_where_a_sign_is_free() -> None:
    text = """
program(1)
x0 = leaf(f32[1, 8], values="separated", seed=1)
v0, v1, v2 = svd(x0, full_matrices=False)
backward(v2, cotangent(f32[1, 8], seed=3))
"""
    assert bounds_of(trial_of(text)).at("x0.grad", 0) is None


def test_a_transforms_elements_are_bounded_by_the_largest_and_flushed_subnormals_by_themselves() -> None:
    text = """
program(1)
x0 = leaf(f32[2, 5], values="integers", seed=1)
x1 = leaf(f32[4], values="subnormal", seed=2)
v0 = fftn(x0, dim=(0, 1), s=(5, 7), norm="backward")
v1 = mul(x1, x1)
backward(v0, cotangent(f32[5, 7, 2], values="ones"))
backward(v1, cotangent(f32[4], values="ones"))
"""
    bounds = bounds_of(trial_of(text))
    assert 1e-7 < bounds.at("x0.grad", 1) < 1e-2  # type: ignore[operator]
    flushed = bounds.reference["x1.grad"].abs().flatten()
    assert all(float(flushed[i]) <= bounds.at("x1.grad", i) <= 1e-37 for i in range(4))  # type: ignore[operator]


def test_gamma_is_highams_and_infinite_where_it_says_nothing() -> None:
    assert gamma(10, 2**-24) == pytest.approx(10 * 2**-24, rel=1e-5)
    assert math.isinf(gamma(2**24, 2**-24))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_corruption_changes_something_and_says_where(kind: sensitivity.Corrupt) -> None:
    before = torch.tensor([1.0, 2.0, -3.0, 0.5, 4.0])
    after = before.clone()
    touched = kind(after, random.Random(1))
    assert touched
    assert all(bool(after[i] != before[i]) for i in touched)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_cannot_be_corrupted_is_left_alone(kind: sensitivity.Corrupt) -> None:
    nothing = torch.full((3,), float("nan"))
    assert kind(nothing, random.Random(1)) == []
    assert kind is sensitivity.add_unit or kind(torch.zeros(3), random.Random(1)) == []


def test_a_corrupted_trial_is_judged_anew_and_leaves_the_original_alone() -> None:
    trial = trial_of(CHAIN.format(dtype="f32"))
    assert verdicts(trial) == []
    copy = corrupted(trial, "x0", torch.zeros_like(trial.subject.gradients["x0"]))
    assert [v.signature.verdict for v in verdicts(copy)] == ["wrong"]
    assert copy.model is trial.model
    assert verdicts(trial) == []


def test_corruptions_beyond_the_bound_are_flagged() -> None:
    trial = trial_of(WHOLE)
    with torch.no_grad():
        verdicts(trial)
        tried = detect(trial, "1")
    assert [c.kind for c in tried] == [kind.__name__ for kind in KINDS]
    assert all(c.exceeds and c.flagged == "wrong" for c in tried)


def test_the_share_counts_only_what_exceeds_the_bound() -> None:
    def tried(exceeds: bool, flagged: str) -> Corruption:
        return Corruption("zero_one", "x0", "f32", 0, 1.0, 1.0, 0.0, 0.1, exceeds, flagged)

    text = CHAIN.format(dtype="f32")
    heard = Detections(text, corruptions=(tried(True, "wrong"), tried(True, ""), tried(False, "")))
    figures = sensitivity_summary([heard, Report("", rejected="no")])
    assert (figures["programs"], figures["corruptions"]) == (1, 3)
    assert (figures["exceeding"], figures["flagged"], figures["share"]) == (2, 1, 0.5)
    assert figures["by_dtype"] == {"f32": {"exceeding": 2, "flagged": 1, "share": 0.5}}
    assert len(figures["missed"]) == 1


def test_the_bare_loop_runs_a_program_on_the_backend_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def compile(function: object, **options: object) -> object:
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    bare.run_bare(WHOLE, "inductor", "cpu")
    assert asked == [{"backend": "inductor", "dynamic": False, "fullgraph": True}]


def test_the_bare_loop_stays_under_sixty_lines() -> None:
    assert bare.__file__ is not None
    with open(bare.__file__) as source:
        assert len(source.readlines()) < 60


@pytest.mark.slow
def test_the_bare_loop_goes_on_after_a_program_that_outlasts_the_deadline() -> None:
    with Pool(1, ["cpu"], deadline=0.2) as pool:  # a compile takes longer
        loop = Bare(pool, Task(Place()), 1)
        try:
            assert loop.run([WHOLE, WHOLE])[0] == []
        finally:
            loop.close()
    assert loop.lost == 2


@pytest.mark.slow
def test_the_bare_loop_goes_on_after_processes_that_die() -> None:
    with Pool(1, ["cpu"]) as pool:
        loop = Bare(pool, Task(Place()), 2)
        try:
            for process in loop.processes.values():
                process.kill()
            assert loop.run(["not a program"] * 2)[0] == []
            told, ended = loop.run(["not a program"] * 5)  # which costs its time, as what does not compile
        finally:
            loop.close()
    assert loop.lost == 2
    assert len(told) == 5
    assert 0 < ended.seconds < 60


@pytest.mark.parametrize("able", [True, False])
def test_a_process_of_the_bare_loop_ends_where_its_device_is_lost(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = list[Path]()
    monkeypatch.setattr(bare, "headers_apart", folders.append)
    monkeypatch.setattr(bare, "context_is_usable", lambda device: able)
    texts, told = iter(["not a program", "not a program", None]), list[bool]()
    pipe = SimpleNamespace(recv=lambda: next(texts), send=lambda answer: told.append(answer[-1]))
    bare.serve(pipe, "eager", "cpu", Path("apart"), lambda: None, ())
    assert folders == [Path("apart")]
    assert told == ([True, True] if able else [False])


def test_the_bare_loop_replaces_a_process_whose_device_is_lost() -> None:
    loop = object.__new__(Bare)
    ours, theirs = Pipe()
    other, process = Pipe()[0], SimpleNamespace(kill=lambda: None, join=lambda: None)
    loop.processes, loop.lost, loop._process = {ours: process}, 0, lambda: (other, process)  # type: ignore[method-assign]
    theirs.send((1.0, 0.5, False))
    assert loop._answer(ours) == (1.0, 0.5)  # what it took counts
    assert (list(loop.processes), loop.lost) == ([other], 0)


def test_a_pace_is_that_of_the_time_in_which_every_process_is_busy() -> None:
    ends = [(3.0, True), (1.0, True), (2.0, True), (4.0, False), (30.0, True)]
    assert pace(ends, 2) == Pace(3, 4.0), "from 4 s on one of two had nothing to do"
    assert pace(ends, 5) == Pace(4, 30.0)
    assert pace([(1.0, True), (30.0, False)], 1) == Pace(1, 1.0), "one that hangs at the end"
    assert (Pace(3, 4.0) + Pace(1, 4.0)).rate == 0.5
    assert pace([(30.0, True), (1.0, False), (2.0, False)], 2) == Pace(1, 30.0), "never none where one counts"
    assert pace([], 2).rate == 0.0


def test_the_bare_loop_gets_programs_in_the_order_in_which_the_campaign_began_them() -> None:
    """In the order in which they ended the slow ones would come last, where the pace does not count them."""

    class Slow(WithoutFeedback):
        def submit(self, pool: Any, task: Any, n: int) -> Future[Report]:
            future: Future[Report] = Future()
            threading.Timer(0.3 if n == 7 else 0.0, future.set_result, [Report(f"program {n}")]).start()
            return future

    pool: Any = SimpleNamespace(workers=2, result=lambda future, task: future.result())
    reports, ended = Side(Slow(), begun=7).explored(pool, EAGER, 4)
    assert [report.text for report in reports] == [f"program {n}" for n in (7, 8, 9, 10)]
    assert ended.programs == 3, "while the first ran"


def test_the_bare_loop_gets_what_a_campaign_lost_but_not_what_was_never_drawn() -> None:
    lost = Verdict(Signature("worker_survives", "hangs", "backward", "deadline"), "")
    reports = [
        Report(WHOLE),
        Report(WHOLE.replace("seed=1", "seed=7"), (lost,)),
        Report("# program 3 of seed 0, not drawn yet\n", (lost,)),
        Report(WHOLE, rejected="torch refused it"),
    ]
    assert throughput._begun(reports) == [report.text for report in reports[:2]]
    assert list(map(throughput._ran, reports)) == [True, False, False, False]


@pytest.mark.slow
def test_throughput_tells_shipped_and_unguided_campaigns_apart_and_what_programs_cost() -> None:
    told: list[str] = []
    task = replace(EAGER, routes=("autograd", "vjp"), seed=2)
    figures = throughput.measure_throughput(task, 6, 1, 2, 3, told.append)
    assert told[0] == "6 programs to warm up"
    assert [line.split(":")[0] for line in told[1:]] == [
        f"round {n}, {arm}" for n in (1, 2) for arm in ("shipped", "unguided")
    ]
    for side in (figures, figures["unguided"]):
        cpu = side["cpu_seconds_per_program"]
        assert side["drawn"] == 6
        assert side["cpu_ratio"] == pytest.approx(cpu["bare"] / (cpu["workers"] + cpu["main"]), rel=0.05)
        assert 0 < cpu["main"] < cpu["workers"] < 2  # nothing compiles
        assert side["gradients_per_cpu_minute"] > 100
        assert len(side["ratio_by_round"]) == 2


@pytest.mark.parametrize(("zero", "counted"), [("", 2), (', values="zeros"', 2), (", requires_grad=False", 1)])
def test_a_gradient_counts_that_was_compared_and_is_not_zero(zero: str, counted: int) -> None:
    trial = trial_of(CHAIN.format(dtype="f32").replace("seed=2)", f"seed=2{zero})"))
    assert nonzero_gradients(trial) == counted
    trial.subject.gradients["x0"] = None
    assert nonzero_gradients(trial) == counted - 1
    trial.reference.gradients["x1"] = torch.zeros(7, 3)
    assert nonzero_gradients(trial) == 0


def test_the_smallest_error_flagged_is_bisected() -> None:
    gradient, mask = torch.ones(4), torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    found = bisected(gradient, mask, lambda changed: bool((changed - gradient).abs().max() > 1e-4))
    assert 1e-4 <= found < 1.2e-4
    assert bisected(gradient, mask, lambda changed: False) == math.inf


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_an_error_is_flagged_long_before_a_tolerance_over_the_tensor_tells(dtype: str) -> None:
    with torch.no_grad():
        rows = smallest(trial_of(CHAIN.format(dtype=dtype)), random.Random(1))
    assert [(row.dtype, row.kind) for row in rows] == [(dtype, "one"), (dtype, "whole")]
    one, whole = rows
    eps = {"f64": 2.0**-52, "f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}[dtype]
    assert whole.ours <= one.ours < 200 * eps
    assert one.ours < one.peer


def test_the_table_tells_medians_and_ninetieth_percentiles() -> None:
    rows = [Smallest("f32", "one", float(size), math.inf) for size in range(1, 11)]
    assert table(rows) == {
        "f32 one": {
            "gradients": 10,
            "alarms_of_peer": 0,
            "ours": {"median": 5.0, "p90": 9.0},
            "peer": {"median": "never", "p90": "never"},
        }
    }


def test_without_a_program_that_ran_there_is_no_rate() -> None:
    with pytest.raises(UsageError, match="no program ran on both sides"):
        Side(BySeed()).figures(2)
