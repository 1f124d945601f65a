"""Functions with complex operands or results, for campaigns with complex dtypes."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.language.ops import fourier
from fuzzer.language.ops.spec import Operand, OpSpec
from fuzzer.language.program import COMPLEX

FAMILY = "complex"

_NUMBERS = Operand(dtypes=COMPLEX)
_HALF = "chalf_parts"  # programs have no complex32


def _whole(spec: OpSpec) -> OpSpec:
    """The op with its complex result itself, in place of the result's real and imaginary parts."""
    name = spec.name.removesuffix("_parts")
    return replace(spec, name=name if name != spec.name else f"{name}_complex", family=FAMILY, then=())


TABLE = (
    *(_whole(spec) for spec in fourier.TABLE if spec.then == fourier.PARTS and spec.name != _HALF),
    OpSpec("imag", FAMILY, "torch.imag", (_NUMBERS,)),
    OpSpec(
        "view_as_real",
        FAMILY,
        "torch.resolve_conj",
        (_NUMBERS,),
        then=("torch.view_as_real",),
        entries=("view_as_real",),
    ),
)
