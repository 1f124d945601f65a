"""Scans along a dimension."""

from __future__ import annotations

from fuzzer.language.ops.spec import Attribute, Draw, Operand, OpSpec, cast, choice, dim, dims, integer, nonempty
from fuzzer.language.program import Shape, TensorType

FAMILY = "scan"


def _scan(name: str, *attributes: Attribute, values: tuple[str, ...] = (), results: int = 1) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.{name}", (Operand(values=values), dim(), *attributes), results)


def _wide_enough(t: TensorType) -> bool:
    """At least three elements along each dimension, as a second-order edge requires."""
    return t.rank > 0 and min(t.shape) >= 3


def _wide(d: Draw) -> Shape:
    return tuple(d.rng.randint(3, 8) for _ in range(d.rng.randint(1, 3)))


TABLE = (
    _scan("cumsum", cast(), values=("normal", "overflow")),
    _scan("cumprod", cast(), values=("zeros", "lone_zero", "signs", "ties", "overflow")),
    _scan("logcumsumexp", values=("normal", "overflow")),
    _scan("cummax", values=("ties", "integers"), results=2),
    _scan("cummin", values=("ties", "integers"), results=2),
    OpSpec("diff", FAMILY, "torch.diff", (Operand(rank=(1, 5)), integer("n", 0, 3, 1), dim(default=-1))),
    OpSpec(
        "gradient",
        FAMILY,
        "torch.gradient",
        (
            Operand(rank=(1, 4), accepts=_wide_enough, fresh=_wide),
            dims(),
            choice("spacing", 1.0, 0.5, 2.0, default=1.0),
            choice("edge_order", 1, 2, default=1),
        ),
        results=lambda d: len(d.attrs["dim"]),  # type: ignore[arg-type]
    ),
    OpSpec(
        "trapezoid",
        FAMILY,
        "torch.trapezoid",
        (Operand(rank=(1, 5)), choice("dx", 1, 0.5, 2.0, default=1), dim(default=-1)),
        entries=("trapezoid", "trapz"),
    ),
    OpSpec(
        "cumulative_trapezoid",
        FAMILY,
        "torch.cumulative_trapezoid",
        (Operand(rank=(1, 5), accepts=nonempty), choice("dx", 1, 0.5, 2.0, default=1), dim(default=-1)),
    ),
)
