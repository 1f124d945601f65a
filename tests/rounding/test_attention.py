"""Fused attention is replayed, whatever device has the kernel: the CPU has those of no GPU, and float64 has none."""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch

from fuzzer.rounding.floors import Model
from fuzzer.rounding.kernels import named
from fuzzer.rounding.record import Recorder
from fuzzer.rounding.trace import Step
from tests.rounding.modelled import FIRST_FACTOR, FIRST_REPLICAS, SECOND_REPLICAS, modelled, normal

KERNELS = (
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)


def called(name: str, given: dict[str, Any]) -> list[torch.Tensor]:
    """What the model has a kernel return; arguments that this one does not have are left out."""
    op = getattr(torch.ops.aten, name).default
    taken = [argument.name for argument in op._schema.arguments]
    rule = named(name).mended
    assert rule is not None
    step = Step(op, (), {name: value for name, value in given.items() if name in taken}, None, ())
    return rule(step, step.args, step.kwargs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [False, True], ids=["sees all", "causal"])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_kernels_of_gpus_are_replayed_as_attention(name: str, causal: bool, scale: float | None) -> None:
    query, key, value = (normal(2, 3, n, 8).double().requires_grad_() for n in (5, 7, 7))
    biased = "attn_bias" in str(getattr(torch.ops.aten, name).default._schema) and not causal
    bias = normal(2, 3, 5, 7).double().requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, bias if biased else None, is_causal=causal, scale=scale
        )
    cotangent = normal(*out.shape).double()
    given = {"query": query, "key": key, "value": value, "attn_bias": bias if biased else None}
    given |= {"is_causal": causal, "scale": scale}
    with torch.no_grad():
        found = called(name, given)
        grads = called(f"{name}_backward", given | {"out": out, "grad_out": cotangent, "grad_out_": cotangent})
    assert torch.allclose(found[0], out, rtol=1e-12, atol=1e-13)
    assert not any(other.numel() for other in found[1:])
    wanted = torch.autograd.grad(out, [query, key, value, bias], cotangent, allow_unused=True)
    compared = [pair for pair in zip(grads, wanted, strict=False) if pair[1] is not None]
    assert len(compared) == 3 + (biased and len(grads) == 4)
    assert all(torch.allclose(mine, theirs, rtol=1e-11, atol=1e-12) for mine, theirs in compared)


def test_a_query_that_sees_no_key_has_no_output() -> None:
    query, bias = normal(1, 1, 2, 8).double(), torch.tensor([[0.0, 0.0], [-math.inf, -math.inf]]).double()
    out = called(KERNELS[1], {"query": query, "key": query, "value": query, "attn_bias": bias})[0]
    assert out[0, 0, 1].tolist() == [0.0] * 8
    assert bool(out[0, 0, 0].abs().min() > 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_attention_may_be_computed_step_by_step(dtype: torch.dtype) -> None:
    """The fused kernel, which torch tags as random for its dropout, is replayed, and not taken as it was recorded."""
    q, k, v, bias = (normal(1, 1, 12, 8), normal(1, 1, 10, 8), normal(1, 1, 10, 8).flip(-1), normal(12, 10))
    given = [t.to(dtype) for t in (q, k, v, bias)]
    model, _ = modelled(lambda *t: [torch.nn.functional.scaled_dot_product_attention(*t)], *given)
    assert [step.name for step in model.trace.steps if step.recorded] == []
    q, k, v, bias = given
    steps = torch.softmax((q @ k.mT) / 8**0.5 + bias, -1) @ v
    off = (steps.double() - model.reference[0].double()).abs()
    floor = model.spread(FIRST_REPLICAS).floors(FIRST_FACTOR)[0]
    assert bool((off <= floor).all())
    assert float(floor.max()) < 128 * torch.finfo(dtype).eps


def attended(backend: str, *given: torch.Tensor) -> list[torch.Tensor]:
    """Output and gradients of attention by a backend of torch's; the last given is the cotangent."""
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
        leaves = [t.detach().requires_grad_() for t in given[:-1]]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, given[-1])]


def off_by_floors(dtype: torch.dtype, backend: str, seed: int) -> tuple[float, float, float] | None:
    """By how many floors of the second look, without which no verdict is given, a fused kernel and the steps are off at
    most; and the largest floor of the first look, in units of the dtype and of the largest result. None where there is
    no such kernel."""
    large = 4.0 if seed % 2 else 1.0
    torch.manual_seed(seed)
    given = [(torch.randn(2, 2, n, 16) * large).to(dtype).cuda() for n in (12, 10, 10, 12)]
    recorder = Recorder()
    recorder.given("leaf", {str(place): t for place, t in enumerate(given)})
    try:
        with recorder:
            fused = attended(backend, *given)
    except RuntimeError as error:
        if "No available kernel" in str(error):
            return None
        raise
    model = Model(recorder.trace, [recorder.ref(t) for t in fused], "cuda")
    assert model.device.type == "cpu"
    assert [step.name for step in model.trace.steps if step.recorded] == []
    small, floors = (model.spread(n).floors(FIRST_FACTOR) for n in (FIRST_REPLICAS, SECOND_REPLICAS))

    def worst(found: list[torch.Tensor]) -> float:
        pairs = zip(found, model.reference, floors, strict=True)
        return max(float(((t.cpu().double() - r.double()).abs() / floor).max()) for t, r, floor in pairs)

    sizes = [float(floor.max() / r.abs().max()) for r, floor in zip(model.reference, small, strict=True)]
    return worst(fused), worst(attended("MATH", *given)), max(sizes) / torch.finfo(dtype).eps


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_what_a_gpu_computes_lies_within_the_floor(dtype: torch.dtype, backend: str) -> None:
    """Output and gradients, fused and step by step; and the floor is about as small as the dtype lets it be."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    # in a process of its own: once this one has used CUDA, no worker that it forks can
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        found = [alone.submit(off_by_floors, dtype, backend, seed).result() for seed in range(6)]
    measured = [one for one in found if one is not None]
    if not measured:
        pytest.skip(f"no {backend} for {dtype}")
    assert max(fused for fused, _, _ in measured) <= 1, measured
    assert max(steps for _, steps, _ in measured) <= 1, measured
    assert max(size for _, _, size in measured) < (2048 if dtype == torch.float32 else 512), measured
