"""Losses: how far one tensor is from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuzzer.language.ops.spec import (
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
from fuzzer.language.program import FLOATS, Recipe, Shape, Value

FAMILY = "loss"

_REDUCTION = choice("reduction", "mean", "sum", "none", default="mean")
_INPUT = Operand(accepts=nonempty)
_TARGET = Operand("target", SAME, shape=like)
# Values whose differences are often a margin, beta or delta, or 0.
_STEPS = ("integers", "ties", "normal")
_GRID, _GRID_TARGET = replace(_INPUT, values=_STEPS), replace(_TARGET, values=_STEPS)
# integers, since no gradient flows to a target
_SIGNS = Operand("target", INDEX, shape=like, recipe=lambda d: Recipe("signs"))


def _loss(name: str, *params: Operand | Attribute, source: str = "") -> OpSpec:
    return OpSpec(name, FAMILY, source or f"torch.nn.functional.{name}", (*params, _REDUCTION))


def _classes(d: Draw) -> int:
    return d.x.shape[min(1, d.x.rank - 1)] if d.x.rank else 1


def _labels(d: Draw) -> Shape:
    """x's shape without the dimension of classes (1, or 0 where there is no batch)."""
    return replaced(d.x.shape, min(1, d.x.rank - 1))


def _label(d: Draw) -> Recipe:
    return Recipe("below", (_classes(d),))


def _labels_and_none(d: Draw) -> Recipe:
    """Labels, of which those before the first -1 count."""
    return Recipe("between", (-1, d.x.shape[-1] - 1 if d.x.rank else 0))


def _scores(d: Draw) -> Shape:
    """(classes,), (batch, classes) or (batch, classes, *places)."""
    if d.rng.random() < 0.15:
        return (d.size(1, 16),)
    return (d.size(1, 8), d.size(1, 12), *(d.size(1, 5) for _ in range(d.rng.choice((0, 0, 1, 2)))))


def _ignored(d: Draw) -> Value:
    """torch's default of -100, or a class."""
    return -100 if d.rng.random() < 0.5 else d.rng.randrange(_classes(d))


def _rows(d: Draw) -> Shape:
    """One element for each row of a matrix (or of a batch of matrices)."""
    return d.x.shape[:-1]


_SCORES = Operand(rank=(1, 4), accepts=nonempty, fresh=_scores)


def _weight(shape: Callable[[Draw], Shape], name: str = "weight") -> Operand:
    """A weight for each class or element; torch refuses one that requires grad."""
    recipe = Recipe("positive")
    return Operand(name, SAME, shape=shape, recipe=lambda d: recipe, absent=0.6, keyword=name, fixed=True)


_CLASS_WEIGHT = _weight(lambda d: (_classes(d),))
_LABELS = Operand("target", INDEX, shape=_labels, recipe=_label, within=True)
# binary_cross_entropy checks the values and refuses those outside 0..1
_PROBABILITIES = Operand(
    shape=lambda d: tuple(d.size(1, 12) for _ in range(d.rng.randint(0, 3))), recipe=lambda d: Recipe("probabilities")
)


TABLE = (
    _loss(
        "gaussian_nll_loss",
        _INPUT,
        _TARGET,
        # as a number: of a tensor torch reads the values, on a path that cannot be compiled
        real("var", 0.1, 3, (1.0,)),
        flag("full", False),
        choice("eps", 1e-6, 0.5, default=1e-6),
    ),
    _loss(
        "multilabel_margin_loss",
        Operand(dtypes=WIDE, rank=(2, 2), accepts=nonempty, values=_STEPS),
        Operand("target", INDEX, shape=like, recipe=_labels_and_none, within=True),
    ),
    _loss(
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
            Operand("target", INDEX, shape=_rows, recipe=lambda d: Recipe("below", (d.operands[1].shape[0],))),
            _REDUCTION,
            real("label_smoothing", 0, 1, (0.0, 0.1), 0.0),
        ),
        since="2.13",
    ),
    _loss("mse_loss", _INPUT, _TARGET),
    _loss("l1_loss", _GRID, _GRID_TARGET),
    _loss("smooth_l1_loss", _GRID, _GRID_TARGET, real("beta", 0, 2, (1.0, 0.0, 0.5), 1.0)),
    _loss("huber_loss", _GRID, _GRID_TARGET, real("delta", 0.1, 2, (1.0, 0.5), 1.0)),
    OpSpec(
        "kl_div",
        FAMILY,
        "torch.nn.functional.kl_div",
        (
            _INPUT,
            Operand("target", SAME, shape=like, values=("probabilities", "zeros")),
            choice("reduction", "mean", "sum", "none", "batchmean", default="mean"),
            flag("log_target", False),
        ),
    ),
    _loss(
        "binary_cross_entropy",
        _PROBABILITIES,
        Operand("target", SAME, shape=like, recipe=lambda d: Recipe("probabilities")),
        _weight(like),
    ),
    _loss(
        "binary_cross_entropy_with_logits",
        _INPUT,
        Operand("target", SAME, shape=like, values=("probabilities", "uniform")),
        _weight(like),
        _weight(lambda d: d.x.shape[-1:], "pos_weight"),
    ),
    _loss(
        "cross_entropy",
        _SCORES,
        _LABELS,
        _CLASS_WEIGHT,
        computed("ignore_index", "integer", _ignored, -100),
        real("label_smoothing", 0, 1, (0.0, 0.1), 0.0),
    ),
    _loss(
        "cross_entropy_soft",
        _SCORES,
        Operand("target", SAME, shape=like, values=("probabilities",)),
        real("label_smoothing", 0, 1, (0.0, 0.1), 0.0),
        source="torch.nn.functional.cross_entropy",
    ),
    _loss(
        "nll_loss",
        Operand(rank=(1, 2), accepts=nonempty),
        _LABELS,
        _CLASS_WEIGHT,
        computed("ignore_index", "integer", _ignored, -100),
    ),
    _loss(
        "poisson_nll_loss",
        _INPUT,
        Operand("target", SAME, shape=like, values=("positive", "uniform")),
        flag("log_input", True),
        flag("full", False),
        choice("eps", 1e-8, 1e-2, default=1e-8),
    ),
    _loss("soft_margin_loss", _INPUT, _SIGNS),
    _loss(
        "hinge_embedding_loss",
        Operand(accepts=nonempty, edges=at("margin")),
        _SIGNS,
        real("margin", 0, 2, (1.0, 0.5), 1.0),
    ),
    _loss("multilabel_soft_margin_loss", Operand(rank=(2, 2), accepts=nonempty), _TARGET, _CLASS_WEIGHT),
    _loss(
        "multi_margin_loss",
        Operand(dtypes=WIDE, rank=(2, 2), accepts=nonempty, values=_STEPS),
        _LABELS,
        _CLASS_WEIGHT,
        choice("p", 1, 2, default=1),
        real("margin", 0, 2, (1.0, 0.5), 1.0),
    ),
    _loss(
        "margin_ranking_loss",
        _GRID,
        Operand("input2", SAME, shape=like, values=_STEPS),
        _SIGNS,
        real("margin", 0, 2, (0.0, 0.5), 0.0),
    ),
    _loss(
        "triplet_margin_loss",
        Operand("anchor", rank=(1, 3), accepts=nonempty),
        Operand("positive", SAME, shape=like),
        Operand("negative", SAME, shape=like),
        real("margin", 0, 2, (1.0, 0.5), 1.0),
        choice("p", 2.0, 1.0, 3.0, default=2.0),
        flag("swap", False),
    ),
    _loss(
        "cosine_embedding_loss",
        Operand("input1", rank=(2, 2), accepts=nonempty),
        Operand("input2", SAME, shape=like),
        Operand("target", INDEX, shape=_rows, recipe=lambda d: Recipe("signs")),
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
