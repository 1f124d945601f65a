"""Losses and distances."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from fuzzer.rounding.kernels.bounds import by_largest_operands, in_units, per_largest_result
from fuzzer.rounding.kernels.row import PRIMITIVE, Evaluation, Kernel, each
from fuzzer.rounding.precision import underflow
from fuzzer.rounding.trace import Step, is_rounded

_MEAN, _SUM = 1, 2  # ATen's numbers of reductions


def _per_label(power: int, step: Step) -> float:
    """The number of terms: a label's gradient is summed over the classes and, in a list of labels, over the label's
    occurrences; as a power of the number of classes."""
    given = [ref for ref in step.inputs if is_rounded(ref)][1]
    return float(max(max(given.shape, default=1), 1) ** power)


def _per_distance(step: Step) -> float:
    return float(max(next(ref for ref in step.inputs if is_rounded(ref)).shape[-1], 1))


def _of_these_distances(step: Step, given: Any, moved: Any) -> Any:
    """With p = inf a gradient goes to the elements whose difference equals the distance. So operands stay unperturbed,
    and the distance is recomputed from them."""
    *points, p, _ = given[1:]
    if p != math.inf:
        return moved
    found = torch.cdist(*points, p=p) if len(points) == 2 else torch.pdist(*points, p=p)
    return (moved[0], *points, p, found)


def _of_probabilities(step: Step, args: Any, kwargs: Any) -> Any:
    """Limit probabilities that a replica rounds beyond 1, since the kernel refuses such numbers."""
    return step.op(args[0].clamp(0, 1), *args[1:], **kwargs)


def _powers_of_differences(step: Step, args: Any) -> torch.Tensor:
    """The sums of powers whose roots are the distances; the distances themselves for the largest element (p = inf)."""
    return _powers(torch.cdist(*args[:3]), args[2])


def _powers_of_pairs(step: Step, args: Any) -> torch.Tensor:
    """The same of all pairs of rows."""
    p = args[1] if len(args) > 1 else 2.0
    return _powers(torch.pdist(args[0], p), p)


def _powers(distance: torch.Tensor, p: float) -> torch.Tensor:
    return distance.pow(p) if 0 < p < math.inf else distance


def _underflown(e: Evaluation) -> float:
    """Eager rounds each loss to its dtype, where it may underflow, before it adds them."""
    reduction = e.args[2] if len(e.args) > 2 else _MEAN
    return underflow(e.step.results[0].dtype) * (e.args[0].numel() if reduction == _SUM else 1)


def _margin(e: Evaluation) -> list[torch.Tensor]:
    """exp magnifies the rounding of t x by as much as that is."""
    return [(e.results[0] * e.args[1] * e.args[2]).abs().nan_to_num(0, 0, 0)]


TABLE = (
    Kernel("binary_cross_entropy", domain=(0.0, 1.0), mended=_of_probabilities),
    Kernel("mse_loss", cancels=_underflown, intermediate=lambda step, args: (args[0] - args[1]).square()),
    # a logit's log(1 + exp(x)) - t x
    Kernel("binary_cross_entropy_with_logits", cancels=by_largest_operands),
    Kernel("multi_margin_loss_backward", terms=partial(_per_label, 1)),
    Kernel("multilabel_margin_loss_forward", terms=per_largest_result, flags_at=1),
    Kernel("multilabel_margin_loss_backward", terms=partial(_per_label, 2), compared_at=4),
    *each("nll_loss_forward nll_loss2d_forward log_sigmoid_forward", terms=per_largest_result),
    # a difference, a factor that is rounded, and products with both
    *each("mse_loss_backward huber_loss_backward", PRIMITIVE, units=(4.0, 5.0, 2.0), inexact=True),
    Kernel("smooth_l1_loss_backward", PRIMITIVE, units=(5.0, 7.0, 2.5), inexact=True),  # and a quotient by beta
    # x - t over (1 - x) x, and products with the weight, the gradient and 1 / n
    Kernel("binary_cross_entropy_backward", PRIMITIVE, units=(8.0, 10.0, 4.0), inexact=True),
    # exp, a sum, a quotient, and products
    Kernel("soft_margin_loss_backward", PRIMITIVE, units=(8.0, 10.0, 4.0), inexact=True, cancels=in_units(_margin)),
    # the weight over the sum of weights, and a product
    *each("nll_loss_backward nll_loss2d_backward", PRIMITIVE, units=(3.5, 4.5, 1.5), inexact=True),
    *each(
        "huber_loss smooth_l1_loss soft_margin_loss multi_margin_loss",
        unstated="several operations and a sum, which backends take apart differently",
    ),
    Kernel("_euclidean_dist", unstated="differences, or a product of matrices that cancels, by size"),
    Kernel("_cdist_forward", terms=_per_distance, intermediate=_powers_of_differences),
    Kernel("_pdist_forward", terms=_per_distance, intermediate=_powers_of_pairs),
    *each("_cdist_backward _pdist_backward", terms=_per_distance, narrow=True, kept=_of_these_distances),
)
