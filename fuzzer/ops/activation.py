"""Activations."""

from __future__ import annotations

from collections.abc import Sequence

from fuzzer.ops.spec import SAME, Attribute, Draw, Edges, Operand, OpSpec, at, choice, computed, real
from fuzzer.program import FLOATS, Shape, Value

FAMILY = "activation"


def activation(
    name: str,
    *attributes: Attribute,
    source: str = "",
    values: tuple[str, ...] = (),
    edges: Edges = None,
    dtypes: tuple[str, ...] = FLOATS,
) -> OpSpec:
    operand = Operand(dtypes=dtypes, values=values, edges=edges)
    return OpSpec(name, FAMILY, source or f"torch.nn.functional.{name}", (operand, *attributes))


def slopes(d: Draw) -> Shape:
    """prelu's weight: one slope for all, or one per channel (dimension 1)."""
    return (d.x.shape[1] if d.x.rank > 1 and d.rng.random() < 0.6 else 1,)


def evenly(d: Draw) -> Shape:
    """A shape with an even size, so that glu can halve it."""
    shape = [d.size(1, 8) for _ in range(d.rng.randint(1, 4))]
    shape[d.rng.randrange(len(shape))] = 2 * d.rng.randint(0, 4)
    return tuple(shape)


def even_dim(d: Draw) -> Value:
    """A dimension of even size (that of the last such, most often, is -1: the default)."""
    candidates = [i for i, size in enumerate(d.x.shape) if size % 2 == 0]
    chosen = d.rng.choice(candidates)
    return chosen - d.x.rank if d.rng.random() < 0.5 else chosen


def linear_from(d: Draw) -> Sequence[Value]:
    """Where softplus becomes the identity: beta x = threshold."""
    return [float(d.attrs["threshold"]) / float(d.attrs["beta"])]  # type: ignore[arg-type]


def both_sides(d: Draw) -> Sequence[Value]:
    return [float(d.attrs["lambd"]), -float(d.attrs["lambd"])]  # type: ignore[arg-type]


EDGES = ("corners", "zeros", "subnormal")

TABLE = (
    activation("relu", values=EDGES, edges=at(0.0)),
    activation("relu6", values=EDGES, edges=at(0.0, 6.0)),
    activation(
        "leaky_relu", real("negative_slope", -0.5, 1.5, (0.01, 0.0, 0.2, 1.0), 0.01), values=EDGES, edges=at(0.0)
    ),
    OpSpec(
        "prelu",
        FAMILY,
        "torch.nn.functional.prelu",
        (Operand(rank=(1, 5), values=EDGES, edges=at(0.0)), Operand("weight", SAME, shape=slopes)),
    ),
    activation(
        "rrelu",
        real("lower", 0.0, 0.3, (0.0, 0.125), 1 / 8),
        real("upper", 0.3, 1.0, (0.5, 1 / 3), 1 / 3),
        edges=at(0.0),
    ),
    activation("elu", real("alpha", 0.1, 2, (1.0, 0.5), 1.0), values=EDGES, edges=at(0.0)),
    activation("selu", values=EDGES, edges=at(0.0)),
    activation("celu", real("alpha", 0.2, 2, (1.0, 0.5), 1.0), values=EDGES, edges=at(0.0)),
    activation("gelu", choice("approximate", "none", "tanh", default="none")),
    activation("silu"),
    activation("mish"),
    activation(
        "softplus",
        real("beta", 0.2, 3, (1.0, 0.5), 1.0),
        real("threshold", 0.5, 30, (20.0, 1.0), 20.0),
        edges=linear_from,
    ),
    activation("softshrink", real("lambd", 0, 2, (0.5, 0.0, 1.0), 0.5), values=EDGES, edges=both_sides),
    activation("hardshrink", real("lambd", 0, 2, (0.5, 0.0, 1.0), 0.5), values=EDGES, edges=both_sides),
    activation("tanhshrink"),
    activation(
        "hardtanh",
        real("min_val", -2, 0, (-1.0, 0.0), -1.0),
        real("max_val", 0.1, 2, (1.0,), 1.0),
        values=EDGES,
        edges=at("min_val", "max_val"),
    ),
    activation("hardsigmoid", values=("corners",), edges=at(-3.0, 3.0)),
    activation("hardswish", values=("corners",), edges=at(-3.0, 0.0, 3.0)),
    activation(
        "threshold",
        real("threshold", -1, 1, (0.0, 0.5)),
        real("value", -2, 2, (0.0, 1.0)),
        values=EDGES,
        edges=at("threshold"),
    ),
    activation("softsign", values=("zeros",)),
    activation("logsigmoid"),
    activation("tanh", source="torch.tanh"),
    OpSpec(
        "glu",
        FAMILY,
        "torch.nn.functional.glu",
        (
            Operand(rank=(1, 5), accepts=lambda t: any(size % 2 == 0 for size in t.shape), fresh=evenly),
            computed("dim", "dim", even_dim, -1),
        ),
    ),
)
