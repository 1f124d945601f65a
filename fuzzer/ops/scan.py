"""Scans along a dimension."""

from __future__ import annotations

from fuzzer.ops.spec import Attribute, Operand, OpSpec, cast, choice, dim, integer, nonempty

FAMILY = "scan"


def scan(name: str, *attributes: Attribute, values: tuple[str, ...] = (), results: int = 1) -> OpSpec:
    return OpSpec(name, FAMILY, f"torch.{name}", (Operand(values=values), dim(), *attributes), results)


TABLE = (
    scan("cumsum", cast()),
    scan("cumprod", values=("zeros", "signs")),
    scan("logcumsumexp"),
    scan("cummax", values=("ties", "integers"), results=2),
    scan("cummin", values=("ties", "integers"), results=2),
    OpSpec("diff", FAMILY, "torch.diff", (Operand(rank=(1, 5)), integer("n", 0, 3, 1), dim(default=-1))),
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
