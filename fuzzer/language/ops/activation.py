"""Activations."""

from __future__ import annotations

from collections.abc import Sequence

from fuzzer.language.ops.spec import SAME, Attribute, Draw, Edges, Operand, OpSpec, at, choice, computed, real
from fuzzer.language.program import FLOATS, Shape, Value

FAMILY = "activation"


def _activation(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    edges: Edges = None,
    dtypes: tuple[str, ...] = FLOATS,
) -> OpSpec:
    operand = Operand(dtypes=dtypes, values=values, edges=edges)
    return OpSpec(name, FAMILY, source or f"torch.nn.functional.{name}", (operand, *attributes))


def _slopes(d: Draw) -> Shape:
    """prelu's weight: one slope for all, or one per channel (dimension 1)."""
    return (d.x.shape[1] if d.x.rank > 1 and d.rng.random() < 0.6 else 1,)


def _evenly(d: Draw) -> Shape:
    """A shape with an even size, so that glu can halve it."""
    shape = [d.size(1, 8) for _ in range(d.rng.randint(1, 4))]
    shape[d.rng.randrange(len(shape))] = 2 * d.rng.randint(0, 4)
    return tuple(shape)


def _even_dim(d: Draw) -> Value:
    """A dimension of even size (the last one of these is mostly -1, the default)."""
    candidates = [i for i, size in enumerate(d.x.shape) if size % 2 == 0]
    chosen = d.rng.choice(candidates)
    return chosen - d.x.rank if d.rng.random() < 0.5 else chosen


def _linear_from(d: Draw) -> Sequence[Value]:
    """The point at which softplus becomes the identity: beta x = threshold."""
    return [float(d.attrs["threshold"]) / float(d.attrs["beta"])]  # type: ignore[arg-type]


def _both_sides(d: Draw) -> Sequence[Value]:
    return [float(d.attrs["lambd"]), -float(d.attrs["lambd"])]  # type: ignore[arg-type]


_EDGES = ("corners", "zeros", "subnormal")

TABLE = (
    _activation("relu", values=_EDGES, edges=at(0.0)),
    _activation("relu6", values=_EDGES, edges=at(0.0, 6.0)),
    _activation(
        "leaky_relu", real("negative_slope", -0.5, 1.5, (0.01, 0.0, 0.2, 1.0), 0.01), values=_EDGES, edges=at(0.0)
    ),
    OpSpec(
        "prelu",
        FAMILY,
        "torch.nn.functional.prelu",
        (Operand(rank=(1, 5), values=_EDGES, edges=at(0.0)), Operand("weight", SAME, shape=_slopes)),
    ),
    _activation(
        "rrelu",
        real("lower", 0.0, 0.3, (0.0, 0.125), 1 / 8),
        real("upper", 0.3, 1.0, (0.5, 1 / 3), 1 / 3),
        edges=at(0.0),
    ),
    _activation("elu", real("alpha", 0.1, 2, (1.0, 0.5), 1.0), values=_EDGES, edges=at(0.0)),
    _activation("selu", values=_EDGES, edges=at(0.0)),
    _activation("celu", real("alpha", 0.2, 2, (1.0, 0.5), 1.0), values=_EDGES, edges=at(0.0)),
    _activation("gelu", choice("approximate", "none", "tanh", default="none")),
    _activation("silu"),
    _activation("mish"),
    _activation(
        "softplus",
        real("beta", 0.2, 3, (1.0, 0.5), 1.0),
        real("threshold", 0.5, 30, (20.0, 1.0), 20.0),
        edges=_linear_from,
    ),
    _activation("softshrink", real("lambd", 0, 2, (0.5, 0.0, 1.0), 0.5), values=_EDGES, edges=_both_sides),
    _activation("hardshrink", real("lambd", 0, 2, (0.5, 0.0, 1.0), 0.5), values=_EDGES, edges=_both_sides),
    _activation("tanhshrink"),
    _activation(
        "hardtanh",
        real("min_val", -2, 0, (-1.0, 0.0), -1.0),
        real("max_val", 0.1, 2, (1.0,), 1.0),
        values=_EDGES,
        edges=at("min_val", "max_val"),
    ),
    _activation("hardsigmoid", values=("corners",), edges=at(-3.0, 3.0)),
    _activation("hardswish", values=("corners",), edges=at(-3.0, 0.0, 3.0)),
    _activation(
        "threshold",
        real("threshold", -1, 1, (0.0, 0.5)),
        real("value", -2, 2, (0.0, 1.0)),
        values=_EDGES,
        edges=at("threshold"),
    ),
    _activation("softsign", values=("zeros",)),
    _activation("logsigmoid"),
    _activation("tanh", source="torch.tanh"),
    OpSpec(
        "glu",
        FAMILY,
        "torch.nn.functional.glu",
        (
            Operand(rank=(1, 5), accepts=lambda t: any(size % 2 == 0 for size in t.shape), fresh=_evenly),
            computed("dim", "dim", _even_dim, -1),
        ),
    ),
)
