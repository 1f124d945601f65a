"""Ops that write their first operand. Most are the out-of-place entry of another table with that one change.

The written operand keeps its shape and dtype, so the other operands must expand to it. The generator decides which
values may be written (`Draft.may_write`). A write through a view is a view followed by a write: the base changes too.

Left out: fill_diagonal_ (torch.compile refuses it on a view: it decomposes into as_strided); leaky_relu_ (its backward
refuses a negative slope).
"""

from __future__ import annotations

from dataclasses import replace

from fuzzer.language.ops import activation, binary, index, layout, pointwise, scan, scatter, ternary
from fuzzer.language.ops.spec import (
    SAME,
    WRITES,
    Attribute,
    Draw,
    Operand,
    OpSpec,
    broadcast,
    choice,
    expandable,
)
from fuzzer.language.program import FLOATS, Shape, writable

FAMILY = "inplace"

_KNOWN = {
    spec.name: spec
    for table in (activation, binary, index, layout, pointwise, scan, scatter, ternary)
    for spec in table.TABLE
}


def _onto(d: Draw) -> Shape:
    """A shape that expands to the written one."""
    return expandable(d, d.x.shape)


def _written(operand: Operand) -> Operand:
    """The operand restricted for writing: nonempty, no two elements in one place, and floating, which holds every
    result."""
    accepts = operand.accepts
    floating = tuple(t for t in operand.dtypes if t in FLOATS) or operand.dtypes
    return replace(
        operand, dtypes=floating, accepts=lambda t: t.numel > 0 and writable(t) and (accepts is None or accepts(t))
    )


_WRITTEN = _written(Operand())


def _inplace(of: str, source: str = "") -> OpSpec:
    """The in-place form of an entry: torch.Tensor's method, unless a source is named."""
    spec = _KNOWN[of]
    first, *others = (p for p in spec.params if p.name != "dtype")
    fitting = [replace(p, shape=_onto) if isinstance(p, Operand) and p.shape is broadcast else p for p in others]
    params = (_written(first) if isinstance(first, Operand) else first, *fitting)
    source = source or f"torch.Tensor.{spec.source.split('.')[-1]}_"
    return replace(spec, name=f"{of}_", family=FAMILY, source=source, params=params, effects=WRITES, entries=())


def _functional(of: str) -> OpSpec:
    """The in-place form of an activation that only torch.nn.functional has."""
    return _inplace(of, f"{_KNOWN[of].source}_")


def _writer(name: str, *params: Operand | Attribute, source: str = "", differentiable: bool = True) -> OpSpec:
    """An op that has no out-of-place entry."""
    source = source or f"torch.Tensor.{name}"
    return OpSpec(name, FAMILY, source, (_WRITTEN, *params), 1, differentiable, WRITES, entries=())


_POINTWISE = """
    exp exp2 expm1 log log1p sqrt rsqrt reciprocal neg abs sin cos atan sinh cosh erf erfc sigmoid square
    sinc frac clamp add_scalar mul_scalar pow_scalar nan_to_num logit deg2rad
"""

TABLE = (
    *map(_inplace, _POINTWISE.split()),
    *map(_inplace, ("relu", "tanh")),
    *map(_functional, ("elu", "selu", "celu", "hardtanh", "threshold")),
    *map(_inplace, ("add", "sub", "mul", "div", "pow", "remainder", "fmod", "atan2", "hypot", "copysign", "xlogy")),
    *map(_inplace, ("addcmul", "addcdiv", "lerp", "lerp_scalar", "clamp_tensor")),
    *map(_inplace, ("masked_fill", "masked_scatter")),
    *map(_inplace, ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put")),
    *map(_inplace, ("tril", "triu", "cumsum", "cumprod")),
    _writer("copy_", Operand("src", FLOATS, shape=_onto)),
    _writer("fill_", choice("value", 0.0, 1.0, -2.5), differentiable=False),
    _writer("fill_tensor_", Operand("value", SAME, shape=lambda d: ()), source="torch.Tensor.fill_"),
    _writer("zero_", differentiable=False),
    replace(_writer("detach_", differentiable=False), tells=True),
)
