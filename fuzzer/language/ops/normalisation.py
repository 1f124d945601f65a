"""Normalisations: subtract the mean of some dimensions and divide by the deviation."""

from __future__ import annotations

import math

from fuzzer.language.ops.spec import (
    SAME,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    dim,
    images,
    integer,
    nonempty,
    real,
)
from fuzzer.language.program import Recipe, Shape, TensorType, Value

FAMILY = "normalisation"

_SMALL = (1e-5, 1e-3, 0.1)
_EPS = choice("eps", *_SMALL, default=1e-5)


def trailing(d: Draw) -> Value:
    """The sizes of the last one or more dimensions."""
    return d.x.shape[-d.rng.choice((1, 1, d.rng.randint(1, d.x.rank))) :]


def normalized(d: Draw) -> Shape:
    return d.attrs["normalized_shape"]  # type: ignore[return-value]


def _channels(d: Draw) -> Shape:
    return (d.x.shape[1],)


def _affine(name: str, shape: str = "channels") -> Operand:
    """A weight or a bias, often left out."""
    return Operand(name, SAME, shape=_channels if shape == "channels" else normalized, absent=0.35, keyword=name)


def several_per_channel(t: TensorType) -> bool:
    """More than one value per channel, as torch demands where it computes a variance."""
    return t.numel > 0 and t.numel // t.shape[1] > 1


def _several_per_instance(t: TensorType) -> bool:
    return t.numel > 0 and math.prod(t.shape[2:]) > 1


def pictures(d: Draw) -> Shape:
    """A batch of images with more than one value per channel."""
    batch, channels_, *sizes = images(d.rng.randint(1, 3), most=8)(d)
    return (batch, channels_, *sizes[:-1], sizes[-1] + 1)


def group_count(d: Draw) -> Value:
    count = d.x.shape[1]
    return d.rng.choice([k for k in range(1, count + 1) if count % k == 0])


def _nothing(name: str) -> Attribute:
    """None for running statistics, which would be written in place; torch requires the argument."""
    return choice(name, None)


TABLE = (
    OpSpec(
        "layer_norm",
        FAMILY,
        "torch.nn.functional.layer_norm",
        (
            Operand(rank=(1, 5), accepts=nonempty),
            computed("normalized_shape", "shape", trailing),
            _affine("weight", "normalized"),
            _affine("bias", "normalized"),
            _EPS,
        ),
    ),
    OpSpec(
        "rms_norm",
        FAMILY,
        "torch.nn.functional.rms_norm",
        (
            Operand(rank=(1, 5), accepts=nonempty),
            computed("normalized_shape", "shape", trailing),
            _affine("weight", "normalized"),
            choice("eps", None, *_SMALL, default=None),
        ),
    ),
    OpSpec(
        "batch_norm",
        FAMILY,
        "torch.nn.functional.batch_norm",
        (
            Operand(rank=(2, 5), accepts=several_per_channel, fresh=pictures),
            _nothing("running_mean"),
            _nothing("running_var"),
            _affine("weight"),
            _affine("bias"),  # also without a weight: eager's CUDA backward refuses that on torch 2.11
            choice("training", True, default=False),
            _EPS,
        ),
    ),
    OpSpec(
        "batch_norm_eval",
        FAMILY,
        "torch.nn.functional.batch_norm",
        (
            Operand(rank=(2, 5), accepts=several_per_channel, fresh=pictures),
            # torch gives statistics no gradient
            Operand("running_mean", SAME, shape=_channels, recipe=lambda d: Recipe("normal"), fixed=True),
            Operand("running_var", SAME, shape=_channels, recipe=lambda d: Recipe("positive"), fixed=True),
            _affine("weight"),
            _affine("bias"),
            choice("momentum", 0.1, default=0.1),  # without effect
            _EPS,
        ),
        entries=(),
    ),
    OpSpec(
        "instance_norm",
        FAMILY,
        "torch.nn.functional.instance_norm",
        (
            Operand(rank=(3, 5), accepts=_several_per_instance, fresh=pictures),
            _affine("weight"),
            _affine("bias"),
            _EPS,
        ),
    ),
    OpSpec(
        "group_norm",
        FAMILY,
        "torch.nn.functional.group_norm",
        (
            Operand(rank=(2, 5), accepts=_several_per_instance, fresh=pictures),
            computed("num_groups", "integer", group_count),
            # eager's backward breaks on a bias without a weight ("tensor does not have a device", torch 2.11 and 2.13)
            Operand("weight", SAME, shape=_channels, keyword="weight"),
            _affine("bias"),
            _EPS,
        ),
    ),
    OpSpec(
        "local_response_norm",
        FAMILY,
        "torch.nn.functional.local_response_norm",
        (
            # for more dimensions the CPU lacks half precision, and torch takes a view that a permuted x does not have
            Operand(rank=(3, 3), accepts=nonempty),
            integer("size", 1, 5),
            real("alpha", 0, 1, (1e-4, 1.0), 1e-4),
            real("beta", 0.25, 1, (0.75, 0.5), 0.75),
            real("k", 0.5, 2, (1.0,), 1.0),
        ),
    ),
    OpSpec(
        "normalize",
        FAMILY,
        "torch.nn.functional.normalize",
        (
            Operand(rank=(2, 5), accepts=nonempty, values=("zeros", "ties", "subnormal")),
            choice("p", 2.0, 1.0, 3.0, float("inf"), default=2.0),
            dim(default=1),
            choice("eps", 1e-12, 1e-3, 1.0, default=1e-12),
        ),
    ),
    OpSpec(
        "renorm",
        FAMILY,
        "torch.renorm",
        (
            Operand(rank=(2, 5), accepts=nonempty, values=("zeros", "ties", "normal")),
            choice("p", 2.0, 1.0, 3.0),
            dim(),
            choice("maxnorm", 0.5, 1.0, 5.0),
        ),
    ),
)
