"""Ops that write one tensor into a part of another."""

from __future__ import annotations

from fuzzer.ops.spec import SAME, Draw, OpSpec, Operand, dim, integer
from fuzzer.program import Shape

FAMILY = "scatter"


def sliced(d: Draw) -> Shape:
    """The shape of x[start:end:step] along dim."""
    size = d.x.shape[d.dim()]
    kept = len(range(size)[slice(d.attrs["start"], d.attrs["end"], d.attrs["step"])])
    return (*d.x.shape[: d.dim()], kept, *d.x.shape[d.dim() + 1 :])


def selected(d: Draw) -> Shape:
    """The shape of x without dim."""
    return (*d.x.shape[: d.dim()], *d.x.shape[d.dim() + 1 :])


def extent(d: Draw) -> int:
    return d.x.shape[d.dim()]


TABLE = (
    OpSpec(
        "slice_scatter",
        FAMILY,
        "torch.slice_scatter",
        (
            Operand(rank=(1, 5)),
            dim(default=0),
            integer("start", 0, extent, default=0),
            integer("end", lambda d: int(d.attrs["start"]), extent),  # type: ignore[arg-type]
            integer("step", 1, 3, default=1),
            Operand("src", SAME, shape=sliced),
        ),
    ),
    OpSpec(
        "select_scatter",
        FAMILY,
        "torch.select_scatter",
        (
            Operand(rank=(1, 5), accepts=lambda t: t.numel > 0),
            dim(),
            integer("index", lambda d: -extent(d), lambda d: extent(d) - 1),
            Operand("src", SAME, shape=selected),
        ),
    ),
)
