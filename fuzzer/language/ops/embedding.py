"""Look-ups in a table of rows. The table is drawn first, so that indices can fit it; both are passed by keyword."""

from __future__ import annotations

from fuzzer.language.ops.spec import INDEX, SAME, Attribute, Draw, Operand, OpSpec, choice, computed, flag, integer
from fuzzer.language.program import Recipe, Shape, Value

FAMILY = "embedding"


def _row(d: Draw) -> Recipe:
    return Recipe("below", (d.x.shape[0],))


def _places(d: Draw) -> Shape:
    return tuple(d.size(1, 8) for _ in range(d.rng.choice((0, *[1, 2, 3] * 9))))


def _bags(d: Draw) -> Shape:
    return (d.size(1, 8), d.size(1, 6))


def _padding(d: Draw) -> Value:
    """None, or a row (also counted from the end) that gets no gradient."""
    rows = d.x.shape[0]
    return None if d.rng.random() < 0.5 else d.rng.randint(-rows, rows - 1)


def _look_up(name: str, shape: object, *params: Operand | Attribute, **table: object) -> OpSpec:
    weight = Operand(
        "weight",
        rank=(2, 2),
        accepts=lambda t: t.numel > 0,
        keyword="weight",
        **table,  # type: ignore[arg-type]
    )
    index = Operand("input", INDEX, shape=shape, recipe=_row, keyword="input")  # type: ignore[arg-type]
    source = "torch.nn.functional." + name.removesuffix("_weighted")
    return OpSpec(name, FAMILY, source, (weight, index, *params))


_PADDING = computed("padding_idx", "integer", _padding, None)
_BY_FREQUENCY = flag("scale_grad_by_freq", False)

TABLE = (
    _look_up("embedding", _places, _PADDING, _BY_FREQUENCY),
    _look_up("embedding_bag", _bags, choice("mode", "mean", "sum", default="mean"), _PADDING, _BY_FREQUENCY),
    _look_up(
        "embedding_bag_weighted",
        _bags,
        Operand("per_sample_weights", SAME, shape=lambda d: d.operands[1].shape, keyword="per_sample_weights"),
        choice("mode", "sum", default="mean"),
        _PADDING,
    ),
    OpSpec(
        "one_hot",
        FAMILY,
        "torch.nn.functional.one_hot",
        (Operand(dtypes=INDEX, shape=_places, recipe=lambda d: Recipe("below", (5,))), integer("num_classes", 5, 9)),
        differentiable=False,
    ),
)
