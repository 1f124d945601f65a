"""Losses: how far one tensor is from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuzzer.ops.spec import (
    FLOATS,
    INDEX,
    SAME,
    WIDE,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    at,
    choice,
    computed,
    dim,
    flag,
    like,
    nonempty,
    real,
    replaced,
)
from fuzzer.program import Recipe, Shape, Value

FAMILY = "loss"

REDUCTION = choice("reduction", "mean", "sum", "none", default="mean")
INPUT = Operand(accepts=nonempty)
TARGET = Operand("target", SAME, shape=like)
# Differences of which are often a margin, beta or delta, and 0.
STEPS = ("integers", "ties", "normal")
GRID, GRID_TARGET = replace(INPUT, values=STEPS), replace(TARGET, values=STEPS)
# integers, because a target that requires grad would get none
SIGNS = Operand("target", INDEX, shape=like, recipe=lambda d: Recipe("signs"))


def loss(name: str, *params: Operand | Attribute, source: str = "") -> OpSpec:
    return OpSpec(name, FAMILY, source or f"torch.nn.functional.{name}", (*params, REDUCTION))


def classes(d: Draw) -> int:
    return d.x.shape[min(1, d.x.rank - 1)] if d.x.rank else 1


def labels(d: Draw) -> Shape:
    """x's shape without the dimension of classes (1, or 0 where there is no batch)."""
    return replaced(d.x.shape, min(1, d.x.rank - 1))


def label(d: Draw) -> Recipe:
    return Recipe("below", (classes(d),))


def labels_and_none(d: Draw) -> Recipe:
    """Labels up to the first -1 count."""
    return Recipe("between", (-1, d.x.shape[-1] - 1 if d.x.rank else 0))


def scores(d: Draw) -> Shape:
    """(classes,), (batch, classes) or (batch, classes, *places)."""
    if d.rng.random() < 0.15:
        return (d.size(1, 16),)
    return (d.size(1, 8), d.size(1, 12), *(d.size(1, 5) for _ in range(d.rng.choice((0, 0, 1, 2)))))


def ignored(d: Draw) -> Value:
    """torch's -100, or a class."""
    return -100 if d.rng.random() < 0.5 else d.rng.randrange(classes(d))


def rows(d: Draw) -> Shape:
    """One per row of a matrix (or batch of them)."""
    return d.x.shape[:-1]


SCORES = Operand(rank=(1, 4), accepts=nonempty, fresh=scores)


def weight(shape: Callable[[Draw], Shape], name: str = "weight") -> Operand:
    """Of a class or an element; torch refuses one that requires grad."""
    recipe = Recipe("positive")
    return Operand(name, SAME, shape=shape, recipe=lambda d: recipe, absent=0.6, keyword=name, fixed=True)


CLASS_WEIGHT = weight(lambda d: (classes(d),))
LABELS = Operand("target", INDEX, shape=labels, recipe=label, within=True)
# binary_cross_entropy looks at the values and refuses those outside 0..1
PROBABILITIES = Operand(
    shape=lambda d: tuple(d.size(1, 12) for _ in range(d.rng.randint(0, 3))), recipe=lambda d: Recipe("probabilities")
)


TABLE = (
    loss(
        "gaussian_nll_loss",
        INPUT,
        TARGET,
        # as a number: of a tensor torch looks at the values, and takes no path that compiles
        real("var", 0.1, 3, (1.0,)),
        flag("full", False),
        choice("eps", 1e-6, 0.5, default=1e-6),
    ),
    loss(
        "multilabel_margin_loss",
        Operand(dtypes=WIDE, rank=(2, 2), accepts=nonempty, values=STEPS),
        Operand("target", INDEX, shape=like, recipe=labels_and_none, within=True),
    ),
    loss(
        "triplet_margin_with_distance_loss",
        Operand("anchor", rank=(1, 3), accepts=nonempty),
        Operand("positive", SAME, shape=like),
        Operand("negative", SAME, shape=like),
        real("margin", 0.1, 2, (1.0, 0.5), 1.0),
        flag("swap", False),
    ),
    OpSpec(
        "linear_cross_entropy",
        FAMILY,
        "torch.nn.functional.linear_cross_entropy",
        (
            Operand(rank=(2, 2), accepts=nonempty, fresh=lambda d: (d.size(1, 8), d.size(1, 8))),
            Operand("linear_weight", SAME, shape=lambda d: (d.size(1, 8), d.x.shape[1])),
            Operand("target", INDEX, shape=rows, recipe=lambda d: Recipe("below", (d.operands[1].shape[0],))),
            REDUCTION,
            real("label_smoothing", 0, 1, (0.0, 0.1), 0.0),
        ),
        since="2.13",
    ),
    loss("mse_loss", INPUT, TARGET),
    loss("l1_loss", GRID, GRID_TARGET),
    loss("smooth_l1_loss", GRID, GRID_TARGET, real("beta", 0, 2, (1.0, 0.0, 0.5), 1.0)),
    loss("huber_loss", GRID, GRID_TARGET, real("delta", 0.1, 2, (1.0, 0.5), 1.0)),
    OpSpec(
        "kl_div",
        FAMILY,
        "torch.nn.functional.kl_div",
        (
            INPUT,
            Operand("target", SAME, shape=like, values=("probabilities", "zeros")),
            choice("reduction", "mean", "sum", "none", "batchmean", default="mean"),
            flag("log_target", False),
        ),
    ),
    loss(
        "binary_cross_entropy",
        PROBABILITIES,
        Operand("target", SAME, shape=like, recipe=lambda d: Recipe("probabilities")),
        weight(like),
    ),
    loss(
        "binary_cross_entropy_with_logits",
        INPUT,
        Operand("target", SAME, shape=like, values=("probabilities", "uniform")),
        weight(like),
        weight(lambda d: d.x.shape[-1:], "pos_weight"),
    ),
    loss(
        "cross_entropy",
        SCORES,
        LABELS,
        CLASS_WEIGHT,
        computed("ignore_index", "integer", ignored, -100),
        real("label_smoothing", 0, 1, (0.0, 0.1), 0.0),
    ),
    loss(
        "cross_entropy_soft",
        SCORES,
        Operand("target", SAME, shape=like, values=("probabilities",)),
        real("label_smoothing", 0, 1, (0.0, 0.1), 0.0),
        source="torch.nn.functional.cross_entropy",
    ),
    loss(
        "nll_loss",
        Operand(rank=(1, 2), accepts=nonempty),
        LABELS,
        CLASS_WEIGHT,
        computed("ignore_index", "integer", ignored, -100),
    ),
    loss(
        "poisson_nll_loss",
        INPUT,
        Operand("target", SAME, shape=like, values=("positive", "uniform")),
        flag("log_input", True),
        flag("full", False),
        choice("eps", 1e-8, 1e-2, default=1e-8),
    ),
    loss("soft_margin_loss", INPUT, SIGNS),
    loss(
        "hinge_embedding_loss",
        Operand(accepts=nonempty, edges=at("margin")),
        SIGNS,
        real("margin", 0, 2, (1.0, 0.5), 1.0),
    ),
    loss("multilabel_soft_margin_loss", Operand(rank=(2, 2), accepts=nonempty), TARGET, CLASS_WEIGHT),
    loss(
        "multi_margin_loss",
        Operand(dtypes=WIDE, rank=(2, 2), accepts=nonempty, values=STEPS),
        LABELS,
        CLASS_WEIGHT,
        choice("p", 1, 2, default=1),
        real("margin", 0, 2, (1.0, 0.5), 1.0),
    ),
    loss(
        "margin_ranking_loss",
        GRID,
        Operand("input2", SAME, shape=like, values=STEPS),
        SIGNS,
        real("margin", 0, 2, (0.0, 0.5), 0.0),
    ),
    loss(
        "triplet_margin_loss",
        Operand("anchor", rank=(1, 3), accepts=nonempty),
        Operand("positive", SAME, shape=like),
        Operand("negative", SAME, shape=like),
        real("margin", 0, 2, (1.0, 0.5), 1.0),
        choice("p", 2.0, 1.0, 3.0, default=2.0),
        flag("swap", False),
    ),
    loss(
        "cosine_embedding_loss",
        Operand("input1", rank=(2, 2), accepts=nonempty),
        Operand("input2", SAME, shape=like),
        Operand("target", INDEX, shape=rows, recipe=lambda d: Recipe("signs")),
        real("margin", -0.5, 1, (0.0, 0.5), 0.0),
    ),
    OpSpec(
        "cosine_similarity",
        FAMILY,
        "torch.nn.functional.cosine_similarity",
        (
            Operand("x1", FLOATS, rank=(1, 4), accepts=nonempty),
            Operand("x2", SAME, shape=like),
            dim(default=1),
            choice("eps", 1e-8, 1e-3, default=1e-8),
        ),
    ),
    OpSpec(
        "pairwise_distance",
        FAMILY,
        "torch.nn.functional.pairwise_distance",
        (
            Operand("x1", rank=(1, 3), accepts=nonempty),
            Operand("x2", SAME, shape=like),
            choice("p", 2.0, 1.0, 3.0, default=2.0),
            choice("eps", 1e-6, 1e-2, default=1e-6),
            flag("keepdim", False),
        ),
    ),
)
