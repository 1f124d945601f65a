"""The stage `ir`: everything but the kernels' text. What is sound agrees there; what is planted is heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import ir, lowering, scheduler
from torch._inductor.codegen import common

from fuzzer.execution import observe
from fuzzer.execution.stages import elementwise, in_force
from fuzzer.generation.vocabulary import vocabulary
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.devices import DEVICES
from fuzzer.language.ops.spec import Limits
from fuzzer.language.private import output_code, replaced_decomposition, replaced_lowering
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import parse, show
from tests.drawn import drawn
from tests.execution.light import BODY
from tests.execution.stages.bodies import GRAPH, IR, agrees, examined, found_faulty

CORPUS = Path(__file__).parents[3] / "corpus"
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
SEEDS = ("select_scatter_mean", "softmax_rows", "index_repeated", "embedding_repeated", "inplace_after_use",
         "padding_reflect", "sort_values", "upsample_nearest", "dropout_kept")  # fmt: skip


@pytest.mark.parametrize("route", ANY_BACKEND)
def test_a_sound_program_agrees_on_every_route(route: str) -> None:
    agrees(examined(IR, SIGMOID.replace("autograd", route)))


@pytest.mark.parametrize("name", SEEDS)
def test_a_program_of_the_corpus_agrees_and_is_not_built(name: str) -> None:
    agrees(examined(IR, (CORPUS / "seeds" / f"{name}.prog").read_text()))


@pytest.mark.slow
def test_drawn_programs_agree_and_few_are_built() -> None:
    limits = Limits()
    programs = drawn(range(60), vocabulary(limits, ()), limits, ANY_BACKEND, "cpu")
    reports = [examined(IR, program) for program in programs]
    differing = [show(parse(r.text)) for r in reports if r.verdict not in ("agree", "rejected")]
    assert differing == []
    ran = [r for r in reports if not r.rejected]
    assert len(ran) >= 0.9 * len(programs)
    assert sum(bool(r.built) for r in ran) <= 0.2 * len(ran)


# ---------------------------------------------------------------- faults


def test_a_wrong_decomposition_is_heard() -> None:
    with replaced_decomposition(torch.ops.aten.sigmoid_backward.default, lambda grad, y: grad * y):
        assert examined(IR, SIGMOID).verdict == "wrong"


def test_a_wrong_lowering_is_heard_and_not_by_the_graph() -> None:
    def hyperbolic(before: Any, backward: bool, x: Any) -> Any:
        return lowering.lowerings[torch.ops.aten.tanh.default](x)

    with replaced_lowering(torch.ops.aten.sigmoid.default, hyperbolic):
        assert examined(IR, SIGMOID).verdict == "wrong"
        agrees(examined(GRAPH, SIGMOID))


def test_a_lowering_that_reads_outside_its_buffer_is_faulty() -> None:
    def shifted(before: Any, backward: bool, x: Any) -> Any:
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
    monkeypatch.setattr(scheduler.Scheduler, "can_fuse_vertical", lambda *_, **__: True)
    found_faulty(examined(IR, ACROSS))
    agrees(examined(IR, ACROSS.replace("flip(v0, dims=[0])", "sin(v0)")))


def test_memory_that_is_reused_too_early_is_faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(examined(IR, REUSED))
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(scheduler.NodeUser, "can_inplace", always, raising=False)
    found_faulty(examined(IR, REUSED))
    agrees(examined(IR, REUSED.replace("flip(v0, dims=[0])", "sin(v0)")))


# ---------------------------------------------------------------- what is left to the compiler


def test_no_kernel_is_written() -> None:
    codes: list[str] = []
    with output_code(codes.append):
        agrees(examined(IR, SIGMOID))
    assert "run_kernel(" in "".join(codes)
    assert "cpp_pybinding" not in "".join(codes)


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
    common.init_backend_registration()
    before = dict(common.device_codegens)
    with in_force("ir"):
        changed = {name for name, row in common.device_codegens.items() if row is not before[name]}
    assert changed == set(DEVICES)
    assert common.device_codegens == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", SEEDS)
def test_a_program_of_the_corpus_agrees_on_the_gpu(name: str) -> None:
    there = replace(IR, place=Place(Subject("eager", "cuda"), Subject("inductor:ir", "cuda")))
    agrees(examined(there, (CORPUS / "seeds" / f"{name}.prog").read_text()))
