"""Diagnosis from end to end: what it says of faults that are known, and what it says when it has no time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fuzzer.campaign.canaries import read_program
from fuzzer.diagnosis import case
from fuzzer.diagnosis import diagnose as diagnosing
from fuzzer.diagnosis.diagnose import FIELDS
from fuzzer.diagnosis.diagnose import diagnose as diagnosed
from fuzzer.diagnosis.evidence import Evidence
from fuzzer.diagnosis.memcheck import EAGER_CORRUPTS
from fuzzer.judgement.trial import Subject
from fuzzer.judgement.verdict import CORRUPT_HEAP, DIES, EAGER_DIES, Finding, Signature, Verdict
from fuzzer.language.text import parse, show
from fuzzer.ledger.diagnosed import DIAGNOSER, NO_TIME, TOO_LONG, diagnosed_by, is_current
from fuzzer.ledger.title import title
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from tests.diagnosis.cases import SIGNATURE, TASK, FakePool, finding, run, wrong_if

# ---------------------------------------------------------------- stages and settings


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_the_graph_is_the_one_that_must_be_compiled(kind: str, quick: None) -> None:
    found = run(
        wrong_if(lambda task, s: task.place.subject.backend == "inductor" and f"{kind} graph" not in task.lacking)
    )
    assert found.diagnosis["graph"].startswith(f"{kind}: with this graph uncompiled the difference is gone")


# ---------------------------------------------------------------- conclusions


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("x0.grad is f64[4], the reference's is f32[4]", "x0.grad"),
        ("c0 does not hold what it held before the backward", "c0"),
        ("something wrote out of bounds in the backward: around x0", "none: something wrote out of bounds"),
        ("compiled and run in 90 CPU seconds; at most 29", "none: compiled and run"),
    ],
)
def test_the_tensor_that_a_detail_begins_with_is_the_one_that_is_told(detail: str, told: str) -> None:
    known = Evidence(replace(finding(), detail=detail))
    known.note_difference({}, "", {}, "")
    assert known.notes["tensors"].startswith(told)


# ---------------------------------------------------------------- time


def test_a_piece_that_ran_out_of_time_says_so(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "VARIANT_SECONDS", 0.01)
    monkeypatch.setattr(case, "LOOK_SECONDS", 0.01)
    pool = FakePool(lambda function, task, what: None)
    found = run(pool)
    assert pool.given_up > 10
    assert diagnosed_by(found) == DIAGNOSER
    assert set(found.diagnosis) == set(FIELDS)
    assert found.stages["aot_eager"] == found.ablation["inductor.max_fusion_size=1"] == "not run: no answer in 0 s"
    assert found.diagnosis["elements"] == "none: no answer in 0 s"


def test_a_campaign_whose_time_is_up_leaves_the_diagnosis_to_the_command() -> None:
    def never(*_: Any) -> Report:
        raise AssertionError("nothing is run")

    found = run(FakePool(never), expired=lambda: True)
    assert found.stages["aot_eager"] == f"not run: {NO_TIME}"
    assert found.diagnosis["bisector"] == found.diagnosis["memcheck"] == f"not run: {NO_TIME}"
    assert not is_current(found)


def test_what_runs_when_the_time_is_up_is_given_up() -> None:
    pool = FakePool(lambda function, task, what: None)
    looks = iter((False, False, True))
    found = run(pool, expired=lambda: next(looks, True))
    assert pool.given_up == 5  # the stages
    assert found.stages["aot_eager"] == f"not run: {NO_TIME}"


def test_a_diagnosis_takes_no_more_than_two_quiet_cores_do_in_its_time(quick: None) -> None:
    ran: list[Any] = []

    def answer(function: Any, task: Task, what: Any) -> Report:
        ran.append(what)
        shows = function is examine and task.place.subject.backend == "inductor"
        return Report(what, (Verdict(SIGNATURE, "it is wrong"),) if shows else (), seconds={"cpu": 12.0})

    found = run(FakePool(answer))
    over = TOO_LONG.format(seconds=case.ALLOWANCE)
    assert 12.0 * len(ran) / 2 >= case.ALLOWANCE  # what had begun together ended together
    assert found.ablation["inductor.max_fusion_size=1"] == found.diagnosis["memcheck"] == f"not run: {over}"
    assert f" ({over})" in found.diagnosis["excludes"]
    assert is_current(found)  # the next one would take as long


def test_a_death_is_not_given_to_the_bisector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "memcheck", lambda finding: "no errors")
    death = finding(signature=Signature("worker_survives", "crashes", "backward", "SIGSEGV"))
    found = run(wrong_if(lambda task, settings: False), death)
    assert found.diagnosis["bisector"] == "not run: the program takes its process with it"
    assert found.side == DIES


def test_where_eager_corrupts_the_heap_it_is_eagers_and_nothing_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"{EAGER_CORRUPTS}: free(): invalid pointer"
    monkeypatch.setattr(diagnosing, "memcheck", lambda finding: told)
    death = finding(signature=Signature("worker_survives", "crashes", "backward", CORRUPT_HEAP))
    asked: list[Any] = []

    def answer(function: Any, task: Task, what: Any) -> Report:
        asked.append(function)
        return Report(what, (Verdict(death.signature, "the worker died"),))

    found = run(FakePool(answer), death)
    assert (found.side, found.diagnosis["side"]) == (EAGER_DIES, f"{EAGER_DIES}: {told}")
    assert found.diagnosis["culprit"] == "eager's own kernels for tanh: they write outside of their memory"
    assert title(found).startswith("eager: ")
    assert set(found.diagnosis) == set(FIELDS)
    assert examine not in asked


# ---------------------------------------------------------------- planted faults, the whole way

SECOND = replace(TASK, final=False)  # what differs here is gross: the final look says nothing more


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time for a machine many times slower: these tests ask for the cause, not for the seconds that it takes."""
    monkeypatch.setattr(case, "ALLOWANCE", 600.0)
    monkeypatch.setattr(case, "BISECT_SECONDS", 300.0)


def whole(pool: Pool, program: str, signature: Signature, fault: str = "") -> Finding:
    """A finding with a planted fault, diagnosed with nothing faked."""
    found = diagnosed(finding(program, signature), replace(SECOND, canary=fault), pool, pool.scratch)
    assert set(found.diagnosis) == set(FIELDS)
    assert all(found.diagnosis.values())
    return found


def holds(found: Finding, **wanted: str) -> None:
    for name, words in wanted.items():
        assert words in found.diagnosis[name], f"{name}: {found.diagnosis[name]}"


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_a_wrong_decomposition_of_one_element_is_diagnosed(pool: Pool) -> None:
    signature = Signature("gradients_agree", "wrong", "backward", "constant-ratio")
    found = whole(pool, read_program("sigmoid"), signature, "one_gradient_element_scaled")
    holds(
        found,
        stage="aot_eager_decomp_partition is the first",
        graph="backward",
        tensors="x0.grad",
        elements="single element",
        ratio="constant factor 1.01",
        bisector="aten.sigmoid_backward.default",
        culprit="the decomposition of aten.sigmoid_backward.default",
        vanishes="aten.sigmoid_backward.default left to ATen",
    )
    assert "sigmoid" in found.attachments["forward_graph.py"]
    assert found.attachments["x0.grad.txt"].count("#") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_a_gradient_of_zeros_in_a_route_of_one_graph_is_diagnosed(pool: Pool) -> None:
    found = whole(pool, read_program("tanh_vjp"), SIGNATURE, "gradient_all_zero")
    holds(found, elements="whole: all", ratio="all zero", culprit="aten.tanh_backward.default")
    assert "joint_graph.py" in found.attachments


RELU = """program(1)
settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy", "inductor.inplace_buffers": False})
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[3, 4], values="ones"))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_wrong_generated_code_under_a_setting_is_diagnosed(pool: Pool) -> None:
    found = whole(pool, RELU, Signature("outputs_agree", "wrong", "forward", "other"))
    needed = "inductor.cpp.inject_relu_bug_TESTING_ONLY"
    holds(
        found,
        stage="inductor is the first",
        graph="forward: with this graph uncompiled the difference is gone",
        tensors="v0",
        elements="whole: all 12",
        ratio="constant offset 1",
        settings=f"appears under {needed}=accuracy (the program sets 2)",
        vanishes=f"{needed} at its default",
        bisector="not run: single changes tell it",
        culprit="aten.relu.default",
        suspect="forward_graph.py line 3: relu",
    )
    assert "writes a wrong tensor" in found.attachments["forward_code.py"]


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_a_pass_that_contracts_is_diagnosed(pool: Pool) -> None:
    signature = Signature("outputs_agree", "rounding-sensitive", "forward", "other")
    found = whole(pool, read_program("contraction"), signature, "product_not_rounded")
    holds(found, stage="inductor:graph is the first", graph="forward", culprit="post_grad_passes")


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_eagers_own_fault_is_diagnosed(pool: Pool) -> None:
    signature = Signature("gradients_agree", "eager-suspect", "backward", "constant-ratio")
    found = whole(pool, read_program("sigmoid"), signature, "eager_gradient_scaled")
    holds(found, stage="eager is the first", ratio="constant factor 1.01", culprit="eager itself")


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_a_compiler_that_raises_is_diagnosed(pool: Pool) -> None:
    program = show(parse(read_program("three_activations")))
    task = replace(SECOND, canary="compiler_raises", fresh=True)
    report = pool.result(pool.submit(examine, task, program), task)
    found = whole(pool, program, report.verdicts[0].signature, "compiler_raises")
    holds(found, stage="aot_eager_decomp_partition is the first", tensors="none", bisector="decomposition")
    holds(found, culprit="aten.sigmoid_backward.default")


SLICE_SCATTER = """program(1)
route("autograd")
x0 = leaf(f32[2, 4], seed=1)
x1 = leaf(f32[2, 1], requires_grad=False, seed=2)
v0 = slice_scatter(x0, x1, dim=1, end=1)
v1 = sum(v0, dim=(1,))
backward(v1, cotangent(f32[2], seed=3))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
@pytest.mark.skipif(torch.__version__ >= "2.12", reason="torch 2.12 mended it")
def test_a_stride_that_no_kernel_can_write_is_diagnosed(pool: Pool) -> None:
    found = whole(pool, SLICE_SCATTER, SIGNATURE)
    holds(
        found,
        stage="inductor:ir is the first",
        graph="backward: with this graph uncompiled",
        tensors="x0.grad",
        elements="tail: dim 1 from 1 to 3 of 4; 6 of 8",
        ratio="all zero",
        settings="torch's defaults",
        vanishes="backward graph uncompiled",
        culprit="the layout of slice_scatter_default (aten.slice_scatter.default)",
        bisector="slice_scatter_default",
        suspect="backward_graph.py",
    )


# ---------------------------------------------------------------- real faults, the whole way


HEAD = """program(1)
route("autograd")
"""
# Of each what is at fault, as torch's sources say, and what is only where it shows.
FAULTS = {
    "donated buffers": (
        """x0 = leaf(f32[()], values="ones")
v0 = polar_parts(x0, x0)
v1 = elu(v0)
backward(v1, cotangent(f32[2], values="ones"))
""",
        "inductor",
        ("functorch.donated_buffer=False", "it shows in aten.exp.default"),
    ),
    "guessed strides": (
        """x0 = leaf(f32[64, 4], stride=(1, 1), values="ones")
v0, v1, v2, v3, v4 = chunk(x0, chunks=5)
backward(v0, cotangent(f32[13, 4], values="arange"))
""",
        "aot_eager_decomp_partition",
        ("strides of cotangents guessed", "functorch.guess_tangent_strides_as_outputs=False"),
    ),
    "functionalization": (
        """x0 = leaf(f32[()], values="tiny")
v0 = neg(x0)
v1 = expand_as(v0, x0)
v2 = square_(v1)
backward(v0, cotangent(f32[()], values="ones"))
""",
        "inductor",
        ("functionalization of writes in place",),
    ),
    "eager's kernel in a layout": (
        """x0 = leaf(f32[1, 2, 1, 2, 1], stride=(2, 1, 1, 2, 2), values="ones")
v0 = batch_norm(x0, running_mean=None, running_var=None, training=True)
backward(v0, cotangent(f32[1, 2, 1, 2, 1], values="arange"))
""",
        "aot_eager_decomp_partition",
        ("eager's own kernel for", "batch_norm", "with every leaf contiguous both agree"),
    ),
    "an operator": (
        """x0 = leaf(f32[1, 1], values="ones")
v0 = avg_pool1d(x0, kernel_size=2, ceil_mode=True)
backward(v0, cotangent(f32[1, 1], values="ones"))
""",
        "inductor",
        ("inductor's code for aten.avg_pool2d_backward.default: left to ATen",),
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_torch_is_convicted_and_not_where_it_shows(pool: Pool, name: str) -> None:
    program, backend, told = FAULTS[name]
    task = replace(SECOND, place=replace(TASK.place, subject=Subject(backend, "cpu")), fresh=True)
    shown = pool.result(pool.submit(examine, task, HEAD + program), task)
    if not shown.verdicts:
        pytest.skip("this torch has it no more")
    found = diagnosed(finding(HEAD + program, shown.verdicts[0].signature), task, pool, pool.scratch)
    for part in told:
        assert part in found.diagnosis["culprit"], found.diagnosis
    assert found.diagnosis["excludes"]
