"""Diagnosis: what each piece says of faults that are known, and what it says when it has no time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer import diagnose
from fuzzer.ablate import STAGES, changes
from fuzzer.canaries import read_program
from fuzzer.diagnose import FIELDS, NO_TIME, Case
from fuzzer.diagnose import diagnose as diagnosed
from fuzzer.evidence import Evidence
from fuzzer.execution.messages import Place, Report, Subject
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine
from fuzzer.issue import issue
from fuzzer.memcheck import memcheck, summary
from fuzzer.private import FP_FUSION, bisect, lacking
from fuzzer.releases import environments, releases
from fuzzer.settings import exists, in_force
from fuzzer.text import parse, show
from fuzzer.verdict import Finding, Signature, Verdict

TASK = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")))
SIGNATURE = Signature("gradients_agree", "wrong", "backward", "all-zero")
PROGRAM = """program(1)
settings({"inductor.max_fusion_size": 4, "inductor.inplace_buffers": False})
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = tanh(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""


def finding(program: str = PROGRAM, signature: Signature = SIGNATURE, **fields: Any) -> Finding:
    place = {"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"}
    return Finding(signature, "x0.grad[0]: compiled 0", program, show(parse(program)), place, 3, 3, **fields)


class FakePool:
    """Answers at once, or never."""

    def __init__(self, answer: Callable[[Any, Task, Any], Report | None]):
        self.answer, self.given_up = answer, 0

    def submit(self, function: Any, task: Task, what: Any) -> Future[Report]:
        future: Future[Report] = Future()
        report = self.answer(function, task, what)
        if report is not None:
            future.set_result(report)
        return future

    def result(self, future: Future[Report], task: Task) -> Report:
        return future.result()

    def abandon(self, futures: set[Future[Report]]) -> None:
        self.given_up += len(futures)


def wrong_if(rule: Callable[[Task, dict[str, Any]], bool]) -> FakePool:
    """A pool where a program is wrong under some tasks and settings, and agrees else."""

    def answer(function: Any, task: Task, what: Any) -> Report:
        shows = function is examine and rule(task, dict(parse(what).settings))
        return Report(what, (Verdict(SIGNATURE, "it is wrong"),) if shows else ())

    return FakePool(answer)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bisector: it opens a process of its own."""
    monkeypatch.setattr(Case, "bisect", lambda case: case.known.notes.setdefault("bisector", "not run: a test"))


def run(pool: Any, found: Finding | None = None, **more: Any) -> Finding:
    return diagnosed(found or finding(), TASK, pool, Path("."), **more)


# ---------------------------------------------------------------- stages and settings


def test_the_first_stage_that_differs_is_named(quick: None) -> None:
    late = ("aot_eager_decomp_partition", "inductor")
    found = run(wrong_if(lambda task, settings: task.place.subject.backend in late))
    assert found.stages == dict(zip(STAGES, ("agree", "agree", "wrong", "wrong"), strict=True))
    assert found.diagnosis["stage"] == "aot_eager_decomp_partition is the first that differs"
    assert found.diagnosis["suspect"].startswith("none")


def test_eager_is_a_stage_like_any_other(quick: None) -> None:
    found = run(wrong_if(lambda task, settings: True))
    assert found.diagnosis["stage"] == "eager is the first that differs"
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
    assert found.diagnosis["vanishes"] == "forward graph uncompiled, backward graph uncompiled"
    assert "does not decide" in found.diagnosis["graph"]


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_the_graph_is_the_one_that_must_be_compiled(kind: str, quick: None) -> None:
    found = run(
        wrong_if(lambda task, s: task.place.subject.backend == "inductor" and f"{kind} graph" not in task.lacking)
    )
    assert found.diagnosis["graph"].startswith(f"{kind}: with this graph uncompiled the difference is gone")


def test_on_a_gpu_tritons_fusion_is_left_out_and_the_cpu_is_tried() -> None:
    there = replace(TASK, place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda")))
    asked = {c.name: c for c in changes(parse(PROGRAM), there)}
    assert asked["fp fusion off"].task.lacking == (FP_FUSION,)
    assert asked["device=cpu"].task.place == TASK.place
    assert not any("cpp." in name for name in asked)


def test_a_route_of_one_backend_has_no_stages_and_one_graph_no_halves() -> None:
    program = parse(PROGRAM.replace("autograd", "aoti"))
    by_name = {c.name: c for c in changes(program, TASK)}
    for stage in ("aot_eager", "aot_eager_decomp_partition"):
        assert by_name[stage].told == "not run: route aoti is for inductor alone"
    assert not any("graph uncompiled" in name for name in by_name)


def test_what_compiles_nothing_has_no_settings_to_try() -> None:
    plain = replace(TASK, place=Place(Subject("eager", "cpu"), Subject("eager", "cuda")))
    bare = replace(parse(PROGRAM), settings=())
    assert list(changes(bare, plain)) == []


# ---------------------------------------------------------------- conclusions

INDUCTOR = dict(zip(STAGES, ("agree", "agree", "agree", "wrong"), strict=True))
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, tangents_1: "f32[4][1]"):
        tanh: "f32[4][1]" = torch.ops.aten.tanh.default(tangents_1)
        mul: "f32[4][1]" = torch.ops.aten.mul.Tensor(tanh, 2)
        return (mul,)"""


def evidence(gone: tuple[str, ...] = (), side: str = "compiled wrong: so", **found: str) -> Evidence:
    known = Evidence(finding(), found=found, notes={"side": side}, files={"backward_graph.py": GRAPH})
    known.tables["stage"] = INDUCTOR
    known.tables["ablation"] = {"inductor.max_fusion_size=1": "wrong", **dict.fromkeys(gone, "agree")}
    known.conclude()
    return known


LEFT = ("aten.tanh.default left to ATen", "aten.mul.Tensor left to ATen")


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (evidence(), "not found beyond the stage inductor"),
        (
            evidence(subsystem="decomposition", info="aten.tanh_backward.default"),
            "the decomposition of aten.tanh_backward.default, which",
        ),
        (evidence(subsystem="post_grad_passes", info="reinplace"), "inductor's pass reinplace (post_grad_passes)"),
        (
            evidence(("inductor.joint_graph_constant_folding=False",), subsystem="joint_graph_passes", info="folding"),
            "inductor's pass folding (joint_graph_passes), gone with inductor.joint_graph_constant_folding=False",
        ),
        (evidence(subsystem="lowerings", info="tanh"), "inductor's code for aten.tanh.default: left"),
        (evidence(LEFT[:1]), "inductor's code for aten.tanh.default: left to ATen, the difference is gone"),
        (evidence(LEFT), "inductor's code that joins aten.tanh.default, aten.mul.Tensor: with any"),
        (evidence(subsystem="inductor_emulate_precision_casts"), "what the bisector calls inductor_emulate_precision"),
        (
            evidence(("fp fusion off", "inductor.emulate_precision_casts=True"), subsystem="lowerings", info="tanh"),
            "fp fusion: a product and a sum rounded once",
        ),
        (evidence(("inductor.cpp.enable_floating_point_contract_flag=off",)), "fp fusion: a product and a sum"),
        (
            evidence(**{"shared backward_graph.py": "diagonal_scatter (aten.diagonal_scatter.default)"}),
            "the layout of diagonal_scatter (aten.diagonal_scatter.default): no view, yet its elements share memory",
        ),
        (evidence(**{"shared forward_graph.py": "of the other graph"}), "not found beyond the stage inductor"),
        (evidence(LEFT[:1], "eager wrong: so"), "eager's own kernel for aten.tanh.default: what is compiled"),
        (
            evidence((), "eager wrong: so", subsystem="decomposition", info="aten.tanh_backward.default"),
            "eager's own kernel for aten.tanh_backward.default: what is compiled instead is right",
        ),
    ],
)
def test_the_culprit_is_the_narrowest_thing_that_was_found(known: Evidence, told: str) -> None:
    assert known.notes["culprit"].startswith(told)


@pytest.mark.parametrize(
    ("side", "told"),
    [
        ("compiled wrong: so", "the kernels of eager@cuda for tanh: eager@cpu is right"),
        ("eager wrong: so", "the kernels of eager@cpu for tanh: eager@cuda is right"),
        ("undecided: so", "not found: no compiler is involved"),
    ],
)
def test_where_no_compiler_is_involved_the_culprit_is_the_side_that_is_wrong(side: str, told: str) -> None:
    place = {"backend": "eager", "against": "eager@cpu", "device": "cuda"}
    known = Evidence(replace(finding(), place=place), notes={"side": side})
    known.conclude()
    assert known.notes["culprit"] == told


def test_what_a_bisector_and_aten_accuse_is_marked_in_the_graph() -> None:
    for known in (evidence(LEFT[:1]), evidence(subsystem="lowerings", info="tanh")):
        assert known.notes["suspect"].startswith("backward_graph.py line 3: tanh")
    assert evidence(shapes="[4]").notes["suspect"].startswith("backward_graph.py line 4: mul")
    assert evidence(shapes="[5]").notes["suspect"] == "none stands out in backward_graph.py"


def test_a_gradient_is_not_looked_for_in_a_graph_that_only_spoils_it() -> None:
    assert evidence(("forward graph uncompiled",), shapes="[4]").shapes() == []
    assert evidence(("backward graph uncompiled",), shapes="[4]").shapes() == ["[4]"]


def test_the_picture_says_why_there_is_none() -> None:
    known = Evidence(finding(before="it was wrong"))
    known.picture({}, "the worker died", {}, "")
    assert known.notes["elements"] == "none: the worker died"
    known.finding = replace(known.finding, original="program(1)")
    known.picture({}, "", {}, "")
    assert (known.notes["ratio"], known.notes["original"]) == ("none: x0.grad[0]", "none: it was wrong")


# ---------------------------------------------------------------- time


def test_a_piece_that_ran_out_of_time_says_so(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "VARIANT_SECONDS", 0.01)
    monkeypatch.setattr(diagnose, "LOOK_SECONDS", 0.01)
    pool = FakePool(lambda function, task, what: None)
    found = run(pool)
    assert pool.given_up > 10
    assert set(found.diagnosis) == set(FIELDS)
    assert found.stages["aot_eager"] == found.ablation["inductor.max_fusion_size=1"] == "not run: no answer in 0 s"
    assert found.diagnosis["elements"] == "none: no answer in 0 s"


def test_a_campaign_whose_time_is_up_leaves_the_diagnosis_to_the_command() -> None:
    def never(*_: Any) -> Report:
        raise AssertionError("nothing is run")

    found = run(FakePool(never), expired=lambda: True)
    assert found.stages["aot_eager"] == f"not run: {NO_TIME}"
    assert found.diagnosis["bisector"] == found.diagnosis["memcheck"] == f"not run: {NO_TIME}"


def test_what_runs_when_the_time_is_up_is_given_up() -> None:
    pool = FakePool(lambda function, task, what: None)
    looks = iter((False, False, True))
    found = run(pool, expired=lambda: next(looks, True))
    assert pool.given_up > 5
    assert found.stages["aot_eager"] == f"not run: {NO_TIME}"


def test_a_death_is_not_given_to_the_bisector() -> None:
    death = finding(signature=Signature("worker_survives", "crashes", "backward", "SIGSEGV"))
    found = run(wrong_if(lambda task, settings: False), death)
    assert found.diagnosis["bisector"] == "not run: the program takes its process with it"


# ---------------------------------------------------------------- the issue


def test_the_issue_shows_the_diagnosis_first_and_folds_what_is_long() -> None:
    found = finding(
        diagnosis={
            "culprit": "the decomposition of aten.tanh",
            "suspect": "static_cast<int>(x)",
            "memcheck": "not run: no GPU",
            "ratio": "all zero",
        },
        attachments={"backward_graph.py": "class GraphModule: ...", "x0.grad.txt": "[2]\n.#"},
        ablation={"inductor.max_fusion_size=1": "wrong"},
    )
    text = issue(found)
    assert "| culprit | the decomposition of aten.tanh |" in text
    assert "| suspect | `static_cast<int>(x)` |" in text
    assert "memcheck" not in text
    assert text.index("| ratio | all zero |") < text.index("import torch") < text.index("<details>")
    assert (
        "<details><summary>`backward_graph.py`</summary>\n\n```python\nclass GraphModule: ...\n```\n\n</details>"
        in text
    )
    assert "<summary>1 single changes</summary>" in text


# ---------------------------------------------------------------- compute-sanitizer

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at triton_poi_fused_0+0x150
========= ERROR SUMMARY: 3 errors
"""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (CLEAN, "no errors"),
        (INVALID, "3 errors, the first: Invalid __global__ write of size 4 bytes"),
        ("", "failed: it printed no summary"),
        ("========= Error: No attachable process found\n", "failed: Error: No attachable process found"),
    ],
)
def test_the_summary_of_the_sanitizer_is_one_line(output: str, told: str) -> None:
    assert summary(output) == told


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake compute-sanitizer on PATH."""
    path = tmp_path / "compute-sanitizer"
    path.write_text(f'#!/bin/sh\ntest "$1$2" = --toolmemcheck && test -s "$4" && cat <<EOF\n{INVALID}EOF\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def on_a_gpu() -> Finding:
    return replace(finding(), place={"device": "cuda", "backend": "inductor", "against": "eager"})


def test_memcheck_runs_the_tool_on_the_script_of_a_gpus_finding(tool: Path) -> None:
    assert memcheck(on_a_gpu()).startswith("3 errors")
    assert memcheck(finding()) == "not run: it is for GPUs"


def test_memcheck_says_when_its_time_is_up(tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    assert memcheck(on_a_gpu(), 0.2) == "ran out of its 0 s"


def test_memcheck_of_a_script_that_cannot_run_is_no_all_clear(tool: Path) -> None:
    tool.write_text(f"#!/bin/sh\ncat <<EOF\n{CLEAN}EOF\nexit 2\n")
    assert memcheck(on_a_gpu()) == "failed: the script ended with status 2; no errors"


def test_memcheck_says_that_there_is_no_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert memcheck(on_a_gpu()) == "not run: no compute-sanitizer on PATH"


# ---------------------------------------------------------------- torch's own parts


def test_what_is_left_out_is_put_back() -> None:
    from torch._inductor import compile_fx, decomposition, lowering
    from torch._inductor.codegen.triton import TritonKernel

    op = torch.ops.aten.tanh_backward.default

    def state() -> tuple[Any, ...]:
        return (
            compile_fx._compile_fx_inner,
            TritonKernel.__dict__["triton_meta_common"],
            decomposition.decompositions.get(op),
            lowering.lowerings.get(op),
            dict(decomposition.fast_random_decomps()),
        )

    before = state()
    for name in (FP_FUSION, "forward graph", "backward graph", "aten.tanh_backward.default"):
        with lacking(name):
            assert state() != before
        assert state() == before


def test_triton_is_told_not_to_fuse() -> None:
    from torch._inductor.codegen.triton import TritonKernel

    assert exists("inductor.emulate_precision_casts")
    with in_force((("inductor.emulate_precision_casts", False),)):
        assert TritonKernel.triton_meta_common()["enable_fp_fusion"] is True
        with lacking(FP_FUSION):
            assert TritonKernel.triton_meta_common()["enable_fp_fusion"] is False


def test_the_bisector_ends_at_the_first_backend_with_which_the_program_differs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._inductor.compiler_bisector import CompilerBisector

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # it removes a folder there

    assert bisect(lambda: True) is None
    assert bisect(lambda: CompilerBisector.get_backend() != "aot_eager") == ("aot_eager", "", 0, "")


# ---------------------------------------------------------------- planted faults, the whole way


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with Pool(2, ["cpu"], scratch=tmp_path_factory.mktemp("pool")) as made:
        yield made


def whole(pool: Pool, program: str, signature: Signature, fault: str = "") -> Finding:
    """A finding with a planted fault, diagnosed with nothing faked."""
    found = diagnosed(finding(program, signature), replace(TASK, canary=fault), pool, pool.scratch)
    assert set(found.diagnosis) == set(FIELDS)
    assert all(found.diagnosis.values())
    return found


def holds(found: Finding, **wanted: str) -> None:
    for name, words in wanted.items():
        assert words in found.diagnosis[name], f"{name}: {found.diagnosis[name]}"


@pytest.mark.slow
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
        bisector="inductor: lowerings",
        culprit="aten.relu.default",
        suspect="forward_graph.py line 3: relu",
    )
    assert "writes a wrong tensor" in found.attachments["forward_code.py"]


@pytest.mark.slow
def test_a_pass_that_contracts_is_diagnosed(pool: Pool) -> None:
    signature = Signature("outputs_agree", "rounding-sensitive", "forward", "other")
    found = whole(pool, read_program("contraction"), signature, "product_not_rounded")
    holds(found, stage="inductor is the first", graph="forward", culprit="post_grad_passes")


@pytest.mark.slow
def test_eagers_own_fault_is_diagnosed(pool: Pool) -> None:
    signature = Signature("gradients_agree", "eager-suspect", "backward", "constant-ratio")
    found = whole(pool, read_program("sigmoid"), signature, "eager_gradient_scaled")
    holds(found, stage="eager is the first", ratio="constant factor 1.01", culprit="eager itself")


@pytest.mark.slow
def test_a_compiler_that_raises_is_diagnosed(pool: Pool) -> None:
    program = show(parse(read_program("three_activations")))
    task = replace(TASK, canary="compiler_raises", fresh=True)
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
@pytest.mark.skipif(torch.__version__ >= "2.12", reason="torch 2.12 mended it")
def test_a_stride_that_no_kernel_can_write_is_diagnosed(pool: Pool) -> None:
    found = whole(pool, SLICE_SCATTER, SIGNATURE)
    holds(
        found,
        stage="inductor is the first",
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


# ---------------------------------------------------------------- other releases


def environment(folder: Path, release: str, script: str) -> Path:
    """A fake environment of a release, whose Python does what this shell script does."""
    python = folder / f".venv-{release}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def test_a_finding_is_tried_on_the_releases_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.releases.ENVIRONMENTS", tmp_path)
    assert environments() == []
    shows = environment(tmp_path, "2.9.1", 'test -s "$1" && echo evidence; exit 1')
    gone = environment(tmp_path, "2.15.0", "echo equal")
    dead = environment(tmp_path, "2.100", "echo ImportError: no torch >&2; exit 1")
    assert environments() == [shows, gone, dead]
    told = releases(finding(), environments())
    assert told.split("; ") == [
        "torch 2.9.1: shows",
        "torch 2.15.0: gone",
        "torch 2.100: failed with status 1: ImportError: no torch",
    ]
    assert releases(finding(), []).startswith("not run: ")
    slow = environment(tmp_path, "3.0", "exec sleep 9")
    assert releases(finding(), [slow], 0.2) == "torch 3.0: ran out of its 0 s"
