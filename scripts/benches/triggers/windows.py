"""Triggers in windows: pooling, padding, interpolation, convolutions and what follows them."""

from __future__ import annotations

from benches.triggers.kinds import Trigger
from benches.triggers.shapes import per_dim, windows
from benches.triggers.sketch import RESHAPERS, Sketch
from fuzzer.language.program import Node

# Pools that the reported lowerings take; those of three dimensions called ATen's kernels.
_AVERAGES = {"avg_pool1d": 1, "avg_pool2d": 2}
_MAXIMA = {f"max_pool{n}d{kind}": n for n in (1, 2) for kind in ("", "_with_indices")}
_INTERPOLATIONS = ("interpolate_nearest", "interpolate_bilinear", "interpolate_bicubic")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_ELEMENTWISE = ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "clamp")


def _along(s: Sketch, node: Node, dims: int) -> list[tuple[int, int, int, int, int]]:
    """(size, kernel, stride, padding, dilation) of a pool along each dimension; none where they cannot be said."""
    shape = s.shape(node.uses[0])
    if shape is None or len(shape) < dims:
        return []
    kernel = per_dim(s.attr(node, "kernel_size"), dims)
    stride = per_dim(s.attr(node, "stride") or kernel, dims)
    padding, dilation = (per_dim(s.attr(node, name, usual), dims) for name, usual in (("padding", 0), ("dilation", 1)))
    return list(zip(shape[-dims:], kernel, stride, padding, dilation, strict=True))


def average_of_an_overhanging_window(s: Sketch) -> bool:
    """An average pool that rounds the number of windows up and counts its padding, and a last window overhangs."""
    for node in s.of(*_AVERAGES):
        if s.attr(node, "ceil_mode") is not True or s.attr(node, "divisor_override") is not None:
            continue
        for size, kernel, stride, padding, _ in _along(s, node, _AVERAGES[node.op]):
            last = (windows(size, kernel, stride, padding, ceil_mode=True) - 1) * stride
            if last < size + padding and last + kernel > size + 2 * padding:
                return True
    return False


def maximum_of_a_window_outside(s: Sketch) -> bool:
    """A max pool that rounds the number of windows up, so that one would start outside and is dropped."""
    for node in s.of(*_MAXIMA):
        if s.attr(node, "ceil_mode") is not True:
            continue
        for size, kernel, stride, padding, dilation in _along(s, node, _MAXIMA[node.op]):
            if (windows(size, kernel, stride, padding, dilation, ceil_mode=True) - 1) * stride >= size + padding:
                return True
    return False


def maximum_of_a_dilated_window(s: Sketch) -> bool:
    """A two-dimensional max pool whose windows skip elements."""
    return any(
        max(per_dim(s.attr(node, "dilation", 1), 2)) > 1 for node in s.of("max_pool2d", "max_pool2d_with_indices")
    )


def maximum_of_another_order(s: Sketch) -> bool:
    """A max pool that saves indices, of a value that lies in another order than its dimensions."""
    pools = s.of("adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d")
    return any(s.order_in_memory(node.uses[0]) == "permuted" for node in pools)


def reflection_beside_a_cut(s: Sketch) -> bool:
    """A reflection at one side, and a negative padding at another."""
    return any(min(s.attr(node, "pad")) < 0 < max(s.attr(node, "pad")) for node in s.of("pad_reflect"))


def neighbours_by_a_factor_that_changes_no_size(s: Sketch) -> bool:
    """Nearest neighbours by a factor other than 1 or 2 to the size itself or its double, for which eager has a rule."""
    for node in s.of("interpolate_nearest", "upsample_nearest"):
        shape, factor = s.shape(node.uses[0]), s.attr(node, "scale_factor")
        if shape is None or factor is None or s.attr(node, "recompute_scale_factor") is True:
            continue
        for size, by in zip(shape[2:], per_dim(factor, len(shape) - 2), strict=True):
            after = int(size * by)
            if size > 1 and ((after == size and by != 1) or (after == 2 * size and by != 2)):
                return True
    return False


def interpolated_to_one_element(s: Sketch) -> bool:
    """Bilinear interpolation of several elements to a single one, corners not aligned and nothing smoothed."""
    for node in s.of("interpolate_bilinear"):
        if s.attr(node, "align_corners") is True or s.attr(node, "antialias") is True:
            continue
        before, after = s.shape(node.uses[0]), s.shape(node.outs[0])
        sizes = after[2:] if after else per_dim(s.attr(node, "size") or 0, 2)
        if before and any(b > 1 and a == 1 for b, a in zip(before[2:], sizes, strict=True)):
            return True
    return False


def interpolated_from_one_element(s: Sketch) -> bool:
    """A convolution's single element, interpolated to a single one."""
    for node in s.of(*_INTERPOLATIONS):
        shape = s.shape(node.uses[0])
        if s.made_by(node.uses[0], ("conv2d",)) and shape and shape[2:] == (1, 1):
            size = s.attr(node, "size")
            if size is not None and set(per_dim(size, 2)) == {1}:
                return True
    return False


def chosen_among_neighbours(s: Sketch) -> bool:
    """The k-th smallest of nearest neighbours."""
    return any(s.made_by(node.uses[0], ("interpolate_nearest", "upsample_nearest")) for node in s.of("kthvalue"))


def chosen_between_a_convolution_and_its_maxima(s: Sketch) -> bool:
    """where between a convolution and the max pool of the same convolution."""
    for node in s.of("where"):
        for pooled, other in (node.uses[1:3], node.uses[2:0:-1]):
            pool = s.made_by(pooled, _MAXIMA)
            if pool is not None and pool.uses[0] == other and s.made_by(other, ("conv1d", "conv2d", "conv3d")):
                return True
    return False


def grouped_convolution_of_a_transposed_value(s: Sketch) -> bool:
    """A conv1d of several groups whose input lies in another order than its dimensions."""
    return any(
        s.attr(node, "groups", 1) > 1 and s.order_in_memory(node.uses[0]) == "permuted" for node in s.of("conv1d")
    )


def transposed_convolution_with_output_padding(s: Sketch) -> bool:
    """A conv_transpose2d with an output padding."""
    return any(max(per_dim(s.attr(node, "output_padding", 0), 2)) > 0 for node in s.of("conv_transpose2d"))


def transposed_convolutions_in_a_row(s: Sketch) -> bool:
    """A conv_transpose2d of what another made, elementwise functions aside."""
    nodes = s.of("conv_transpose2d")
    return any(s.made_by(node.uses[0], ("conv_transpose2d",), through=_ELEMENTWISE) for node in nodes)


def convolution_of_a_summed_norm(s: Sketch) -> bool:
    """A conv1d of a sum over a group norm's result."""
    for node in s.of("conv1d"):
        total = s.made_by(node.uses[0], ("sum", "mean"))
        if total is not None and s.made_by(total.uses[0], ("group_norm", "instance_norm", "native_group_norm")):
            return True
    return False


def norm_of_a_transposed_convolution(s: Sketch) -> bool:
    """A norm of a group or batch norm of a transposed convolution."""
    inner = ("group_norm", "instance_norm", "batch_norm")
    for node in s.of("layer_norm", "group_norm", "instance_norm"):
        first = s.made_by(node.uses[0], inner)
        if first is not None and s.made_by(first.uses[0], _TRANSPOSED):
            return True
    return False


def averages_in_a_row_of_symbolic_sizes(s: Sketch) -> bool:
    """An avg_pool2d of an avg_pool2d, with symbolic sizes."""
    pools = s.of("avg_pool2d") if s.dynamic else ()
    return any(s.made_by(node.uses[0], ("avg_pool2d",), through=RESHAPERS) for node in pools)


TABLE: dict[int, Trigger] = {
    197888: maximum_of_another_order,
    100987: average_of_an_overhanging_window,
    94775: maximum_of_a_window_outside,
    93384: maximum_of_a_dilated_window,
    100793: reflection_beside_a_cut,
    175154: neighbours_by_a_factor_that_changes_no_size,
    93262: interpolated_to_one_element,
    100794: interpolated_from_one_element,
    93849: chosen_among_neighbours,
    185509: chosen_between_a_convolution_and_its_maxima,
    171452: grouped_convolution_of_a_transposed_value,
    184026: transposed_convolution_with_output_padding,
    171622: transposed_convolutions_in_a_row,
    181618: convolution_of_a_summed_norm,
    181688: norm_of_a_transposed_convolution,
    181115: averages_in_a_row_of_symbolic_sizes,
}
