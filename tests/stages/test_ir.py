"""The stage `ir`: everything but the kernels' text. What is sound agrees there; what is planted is heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.generation.vocabulary import vocabulary
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.devices import DEVICES
from fuzzer.language.ops.spec import Limits
from fuzzer.language.private import output_code, replaced_decomposition, replaced_lowering
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.stages import elementwise, in_force
from fuzzer.trial import observe
from fuzzer.workers.messages import Task
from tests.drawn import LEAST, drawn
from tests.stages.bodies import GRAPH, IR, agrees, examined, found_faulty
from tests.workers.light import BODY

CORPUS = Path(__file__).parents[2] / "corpus"
SIGMOID = f'program(1)\nroute("autograd")\n{BODY.replace("sin", "sigmoid")}'
# exp is kept in a buffer of its own, and read across
ACROSS = """program(1)
settings({"inductor.realize_reads_threshold": 0})
route("autograd")
x0 = leaf(f32[6, 6], seed=1)
v0 = exp(x0)
v1 = flip(v0, dims=[0])
v2 = mul(v1, v0)
backward(v2, cotangent(f32[6, 6], seed=3))
"""
# a matrix product, which no kernel of inductor's computes, is read once, across
REUSED = """program(1)
route("autograd")
x0 = leaf(f32[6, 6], seed=1)
x1 = leaf(f32[6, 6], seed=2)
v0 = mm(x0, x1)
v1 = flip(v0, dims=[0])
backward(v1, cotangent(f32[6, 6], seed=3))
"""
TRANSPOSED = """program(1)
route("autograd")
x0 = leaf(f32[5, 7], stride=(1, 5), values="integers", seed=3)
v0 = argmax(x0)
v1 = sum(x0)
returns(v0)
backward(v1, cotangent(f32[()]))
"""
SEEDS = ("select_scatter_mean", "softmax_rows", "index_repeated", "embedding_repeated", "inplace_after_use",
         "padding_reflect", "sort_values", "upsample_nearest", "dropout_kept")  # fmt: skip


@pytest.mark.parametrize("route", ANY_BACKEND)
def test_a_sound_program_agrees_on_every_route(route: str) -> None:
    agrees(examined(IR, SIGMOID.replace("autograd", route)))


@pytest.mark.parametrize("name", SEEDS)
def test_a_program_of_the_corpus_agrees_and_is_not_built(name: str) -> None:
    agrees(examined(IR, (CORPUS / "seeds" / f"{name}.prog").read_text()))


def test_a_position_is_found_where_loops_run_in_another_order_than_the_tensor() -> None:
    report = examined(IR, TRANSPOSED)
    assert (report.rejected, report.built) == ("", "")
    assert report.verdict == "agree" or torch.__version__ < "2.13"  # 2.11's loops name the wrong element on a CPU


def few_differ(task: Task, device: str) -> None:
    """Assert that of drawn programs few differ at a stage, each just so where it is built, and that it runs most of
    them itself."""
    agrees(examined(task, SIGMOID))  # a process's first program pays for its imports, which can look costly
    limits = Limits()
    programs = drawn(range(10), vocabulary(limits, ()), limits, ANY_BACKEND, device)
    reports = [examined(task, program) for program in programs]
    alike = ("agree", "rejected", "costly")  # what a stage takes is its own, and other work's beside it
    differ = [(p, r.verdict) for p, r in zip(programs, reports, strict=True) if r.verdict not in alike]
    assert len(differ) <= 0.1 * len(programs)
    built = replace(task, place=replace(task.place, subject=replace(task.place.subject, backend="inductor")))
    assert [examined(built, program).verdict for program, _ in differ] == [said for _, said in differ]
    ran = [r for r in reports if not r.rejected]
    assert len(ran) >= LEAST * len(programs)
    assert sum(bool(r.built) for r in ran) <= 0.1 * len(ran)


@pytest.mark.slow
def test_drawn_programs_agree_and_few_are_built() -> None:
    few_differ(IR, "cpu")


# ---------------------------------------------------------------- faults


def test_a_wrong_decomposition_is_heard() -> None:
    with replaced_decomposition(torch.ops.aten.sigmoid_backward.default, lambda grad, y: grad * y):
        assert examined(IR, SIGMOID).verdict == "wrong"


def test_a_wrong_lowering_is_heard_and_not_by_the_graph() -> None:
    def hyperbolic(before: Any, backward: bool, x: Any) -> Any:
        from torch._inductor import lowering

        return lowering.lowerings[torch.ops.aten.tanh.default](x)

    with replaced_lowering(torch.ops.aten.sigmoid.default, hyperbolic):
        assert examined(IR, SIGMOID).verdict == "wrong"
        agrees(examined(GRAPH, SIGMOID))


def test_a_lowering_that_reads_outside_its_buffer_is_faulty() -> None:
    def shifted(before: Any, backward: bool, x: Any) -> Any:
        from torch._inductor import ir

        load = x.make_loader()
        return ir.Pointwise.create(
            device=x.get_device(),
            dtype=x.get_dtype(),
            inner_fn=lambda index: load([index[0], index[1] + 1]),
            ranges=x.get_size(),
        )

    with replaced_lowering(torch.ops.aten.sigmoid.default, shifted):
        found_faulty(examined(IR, SIGMOID))


def test_an_illegal_fusion_is_faulty_and_the_legal_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(examined(IR, ACROSS))
    monkeypatch.setattr("torch._inductor.scheduler.Scheduler.can_fuse_vertical", lambda *_, **__: True)
    found_faulty(examined(IR, ACROSS))
    agrees(examined(IR, ACROSS.replace("flip(v0, dims=[0])", "sin(v0)")))


def test_memory_that_is_reused_too_early_is_faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(examined(IR, REUSED))
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr("torch._inductor.scheduler.NodeUser.can_inplace", always, raising=False)
    found_faulty(examined(IR, REUSED))
    agrees(examined(IR, REUSED.replace("flip(v0, dims=[0])", "sin(v0)")))


# ---------------------------------------------------------------- what is left to the compiler


def test_no_kernel_is_written() -> None:
    codes: list[str] = []
    with output_code(codes.append):
        agrees(examined(IR, SIGMOID))
    assert "run_kernel(" in "".join(codes)
    assert "cpp_pybinding" not in "".join(codes)


@pytest.mark.slow
def test_neither_a_stage_nor_the_full_compile_finds_the_others_code() -> None:
    cached, codes = replace(IR, fresh=False), list[str]()
    full = replace(cached, place=Place(Subject("eager"), Subject("inductor")))
    with output_code(codes.append):
        for task in (cached, full, cached, full):
            agrees(examined(task, SIGMOID))
    assert ["run_kernel(" in code for code in codes[:2]] == [True, True]
    assert all("run_kernel(" not in code for code in codes[2:4])
    assert ["run_kernel(" in code for code in codes[4:6]] == [True, True]
    assert all("run_kernel(" not in code for code in codes[6:])


def test_an_operation_that_is_not_known_is_built_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(elementwise._FUNCTIONS, "sigmoid")
    compiled = observe._compile_function

    def quickly(subject: Subject, options: dict[str, Any]) -> Any:
        return compiled(replace(subject, backend="aot_eager") if subject.backend == "inductor" else subject, options)

    monkeypatch.setattr(observe, "_compile_function", quickly)
    report = examined(IR, SIGMOID)
    assert (report.verdict, report.built) == ("agree", "operation: sigmoid")


def test_what_the_compiler_raises_before_kernels_is_the_programs_outcome() -> None:
    def refuse(before: Any, backward: bool, x: Any) -> Any:
        raise NotImplementedError("no such lowering")

    with replaced_lowering(torch.ops.aten.sigmoid.default, refuse):
        report = examined(IR, SIGMOID)
    assert (report.verdict, report.built) == ("raises", "")
    assert "no such lowering" in report.verdicts[0].detail


def test_after_a_stage_all_devices_have_their_own_scheduling_again() -> None:
    from torch._inductor.codegen import common

    common.init_backend_registration()
    before = dict(common.device_codegens)
    with in_force("ir"):
        changed = {name for name, row in common.device_codegens.items() if row is not before[name]}
    assert changed == set(DEVICES)
    assert common.device_codegens == before


# ---------------------------------------------------------------- on a GPU

# What shapes Triton's kernels beside the loops themselves: none of it may matter here.
SHAPES = (
    "", '"inductor.combo_kernels": True', '"inductor.triton.persistent_reductions": False',
    '"inductor.triton.force_cooperative_reductions": True', '"inductor.triton.multi_kernel": 1',
    '"inductor.triton.prefer_nd_tiling": True, "inductor.triton.tile_reductions": True',
    '"inductor.triton.mix_order_reduction_non_strict_mode": True',
)  # fmt: skip
SUMS = """route("autograd")
x0 = leaf(f32[16, 70], seed=1)
x1 = leaf(f32[16, 70], seed=2)
v0 = mul(x0, x1)
v1 = softmax(v0, dim=1)
v2 = sum(v1, dim=1)
v3 = sin(v1)
v4 = sum(v3, dim=0)
backward(v2, cotangent(f32[16], seed=3))
backward(v4, cotangent(f32[70], seed=4))
"""


def on_gpu(task: Task) -> Task:
    backend = task.place.subject.backend
    return replace(task, place=Place(Subject("eager", "cuda"), Subject(backend, "cuda")))


@pytest.fixture
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("task", [GRAPH, IR], ids=["graph", "ir"])
def test_a_program_of_the_corpus_agrees_on_the_gpu(task: Task, name: str) -> None:
    agrees(examined(on_gpu(task), (CORPUS / "seeds" / f"{name}.prog").read_text()))


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("shape", SHAPES)
def test_how_tritons_kernels_are_shaped_does_not_matter(shape: str) -> None:
    agrees(examined(on_gpu(IR), f"program(1)\nsettings({{{shape}}})\n{SUMS}" if shape else f"program(1)\n{SUMS}"))


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_an_illegal_fusion_is_faulty_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(examined(on_gpu(IR), ACROSS))
    monkeypatch.setattr("torch._inductor.scheduler.Scheduler.can_fuse_vertical", lambda *_, **__: True)
    found_faulty(examined(on_gpu(IR), ACROSS))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_drawn_programs_agree_on_the_gpu_and_few_are_built() -> None:
    few_differ(on_gpu(IR), "cuda")
