"""Convolutions: sums of products in float32, with some terms first rounded to half precision.

torch's own CPU convolutions multiply matrices in float32; then col2im adds the kernel's overlapping taps, and the
weight's gradient is added up over the batch.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from fuzzer.rounding.kernels.row import ACCUMULATION, Evaluation, Hidden, Kernel, Noise
from fuzzer.rounding.precision import by_parts, epsilon, growth, own_unit
from fuzzer.rounding.trace import Step, is_rounded


def _terms(step: Step) -> float:
    """Taps and channels of one result."""
    weight = [ref for ref in step.inputs if is_rounded(ref)][1]
    return max(_taps(weight), 1, 1.0)


def _terms_of_gradients(step: Step) -> float:
    """Taps and channels, or the positions over which a weight's gradient is summed."""
    floats = [ref for ref in step.inputs if is_rounded(ref)]
    positions = floats[0].numel / max(floats[0].shape[1], 1)
    return max(_taps(floats[2]), positions, 1.0)


def _taps(weight: Any) -> float:
    taps: float = weight.numel / max(min(weight.shape[:2], default=1), 1)
    return taps


def _rounded_terms(step: Step) -> list[int]:
    """The number of rounded terms in each result."""
    return [math.prod(step.args[1].shape[2:]) if step.args[6] else 1]


def _rounded_terms_of_gradients(step: Step) -> list[int]:
    """The number of rounded terms in the gradients of input, weight and bias, for those requested."""
    taps, asked = math.prod(step.args[2].shape[2:]), step.args[10]
    terms = (1 if step.args[7] else taps, step.args[0].shape[0], 1)
    return [n for n, wanted in zip(terms, asked, strict=True) if wanted]


def _units_of_terms(terms: int, unit: float) -> float:
    """The error, in units, of a sum of rounded terms that is itself rounded; 0 if there is nothing to add."""
    return 0.0 if terms <= 1 else 1.0 + growth(terms, unit)


def _rounded(step: Step, args: Any, noise: Noise, scale: float) -> Any:
    """Perturb the weight's elements, factors of the taps' terms."""
    return _moved_at((1,), _rounded_terms(step), step, args, noise, scale)


def _rounded_backward(step: Step, args: Any, noise: Noise, scale: float) -> Any:
    """Perturb the weight's elements, factors of the taps' terms, and the input's, factors of a batch's."""
    places = [at for at, wanted in zip((2, 1), step.args[10][:2], strict=True) if wanted]
    return _moved_at(tuple(places), _rounded_terms_of_gradients(step), step, args, noise, scale)


def _moved_at(places: tuple[int, ...], terms: list[int], step: Step, args: Any, noise: Noise, scale: float) -> Any:
    unit, moved = own_unit(step), list(args)
    if unit > epsilon(torch.float32):
        for at, count in zip(places, terms, strict=False):
            size = scale * unit * _units_of_terms(count, unit)
            moved[at] = by_parts(args[at], partial(_by_a_share, noise, size))
    return tuple(moved)


def _by_a_share(noise: Noise, size: float, t: torch.Tensor) -> torch.Tensor:
    return t * (1 + noise(t) * size)


def _through_padding(step: Step, args: Any, odd: torch.Tensor) -> torch.Tensor:
    """Results that padding takes from a tap whose weight is not finite: 0 times the weight, or nothing."""
    if step.args[6]:
        return torch.zeros_like(step.op(*args)).bool()
    met = step.op(torch.ones_like(args[0]), odd, None, *args[3:])
    return met < odd.flatten(1).sum(1).reshape(-1, *[1] * (met.dim() - 2))


def _added(e: Evaluation) -> Hidden:
    """Absolute errors of sums of rounded terms, and of a product before its bias."""
    unit = own_unit(e.step)
    if unit <= epsilon(torch.float32):
        return 0.0
    hidden = _of_terms(e, _rounded_terms(e.step), unit)
    if e.args[2] is not None:
        bias = e.args[2].reshape(-1, *(1,) * (len(e.step.args[1].shape) - 2))
        hidden[0] = hidden[0] + (e.results[0] - bias).abs() * unit
    return list(hidden)


def _added_backward(e: Evaluation) -> Hidden:
    """Absolute errors of sums of rounded terms, and of CUDA's depthwise sums."""
    unit = own_unit(e.step)
    if unit <= epsilon(torch.float32):
        return 0.0
    hidden = _of_terms(e, _rounded_terms_of_gradients(e.step), unit)
    if e.step.args[10][2] and any(width > 1 for width in e.step.args[6]):
        # for a dilated one the CPU adds the bias' gradient up sample by sample
        # (ATen/native/NaiveDilatedConvolution.cpp)
        samples = e.args[0].flatten(2).sum(-1).abs().sum(0)
        hidden[-1] = hidden[-1] + samples * unit * _units_of_terms(e.args[0].shape[0], unit)
    if e.approximate and (place := _depthwise_weight(e.step)) is not None:
        # a tree: the errors of the partial sums of one level are at most a unit of all terms without their signs, and
        # the roundings of its few levels are independent
        sizes = [t for t in e.step.op(e.args[0].abs(), e.args[1].abs(), *e.args[2:]) if t is not None]
        hidden[place] = hidden[place] + unit * sizes[place]
    return list(hidden)


def _of_terms(e: Evaluation, terms: list[int], unit: float) -> list[torch.Tensor]:
    return [v.abs() * unit * _units_of_terms(n, unit) for v, n in zip(e.results, terms, strict=True)]


def _depthwise_weight(step: Step) -> int | None:
    """The result that is the weight's gradient of a depthwise convolution over three dimensions; None for others.

    CUDA's kernel adds its threads' sums in the tensors' own dtype (ATen/native/cuda/DepthwiseConv3d.cu).
    """
    if len(step.args[1].shape) != 5:
        return None
    asked, groups, transposed = step.args[10], step.args[9], step.args[7]
    depthwise = groups > 1 and groups == step.args[1].shape[1] and not transposed
    return int(asked[0]) if depthwise and asked[1] else None


TABLE = (
    Kernel(
        "convolution",
        ACCUMULATION,
        terms=_terms,
        wide=True,
        adds_rounded=lambda step: step.args[2] is not None or max(_rounded_terms(step)) > 1,
        rounds_first=_rounded,
        reached=_through_padding,
        odd_at=1,
        cancels=_added,
    ),
    Kernel(
        "convolution_backward",
        ACCUMULATION,
        terms=_terms_of_gradients,
        wide=True,
        adds_rounded=lambda step: max(_rounded_terms_of_gradients(step)) > 1,
        rounds_first=_rounded_backward,
        cancels=_added_backward,
    ),
)
