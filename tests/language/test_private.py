"""What is used of torch's internals: each does what its caller relies on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzzer.language.private import (
    DENSE_COPIES,
    FP_FUSION,
    FUNCTIONALIZATION,
    NO_OPS,
    OUTER_LOOPS,
    before_code,
    bisect,
    load_probes_here,
    saved_tensor_hooks_kept,
    without_part,
)
from fuzzer.language.settings import exists, in_force


def test_a_fork_loads_the_probes_of_a_torch_that_starts_a_python_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the answers of the Python that it replaces: the code runs, raises, or kills its process."""
    from torch._inductor import cpu_vec_isa

    monkeypatch.setattr(cpu_vec_isa, "VecISA", SimpleNamespace())  # as in torch 2.11: without `_probe_load`
    with load_probes_here():
        run = cpu_vec_isa.subprocess.check_call
        run(["python", "-c", "import ctypes, torch; ctypes.CDLL(None)"], stderr=subprocess.DEVNULL)
        for refused in ("import ctypes; ctypes.CDLL('no such library')", "import os; os.kill(os.getpid(), 9)"):
            with pytest.raises(subprocess.CalledProcessError):
                run(["python", "-c", refused], stderr=subprocess.DEVNULL)
    assert cpu_vec_isa.subprocess is subprocess


def test_what_is_left_out_is_put_back() -> None:
    from torch._functorch._aot_autograd import graph_capture_wrappers
    from torch._functorch._aot_autograd.schemas import AOTConfig
    from torch._inductor import compile_fx, decomposition, lowering
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.fx_passes import joint_graph

    op = torch.ops.aten.tanh_backward.default

    def state() -> tuple[Any, ...]:
        return (
            compile_fx._compile_fx_inner,
            TritonKernel.__dict__["triton_meta_common"],
            decomposition.decompositions.get(op),
            lowering.lowerings.get(op),
            CppScheduling._get_outer_loop_fusion_depth,
            AOTConfig.__init__,
            graph_capture_wrappers.maybe_to_fresh_input,
            joint_graph.remove_no_ops,
            dict(decomposition.fast_random_decomps()),
        )

    before = state()
    parts = (FP_FUSION, OUTER_LOOPS, FUNCTIONALIZATION, DENSE_COPIES, NO_OPS, "forward graph", "backward graph")
    for name in (*parts, "aten.tanh_backward.default"):
        with without_part(name):
            assert state() != before
        assert state() == before


def test_an_input_that_is_written_is_copied_with_its_strides() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.sub_(y)
        x.contiguous().mul_(2)  # in eager of a copy, since x has gaps
        return x * 1

    def gradient() -> float:
        y = torch.ones(3, requires_grad=True)
        torch._dynamo.reset()
        torch.compile(write, backend="aot_eager")(torch.ones(6)[::2], y).sum().backward()
        return float(y.grad[0])  # type: ignore[index]

    if gradient() == -1:
        pytest.skip("this torch copies it with its strides")
    with without_part(DENSE_COPIES):
        assert gradient() == -1


def test_triton_is_told_not_to_fuse() -> None:
    from torch._inductor.codegen.triton import TritonKernel

    assert exists("inductor.emulate_precision_casts")
    with in_force((("inductor.emulate_precision_casts", False),)):
        assert TritonKernel.triton_meta_common()["enable_fp_fusion"] is True
        with without_part(FP_FUSION):
            assert TritonKernel.triton_meta_common()["enable_fp_fusion"] is False


def test_the_bisector_ends_at_the_first_backend_with_which_the_program_differs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._inductor.compiler_bisector import CompilerBisector

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # it removes a folder there

    assert bisect(lambda: True) is None
    assert bisect(lambda: CompilerBisector.get_backend() != "aot_eager") == ("aot_eager", "", 0, "")


def test_what_forbids_hooks_of_saved_tensors_leaves_them_allowed() -> None:
    hooks = torch._C._autograd
    with saved_tensor_hooks_kept():
        hooks._saved_tensors_hooks_disable("not now")
    assert hooks._saved_tensors_hooks_is_enabled()


def test_what_is_called_before_code_is_written_is_called_no_more_afterwards() -> None:
    from torch._inductor.scheduler import Scheduler

    before, called = Scheduler.codegen, list[str]()
    with pytest.raises(AttributeError), before_code(lambda: called.append("noted")):
        Scheduler.codegen(object())  # which schedules nothing
    assert called == ["noted"]
    assert Scheduler.codegen is before
