"""Functions that give or take complex numbers as such: drawn where a campaign asks for complex dtypes."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.ops import fourier
from fuzzer.ops.spec import Operand, OpSpec
from fuzzer.program import COMPLEX

FAMILY = "complex"

NUMBERS = Operand(dtypes=COMPLEX)
HALF = "chalf_parts"  # programs hold no complex32


def whole(spec: OpSpec) -> OpSpec:
    """An op whose complex result is seen in parts, with its result as it is."""
    name = spec.name.removesuffix("_parts")
    return replace(spec, name=name if name != spec.name else f"{name}_complex", family=FAMILY, then=())


TABLE = (
    *(whole(spec) for spec in fourier.TABLE if spec.then == fourier.PARTS and spec.name != HALF),
    OpSpec("imag", FAMILY, "torch.imag", (NUMBERS,)),
    OpSpec(
        "view_as_real",
        FAMILY,
        "torch.resolve_conj",
        (NUMBERS,),
        then=("torch.view_as_real",),
        entries=("view_as_real",),
    ),
)
