"""ATen functions beneath the public ones, in the form in which decompositions and backward graphs call them."""

from __future__ import annotations

import math

from fuzzer.language.ops.normalisation import group_count, normalized, pictures, several_per_channel, trailing
from fuzzer.language.ops.padding import constant_pad
from fuzzer.language.ops.spec import (
    BOOL,
    SAME,
    WIDE,
    Draw,
    Operand,
    OpSpec,
    cast,
    choice,
    computed,
    dim,
    flag,
    has_spatial,
    images,
    integer,
    like,
    nonempty,
    real,
)
from fuzzer.language.program import Dtype, Recipe, Shape, Value

FAMILY = "native"


def _per_channel(name: str) -> Operand:
    return Operand(name, SAME, shape=lambda d: (d.x.shape[1],), keyword=name)


def _per_element(name: str) -> Operand:
    return Operand(name, SAME, shape=normalized, keyword=name)


_PICTURES = Operand(rank=(3, 5), accepts=several_per_channel, fresh=pictures)
_EPS = choice("eps", 1e-5, 1e-3, 0.1)
_MOMENTUM = choice("momentum", 0.1, 0.5)


def _window_of(d: Draw) -> Shape:
    """Images that a single window covers, so that every position in them is valid."""
    return (*d.x.shape[:2], d.size(1, 5), d.size(1, 5))


def _whole(d: Draw) -> Value:
    return d.operands[1].shape[2:]


def _position(d: Draw) -> Recipe:
    return Recipe("below", (math.prod(d.operands[1].shape[2:]),))


def _small_target(d: Draw) -> Value:
    return (d.size(1, 8), d.size(1, 8))


def _grid_sampler(spatial: int, modes: int) -> OpSpec:
    """`modes`: how many interpolation modes there are, given by number; three paddings."""
    return OpSpec(
        f"grid_sampler_{spatial}d",
        FAMILY,
        f"torch.grid_sampler_{spatial}d",
        (
            Operand(rank=(spatial + 2,) * 2, accepts=has_spatial(spatial), fresh=images(spatial, most=8)),
            Operand(
                "grid",
                SAME,
                shape=lambda d: (d.x.shape[0], *(d.size(1, 6) for _ in range(spatial)), spatial),
                values=("unit", "corners", "normal"),
            ),
            integer("interpolation_mode", 0, modes - 1),
            integer("padding_mode", 0, 2),
            flag("align_corners"),
        ),
    )


# Statistics of half-precision input are float32 on CUDA: portable=False.
TABLE = (
    OpSpec(
        "native_layer_norm",
        FAMILY,
        "torch.native_layer_norm",
        (
            Operand(rank=(1, 4), accepts=nonempty),
            computed("normalized_shape", "shape", trailing),
            _per_element("weight"),
            _per_element("bias"),
            _EPS,
        ),
        results=3,
        portable=False,
    ),
    OpSpec(
        "native_group_norm",
        FAMILY,
        "torch.native_group_norm",
        (
            # eager accepts only a dense layout
            Operand(shape=pictures, recipe=lambda d: Recipe("normal")),
            _per_channel("weight"),
            _per_channel("bias"),
            computed("N", "integer", lambda d: d.x.shape[0]),
            computed("C", "integer", lambda d: d.x.shape[1]),
            computed("HxW", "integer", lambda d: math.prod(d.x.shape[2:])),
            computed("group", "integer", group_count),
            _EPS,
        ),
        results=3,
    ),
    OpSpec(
        "native_batch_norm",
        FAMILY,
        "torch.native_batch_norm",
        (
            _PICTURES,
            _per_channel("weight"),
            _per_channel("bias"),
            # running statistics would be written in place
            choice("running_mean", None),
            choice("running_var", None),
            choice("training", True),
            _MOMENTUM,
            _EPS,
        ),
        results=3,
        portable=False,
    ),
    OpSpec(
        "native_batch_norm_legit",
        FAMILY,
        "torch._native_batch_norm_legit",
        (
            _PICTURES,
            _per_channel("weight"),
            _per_channel("bias"),
            choice("training", True),
            _MOMENTUM,
            _EPS,
        ),
        results=3,
        portable=False,
        entries=("_native_batch_norm_legit",),
    ),
    OpSpec(
        "native_dropout_backward",
        FAMILY,
        "torch.ops.aten.native_dropout_backward",
        (Operand(), Operand("mask", BOOL, shape=like), real("scale", 0, 2, (1.0, 0.0, 2.0))),
        entries=("native_dropout_backward",),
    ),
    OpSpec(
        "softmax_backward_data",
        FAMILY,
        "torch.ops.aten._softmax_backward_data",
        (
            Operand("grad_output", accepts=nonempty),
            Operand("output", SAME, shape=like, values=("probabilities",)),
            dim(),
            computed("input_dtype", "dtype", lambda d: Dtype(d.x.dtype)),
        ),
        entries=("_softmax_backward_data",),
    ),
    OpSpec(
        "safe_softmax",
        FAMILY,
        "torch.ops.aten._safe_softmax.default",
        (Operand(), dim(), cast()),
        entries=("torch.ops.aten._safe_softmax.default",),
    ),
    OpSpec(
        "max_pool2d_with_indices_backward",
        FAMILY,
        "torch.ops.aten.max_pool2d_with_indices_backward",
        (
            Operand(
                "grad_output",
                rank=(4, 4),
                accepts=lambda t: t.numel > 0 and t.shape[2:] == (1, 1),
                fresh=lambda d: (d.size(1, 3), d.size(1, 4), 1, 1),
            ),
            Operand("x", SAME, shape=_window_of),
            computed("kernel_size", "size", _whole),
            computed("stride", "size", _whole),
            choice("padding", 0),
            choice("dilation", 1),
            flag("ceil_mode"),
            Operand("indices", ("i64",), shape=like, recipe=_position, keyword="indices"),
        ),
        entries=("max_pool2d_with_indices_backward",),
    ),
    OpSpec(
        "upsample_bilinear2d_aa",
        FAMILY,
        "torch.ops.aten._upsample_bilinear2d_aa",
        (
            Operand(dtypes=WIDE, rank=(4, 4), accepts=nonempty, fresh=images(2, most=8)),
            computed("output_size", "size", _small_target),
            flag("align_corners"),
        ),
        entries=("_upsample_bilinear2d_aa",),
        public="torch.nn.functional.interpolate(antialias=True)",
    ),
    OpSpec(
        "constant_pad_nd",
        FAMILY,
        "torch.constant_pad_nd",
        (Operand(rank=(1, 5)), computed("pad", "shape", constant_pad), choice("value", 0, 1.0, -2.5, default=0)),
    ),
    _grid_sampler(2, 3),
    _grid_sampler(3, 2),
)
