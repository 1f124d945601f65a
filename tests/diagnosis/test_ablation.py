"""One change after the other: the stage, the settings and the ops without which a finding is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzzer.diagnosis.ablation import STAGES, ablations, all_off, by_kind, changes, with_copies, without_region
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.private import FP_FUSION
from fuzzer.language.text import parse, show
from fuzzer.ledger.cause import IN_ORDER
from fuzzer.workers.messages import Report, Task
from tests.diagnosis.cases import PROGRAM, TASK, run, wrong_if


def test_the_first_stage_that_differs_is_named(quick: None) -> None:
    late = list(STAGES)[2:]
    found = run(wrong_if(lambda task, settings: task.place.subject.backend in late))
    assert found.stages == dict(zip(STAGES, ["agree"] * 2 + ["wrong"] * 4, strict=True))
    told = "aot_eager_decomp_partition is the first that differs: a decomposition or the partitioner"
    assert found.diagnosis["stage"] == told
    assert found.diagnosis["suspect"].startswith("none")


def test_a_stage_that_could_not_run_the_program_says_nothing(quick: None) -> None:
    pool = wrong_if(lambda task, settings: task.place.subject.backend.startswith("inductor"))
    answer = pool.answer

    def built(function: Any, task: Task, what: Any) -> Report | None:
        report = answer(function, task, what)
        return replace(report, built="operation: rand") if report and task.place.subject.stage else report

    pool.answer = built
    found = run(pool)
    assert found.stages["inductor:ir"] == "not run: built (operation: rand)"
    assert found.diagnosis["stage"] == "inductor is the first that differs: code generation"


def test_eager_is_a_stage_like_any_other(quick: None) -> None:
    found = run(wrong_if(lambda task, settings: True))
    assert found.diagnosis["stage"] == "eager is the first that differs: eager itself"
    assert found.diagnosis["culprit"].startswith("eager itself")


@pytest.mark.parametrize(
    ("needed", "told"),
    [
        ({}, "torch's defaults"),
        ({"inductor.max_fusion_size": 4}, "inductor.max_fusion_size=4"),
        ({"inductor.inplace_buffers": False}, "inductor.inplace_buffers=False"),
        (
            {"inductor.max_fusion_size": 4, "inductor.inplace_buffers": False},
            "inductor.inplace_buffers=False, inductor.max_fusion_size=4",
        ),
    ],
)
def test_the_smallest_part_of_the_settings_is_found(needed: dict[str, Any], told: str, quick: None) -> None:
    def rule(task: Task, settings: dict[str, Any]) -> bool:
        return task.place.subject.backend == "inductor" and needed.items() <= settings.items()

    found = run(wrong_if(rule))
    assert found.diagnosis["settings"] == f"appears under {told} (the program sets 2)"
    for name in ("inductor.max_fusion_size", "inductor.inplace_buffers"):
        assert (found.ablation[f"{name} at its default"] == "agree") == (name in needed)
        assert (f"{name} at its default" in found.diagnosis["vanishes"]) == (name in needed)


def test_every_single_change_of_the_list_is_tried_and_what_is_so_already_is_not_run(quick: None) -> None:
    found = run(wrong_if(lambda task, settings: task.place.subject.backend == "inductor" and not task.lacking))
    for name in ("emulate_precision_casts=True", "max_fusion_size=1", "pattern_matcher=False"):
        assert found.ablation[f"inductor.{name}"] == "wrong"
    assert found.ablation["inductor.layout_optimization=False"] == "wrong"
    assert found.ablation["inductor.cpp.enable_floating_point_contract_flag=off"] == "'off' already"
    told = found.diagnosis["vanishes"].split(", ")
    assert {"forward graph uncompiled", "backward graph uncompiled", "outer-loop fusion off"} <= set(told)
    assert "does not decide" in found.diagnosis["graph"]


def test_on_a_gpu_tritons_fusion_is_left_out_and_single_configs_and_the_cpu_are_tried() -> None:
    there = replace(TASK, place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda")))
    asked = {c.name: c for c in ablations(parse(PROGRAM), there)}
    assert asked["fp fusion off"].task.lacking == (FP_FUSION,)
    assert "outer-loop fusion off" not in asked
    assert {"triton.config=0", "triton.config=1"} <= set(asked)
    assert asked["device=cpu"].task.place == TASK.place
    assert not any("cpp." in name for name in asked)


def test_a_route_of_one_backend_has_no_stages_and_one_graph_no_halves() -> None:
    program = parse(PROGRAM.replace("autograd", "aoti"))
    by_name = {c.name: c for c in ablations(program, TASK)}
    for stage in ("aot_eager", "aot_eager_decomp_partition"):
        assert by_name[stage].skipped == "not run: route aoti is for inductor alone"
    assert not any("graph uncompiled" in name for name in by_name)


def test_what_compiles_nothing_has_no_settings_to_try() -> None:
    plain = replace(TASK, place=Place(Subject("eager", "cpu"), Subject("eager", "cuda")))
    bare = replace(parse(PROGRAM), settings=())
    assert list(ablations(bare, plain)) == []


# ---------------------------------------------------------------- switches


def test_what_acts_after_the_difference_began_is_not_asked_and_says_so() -> None:
    first = {a.name: a for a in changes(parse(PROGRAM), TASK, "inductor:graph")}
    assert first["inductor.inplace_buffers=False"].skipped == "False already"
    assert "acts at inductor:ir" in first["functorch.donated_buffer=False"].skipped
    assert not first["inductor.shape_padding=False"].skipped
    late = {a.name: a for a in changes(parse(PROGRAM), TASK, "inductor")}
    assert not late["functorch.donated_buffer=False"].skipped


def test_where_each_change_is_a_build_all_of_a_kind_are_tried_at_once() -> None:
    program = parse(PROGRAM)
    some = by_kind(changes(program, TASK, "inductor"))["memory"]
    group = all_off("memory", program, TASK, some)
    assert group.name == "all memory off"
    assert {"functorch.donated_buffer=False", "inductor.allow_buffer_reuse=False"} < {a.name for a in some}
    settings = dict(group.program.settings)
    assert settings["functorch.donated_buffer"] is settings["inductor.allow_buffer_reuse"] is False
    assert settings["inductor.max_fusion_size"] == 4  # the program's own


def test_a_kind_that_changes_nothing_is_not_taken_apart(quick: None) -> None:
    def built(task: Task, settings: dict[str, Any]) -> bool:
        return task.place.subject.backend == "inductor"

    found = run(wrong_if(built))
    assert found.ablation["all switches off"] == "wrong"
    assert found.ablation["functorch.donated_buffer=False"] == "not run: all switches off, it shows still"
    assert "not found" in found.diagnosis["culprit"]
    fused = run(
        wrong_if(lambda task, settings: built(task, settings) and settings.get("inductor.max_fusion_size") != 1)
    )
    assert fused.ablation["all switches off"] == fused.ablation["all fusion off"] == "agree"
    assert fused.ablation["functorch.donated_buffer=False"] == "not run: all memory off, it shows still"
    assert fused.diagnosis["culprit"].startswith("the fusion of kernels")


def test_leaves_that_are_not_in_order_are_tried_in_order() -> None:
    asked = {a.name: a for a in ablations(parse(PROGRAM), TASK)}
    assert IN_ORDER not in asked
    strided = parse(PROGRAM.replace("f32[4], seed=1", "f32[4], stride=(2,), seed=1"))
    (leaf,) = {a.name: a for a in ablations(strided, TASK)}[IN_ORDER].program.leaves
    assert leaf.stride == (1,)


# ---------------------------------------------------------------- changes of the program that are asked for by name

WRITTEN = """program(1)
route("autograd")
x0 = leaf(f32[2], requires_grad=False)
x1 = leaf(f32[2])
with hook(scale=2.0):
    v0 = sin_(x0)
v1 = mul(v0, x1)
backward(v1, cotangent(f32[2]))
"""


def test_a_region_is_taken_away_and_its_statements_stay() -> None:
    found = without_region(parse(WRITTEN), TASK, "hook")
    assert found.name == "without its hook"
    assert show(found.program) == WRITTEN.replace("with hook(scale=2.0):\n    ", "")
    assert without_region(parse(WRITTEN), TASK, "vmap").program == parse(WRITTEN)


def test_a_leaf_that_is_written_is_copied_before_and_left_as_it_is() -> None:
    copied = with_copies(parse(WRITTEN), TASK).program
    assert show(copied) == WRITTEN.replace("sin_(x0)", "sin_(x0_copy)").replace(
        "with hook", "x0_copy = clone(x0)\nwith hook"
    )
    plain = parse(WRITTEN.replace("sin_", "sin"))
    assert with_copies(plain, TASK).program == plain
