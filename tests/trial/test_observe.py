"""Observations: what is compiled runs twice on equal inputs."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch

from fuzzer.judgement.oracles import differing_tensors, verdicts
from fuzzer.judgement.planted import planted
from fuzzer.judgement.planted.runtime import faulty_op
from fuzzer.judgement.trial import RAISED, RAN, Place, Subject
from fuzzer.language.private import replaced_decomposition
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import parse
from fuzzer.trial import observe
from fuzzer.trial.pipeline import report_program
from fuzzer.workers import accelerator
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.workers.light import BODY, LIGHT, trial

OVERLAPPING = """program(1)
route("autograd")
x0 = leaf(f32[64, 4096], stride=(0, 1), seed=1)
v0 = neg(x0)
backward(v0, cotangent(f32[64, 4096], stride=(0, 0), values="ones"))
"""


@pytest.mark.parametrize("route", ANY_BACKEND)
def test_a_second_run_gives_the_same_bits_and_compiles_nothing(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    run = observe.run_again

    def counted(*args: object) -> object:
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        result = run(*args)  # type: ignore[arg-type]
        if result is not None:  # eager does not run again
            counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"] - before)
        return result

    monkeypatch.setattr(observe, "run_again", counted)
    made = trial(route)
    again = made.subject.again
    assert again is not None
    assert again.gradients["x0"] is not made.subject.gradients["x0"]
    assert differing_tensors(made.named(made.subject), made.named(again)) == []
    assert counts == [0]
    assert verdicts(made) == []


def test_the_memory_that_a_stage_takes_is_no_ones_peak() -> None:
    stage = replace(LIGHT, place=Place(Subject("eager"), Subject("inductor:graph")))
    seen = trial(task=stage).subject
    assert seen.again is not None
    assert seen.again.peak is None
    assert seen.built == ""


def test_eager_and_programs_that_write_to_leaves_run_once() -> None:
    eager = replace(LIGHT, place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")))
    assert trial(task=eager).subject.again is None
    writes = BODY.replace("x1 = leaf(", "x2 = leaf(f32[2], requires_grad=False)\nx1 = leaf(").replace(
        "v1 = sin(v0)", "v1 = sin(v0)\nv2 = neg_(x2)"
    )
    assert trial(body=writes).subject.again is None


def test_a_rerun_that_differs_is_asked_about_under_deterministic_algorithms() -> None:
    faulty_op()

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return faulty_op()(grad * (y * (1 - y)), "alternate")

    light = replace(LIGHT, place=Place(Subject("eager", "cpu"), Subject("aot_eager_decomp_partition", "cpu")))
    with replaced_decomposition(torch.ops.aten.sigmoid_backward.default, gradient), planted("", "subject"):
        made = trial(body=BODY.replace("sin", "sigmoid"), task=light)
    assert made.subject.again is not None
    assert differing_tensors(made.named(made.subject), made.named(made.subject.again))
    assert made.subject.admitted == ""
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_vjp_that_cannot_be_compiled_leaves_checkpoints_allowed() -> None:
    """torch 2.13 raises in the middle of tracing it, where it has forbidden hooks of saved tensors."""
    program = parse("""program(1)
route("vjp")
x0 = leaf(f32[3])
x1 = leaf(i64[()], values=below(3))
v0 = take(x0, x1)
backward(v0, cotangent(f32[()]))
""")
    seen = observe.observe(program, Subject("inductor", "cpu"), lambda name: None)
    if torch.__version__.startswith("2.13."):
        assert seen.raised is not None
    held = parse("""program(1)
route("autograd")
x0 = leaf(f32[3])
with checkpoint():
    v0 = sin(x0)
backward(v0, cotangent(f32[3]))
""")
    assert observe.observe(held, Subject("eager", "cpu"), lambda name: None).outcome == RAN


def test_a_process_in_which_nothing_has_a_gradient_any_more_is_given_up() -> None:
    """As a trace leaves it that failed within a transform of torch.func (torch 2.13)."""
    assert not accelerator.context_lost()
    with torch._C._AutoDispatchBelowAutograd():
        assert accelerator.context_lost()
    assert not accelerator.context_lost()


def test_what_holds_memory_of_a_lost_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freed without a context it would abort the worker before that has told what happened."""
    freed = []

    class Held:
        def __del__(self) -> None:
            freed.append(self)

    def fail(name: str) -> None:
        raise RuntimeError("device-side assert triggered")

    def run() -> str:
        held = Held()
        seen = observe.observe(parse(BODY_OF_ONE), Subject("eager", "cpu"), fail)
        assert held is not None
        return seen.outcome

    kept: list[object] = []
    monkeypatch.setattr(observe, "context_is_usable", lambda device: False)
    monkeypatch.setattr(accelerator, "_lost", False)
    monkeypatch.setattr(accelerator, "_KEPT", kept)
    try:
        assert run() == RAISED
        assert accelerator.context_lost()
        assert not gc.isenabled()
        assert freed == []
    finally:
        gc.enable()
    kept.clear()
    gc.collect()
    assert len(freed) == 1


BODY_OF_ONE = """program(1)
route("autograd")
x0 = leaf(f32[3])
v0 = sin(x0)
backward(v0, cotangent(f32[3]))
"""


def test_a_side_may_have_threads_of_its_own() -> None:
    before = torch.get_num_threads()
    with observe.thread_count(Subject("eager", threads=3)):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


def test_threads_do_not_race_for_a_leaf_whose_elements_overlap() -> None:
    task = Task(Place(Subject("eager"), Subject("eager", threads=4)))
    assert report_program(parse(OVERLAPPING), task, Journal(None)).verdict == "agree"
