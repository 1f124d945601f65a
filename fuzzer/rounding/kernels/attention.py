"""Fused attention: a softmax between two products, in one kernel for each device and precision."""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzzer.rounding.kernels.row import Evaluation, each
from fuzzer.rounding.precision import float_tensors
from fuzzer.rounding.trace import Step, bound, is_rounded


def _longest_sum(step: Step) -> float:
    """Features are added up for a score, keys for an output, queries for a gradient."""
    return float(max((n for ref in step.inputs if is_rounded(ref) for n in ref.shape[-2:]), default=1) or 1)


def _below_half(e: Evaluation) -> float:
    """Probabilities, and gradients of scores, are rounded to the operands' dtype before multiplication. float16 loses
    numbers that are small beside the largest, 1, even if the other factor is large."""
    if all(ref.dtype != torch.float16 for ref in e.step.inputs):
        return 0.0
    largest = max((float(t.abs().nan_to_num(0, 0, 0).max()) for t in float_tensors(e.args) if t.numel()), default=0.0)
    info = torch.finfo(torch.float16)
    return info.smallest_normal * info.eps * largest * math.sqrt(_longest_sum(e.step))


def _drops_nothing(given: dict[str, Any]) -> bool:
    return given.get("dropout_p", 0.0) == 0.0


def _probabilities(given: dict[str, Any], scale: float) -> torch.Tensor:
    """Shape (..., queries, keys). A query that sees no key has no probabilities."""
    scores = given["query"] @ given["key"].mT * scale
    if given.get("attn_bias") is not None:
        scores = scores + given["attn_bias"]
    if given.get("is_causal"):
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).tril().logical_not(), -math.inf)
    return torch.where((scores == -math.inf).all(-1, keepdim=True), 0.0, scores.softmax(-1))


def _scale_of(given: dict[str, Any]) -> float:
    own = given.get("scale")
    return 1 / math.sqrt(given["query"].shape[-1]) if own is None else own


def _forward(step: Step, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """softmax(query @ key.mT * scale + bias) @ value. A GPU kernel's other results are left empty: only its own
    backward reads them, and the one below does not. Shapes: query (..., queries, features), key (..., keys, features),
    value (..., keys, n)."""
    given = {argument.name: value for argument, value in bound(step.op, args, kwargs)}
    output = _probabilities(given, _scale_of(given)) @ given["value"]
    return [output, *(output.new_zeros(0) for _ in step.op._schema.returns[1:])]


def _backward(step: Step, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Gradients of query, key, value and bias, as many as the kernel returns, from the rounded output: with p the
    probabilities, p * (d_out @ value.mT - sum(d_out * out)) is the gradient of the scores."""
    given = {argument.name: value for argument, value in bound(step.op, args, kwargs)}
    scale = _scale_of(given)
    probabilities = _probabilities(given, scale)
    cotangent = given["grad_out"] if "grad_out" in given else given["grad_out_"]
    weighed = cotangent @ given["value"].mT - (cotangent * given["out"]).sum(-1, keepdim=True)
    scores = probabilities * weighed
    found = [scores @ given["key"] * scale, scores.mT @ given["query"] * scale, probabilities.mT @ cotangent, scores]
    return found[: len(step.op._schema.returns)]


TABLE = (
    *each(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward",
        terms=_longest_sum,
        draws_nothing=_drops_nothing,
    ),
    # neither the CPU nor float64 has these
    *each(
        """
        _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
        _scaled_dot_product_fused_attention_overrideable
        """,
        terms=_longest_sum,
        cancels=_below_half,
        draws_nothing=_drops_nothing,
        mended=_forward,
    ),
    *each(
        """
        _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_fused_attention_overrideable_backward
        """,
        terms=_longest_sum,
        cancels=_below_half,
        draws_nothing=_drops_nothing,
        mended=_backward,
    ),
)
