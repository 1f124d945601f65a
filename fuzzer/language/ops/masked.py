"""torch.masked: reductions and normalisations over the elements that a mask keeps."""

from __future__ import annotations

from fuzzer.language.ops.reduction import KEEPDIM, TIES, maybe_dim
from fuzzer.language.ops.spec import (
    BOOL,
    SAME,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    choice,
    computed,
    dim,
    expandable,
    flag,
    like,
    nonempty,
)
from fuzzer.language.program import Recipe, Shape

FAMILY = "masked"


def _kept(d: Draw) -> Shape:
    """A mask that expands to the first operand."""
    return expandable(d, d.x.shape)


def _masked(name: str, *attributes: Attribute, values: tuple[str, ...] = (), rank: tuple[int, int] = (0, 4)) -> OpSpec:
    operand = Operand(rank=rank, accepts=nonempty, values=values)
    # where a mask keeps nothing, log_softmax is NaN
    full = (lambda d: Recipe("ones" if d.rng.random() < 0.5 else "coins")) if name == "log_softmax" else None
    mask = Operand("mask", BOOL, shape=_kept, recipe=full, keyword="mask", absent=0.1)
    return OpSpec(f"masked_{name}", FAMILY, f"torch.masked.{name}", (operand, *attributes, mask))


def _mask(name: str) -> Operand:
    return Operand(name, BOOL, shape=like, keyword=name, absent=0.4)


_SOME = computed("dim", "dim", maybe_dim, None)
_ORD = choice("ord", 2.0, 1.0, 3.0, float("inf"), default=2.0)

TABLE = (
    *(_masked(name, _SOME, KEEPDIM) for name in ("sum", "mean")),
    *(_masked(name, _SOME, KEEPDIM, values=TIES) for name in ("amax", "amin")),
    _masked("prod", _SOME, KEEPDIM, values=("zeros", "lone_zero", "signs", "ties")),
    _masked("norm", _ORD, _SOME, KEEPDIM, values=("zeros", "ties")),
    *(_masked(name, _SOME, flag("unbiased"), KEEPDIM) for name in ("var", "std")),
    _masked("logsumexp", computed("dim", "dim", lambda d: d.rng.randrange(-d.x.rank, d.x.rank)), KEEPDIM, rank=(1, 4)),
    _masked("median", dim(default=-1), KEEPDIM, values=TIES, rank=(1, 4)),
    *(_masked(name, dim(), rank=(1, 4)) for name in ("cumsum", "softmax", "log_softmax", "softmin")),
    _masked("cumprod", dim(), values=("zeros", "lone_zero", "signs"), rank=(1, 4)),
    _masked(
        "normalize",
        choice("ord", 2.0, 1.0, 3.0),
        dim(),
        choice("eps", 1e-12, 0.1, default=1e-12),
        values=("zeros", "normal"),
        rank=(1, 4),
    ),
    OpSpec(
        "masked_logaddexp",
        FAMILY,
        "torch.masked.logaddexp",
        (Operand(accepts=nonempty), Operand("other", SAME, shape=like), _mask("input_mask"), _mask("other_mask")),
    ),
)
