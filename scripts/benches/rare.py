"""RARE: faults that act in few programs, as real ones do: under one layout, dtype, size, setting or pair of operations.

All of them can be planted in one run. Each notes when it changed what was compiled, so that a wrong trial has a
culprit: the Report names those that did (`fired`). Most sit in code that only backwards have: a pass over backward
graphs, a formula (the decomposition of a gradient), a lowering, a layout that a meta kernel declares.
Symbolic sizes trigger none of them. How often each acts is in docs/guidance.md.
"""

from __future__ import annotations

from typing import Any

import torch

from benches import distortions as wrong
from benches.conditions import (
    DOUBLE,
    HALF,
    both,
    broadcast,
    dtype_in,
    fed_by,
    first,
    names_dims,
    odd_length_beyond,
    permuted,
    rank_from,
    read_twice,
    summed,
    two_equal_dims,
    value,
)
from benches.mechanisms import Plant, in_formula, in_layout, in_lowering, in_pass, recorded, under_setting
from benches.miswritten import CODE

_aten, _prims = torch.ops.aten, torch.ops.prims
_SUM = _aten.sum.dim_IntList


def _mask_broadcast(node: Any) -> bool:
    return value(node.args[0]).numel() < value(node).numel()


def _two_broadcasts(node: Any) -> bool:
    return all(isinstance(n, torch.fx.Node) and broadcast(value(n)) for n in node.args[:2])


def _third_summand(node: Any) -> bool:
    """a + b + c of one shape."""
    if not all(isinstance(n, torch.fx.Node) for n in node.args[:2]) or node.args[0] is node.args[1]:
        return False
    inner = [n for n in node.args[:2] if n.target is _aten.add.Tensor]
    same = [isinstance(a, torch.fx.Node) and value(a).shape == value(node).shape for n in inner for a in n.args[:2]]
    return len(inner) == 1 and all(same)


def _middle_slice(grad: Any, sizes: Any, dim: int, start: int, end: int, step: int) -> bool:
    """In half precision, of at least three dimensions not the last one; from within it."""
    return (
        grad.dtype in HALF and len(sizes) >= 3 and dim % len(sizes) < len(sizes) - 1 and 0 < start < end <= sizes[dim]
    )


RARE: dict[str, Plant] = {
    "expand_along_the_wrong_of_two_equal_dims": in_pass(
        _aten.expand.default,
        both(rank_from(3), lambda node: two_equal_dims(node) is not None),
        wrong.along_the_other_dim,
    ),
    "half_precision_sum_over_two_dims_of_a_value_read_twice": in_pass(
        _SUM, both(dtype_in(*HALF), read_twice, lambda node: summed(node) == [0, 1]), wrong.of_one_row_less
    ),
    "odd_tail_of_a_half_precision_sum": in_pass(
        _SUM, both(dtype_in(*HALF), odd_length_beyond(4)), wrong.of_one_row_less
    ),
    "sum_of_what_a_mask_lets_through_in_float64": in_pass(
        _SUM, both(dtype_in(*DOUBLE), names_dims, fed_by(_aten.where.self)), wrong.of_one_row_less
    ),
    "second_of_three_gradients_in_float64": in_pass(
        _aten.add.Tensor, both(dtype_in(*DOUBLE), _third_summand, rank_from(3)), wrong.without_inner_summand
    ),
    "mask_of_fewer_elements_in_float64": in_pass(
        _aten.where.self, both(dtype_in(*DOUBLE), _mask_broadcast), wrong.inverted
    ),
    "half_precision_quotient_under_a_mask": in_pass(
        _aten.where.self, both(dtype_in(*HALF), fed_by(_aten.div.Tensor)), wrong.undivided
    ),
    "sign_of_a_permuted_value": in_pass(_aten.neg.default, first(permuted), wrong.forgotten),
    "product_of_two_broadcasts": in_pass(_aten.mul.Tensor, both(_two_broadcasts, rank_from(2)), wrong.without_last_row),
    "index_put_of_rank_three": in_pass(_aten.index_put.default, rank_from(3), wrong.overwriting),
    "scatter_add_along_the_first_of_two_dims": in_pass(
        _aten.scatter_add.default, both(rank_from(2), lambda node: node.args[1] == 0), wrong.overwriting
    ),
    "product_of_one_matrix_in_float64": in_pass(
        _aten.bmm.default, both(dtype_in(*DOUBLE), lambda node: value(node).shape[0] == 1), wrong.without_last_column
    ),
    "reversal_of_rank_three_in_float64": in_pass(
        _prims.rev.default, both(dtype_in(*DOUBLE), rank_from(3)), wrong.forgotten
    ),
    "convolution_of_groups_with_a_stride": in_pass(
        _aten.convolution_backward.default,
        lambda node: node.args[9] > 1 < max(node.args[4]),
        wrong.without_last_channel,
    ),
    "accumulation_under_a_setting": under_setting(
        "inductor.realize_reads_threshold", 1, in_pass(_aten.add.Tensor, rank_from(1), wrong.forgotten)
    ),
    "sum_without_inplace_buffers": under_setting(
        "inductor.inplace_buffers", False, in_pass(_SUM, both(names_dims, rank_from(1)), wrong.of_one_row_less)
    ),
    "recomputed_under_a_setting": under_setting(
        "functorch.activation_memory_budget", 0.0, in_pass(_aten.exp.default, rank_from(1), wrong.forgotten)
    ),
    "tanh_of_a_broadcast_gradient": in_formula(
        _aten.tanh_backward.default, lambda grad, y: broadcast(grad), wrong.tanh_linear
    ),
    "softmax_over_an_outer_dim_in_half_precision": in_formula(
        _aten._softmax_backward_data.default,
        lambda grad, y, dim, dtype: grad.dtype in HALF and dim % max(grad.dim(), 1) < grad.dim() - 1,
        wrong.softmax_along_last,
    ),
    "layer_norm_over_two_dims": in_formula(
        _aten.native_layer_norm_backward.default, lambda grad, x, shape, *rest: len(shape) > 1, wrong.without_variance
    ),
    "half_precision_slice_within_a_middle_dim": in_formula(
        _aten.slice_backward.default, _middle_slice, wrong.one_before
    ),
    "selection_along_the_last_of_four_dims": in_formula(
        _aten.select_backward.default,
        lambda grad, sizes, dim, index: len(sizes) > 3 and dim % len(sizes) == len(sizes) - 1 and index > 0,
        wrong.at_the_start,
    ),
    "huber_loss_with_a_delta": in_formula(
        _aten.huber_loss_backward.default, lambda grad, x, target, reduction, delta: delta > 1, wrong.without_delta
    ),
    "gelu_by_tanh": in_formula(
        _aten.gelu_backward.default,
        lambda grad, x, *, approximate="none": approximate == "tanh",
        wrong.as_if_not_approximate,
    ),
    "leaky_slope_in_float64": in_formula(
        _aten.leaky_relu_backward.default, lambda grad, x, *rest: grad.dtype in DOUBLE, wrong.of_half_the_slope
    ),
    "three_parts_joined": in_lowering(_aten.cat.default, wrong.last_two_exchanged),
    "padding_of_unequal_sides": in_lowering(_aten.constant_pad_nd.default, wrong.sides_exchanged),
    "window_with_a_stride": in_lowering(_aten.slice_scatter.default, wrong.one_step_back),
    "layout_of_select_scatter": in_layout(_aten.select_scatter.default),
    "layout_of_diagonal_scatter": in_layout(_aten.diagonal_scatter.default),
    "layout_of_a_scatter": in_layout(_aten.scatter.value),
}


PLANTS: dict[str, Plant] = RARE | CODE


# Each alone, and all of them in one run, as tasks name them: `benches.rare:all`.
FAULTS = {name: recorded({name: plant}) for name, plant in PLANTS.items()} | {"all": recorded(PLANTS)}
ALL = f"{__name__}:all"
