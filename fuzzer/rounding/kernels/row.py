"""The row of an ATen kernel.

A row is one `Kernel`: a name, the kind of its arithmetic, and its differences from others of that kind. A rule that
depends on the call is a function of the step. The code that perturbs a replay reads rows and knows no names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from fuzzer.rounding.trace import Ref, Step


class Kind(Enum):
    """Which of its operands and results a kernel may round."""

    EXACT = "moves, selects or compares: nothing, unless it returns a coarser dtype than it takes"
    COPY = "moves, and rounds once where it narrows"
    PRIMITIVE = "one IEEE operation or library function, accurate to about a unit of its result whatever its operands"
    ACCUMULATION = "a sum, or a sum of products: its operands, result and partial sums; nothing on coarse grids"
    COMPOUND = "any other: its operands and its result"


EXACT, COPY, PRIMITIVE, ACCUMULATION, COMPOUND = Kind

Hidden = float | list[float | torch.Tensor]  # absolute errors, one for all results or one for each
Noise = Callable[[torch.Tensor], torch.Tensor]  # uniform in -1..1, one number an element


@dataclass(frozen=True)
class Evaluation:
    """A step as a replay evaluates it, for rules about cancellation.

    args, kwargs   its operands, float64 or complex128;  results   computed from them, as wide.
    unit           the error of operands and results inside the kernel, relative to their size.
    adding         the unit in which it keeps partial sums.
    approximate    whether a side ran where quotients, roots and means are not correctly rounded (`Device.approximate`).
    """

    step: Step
    args: Any
    kwargs: Any
    results: list[torch.Tensor]
    unit: float
    adding: float
    approximate: bool


@dataclass(frozen=True)
class Kernel:
    """One ATen kernel.

    name            the op's name without namespace, overload or the in-place underscore (`Step.name`). A row of a name
                    alone says that the op tables call the kernel, and that it is compound.

    Rounding:
    kind            see `Kind`;  kind_of   the kind of one call, where that depends on its arguments.
    by_parts        whether it stays primitive for complex numbers: they are added part by part, but a product of them
                    is a sum of products.
    units           the error of results in units of the last place, in float64, float32 and half precision; None:
                    `ULPS`. The largest documented for CUDA's functions (with the half that its guide does not count),
                    SLEEF's and glibc's, vectorised ones included. Sources and figures: docs/rounding.md.
    inexact         whether implementations differ by more than their rounding even where the result is representable
                    (log2(8) may be computed as 2.9999998), or draw a number in a range.
    approximated    whether they do on an accelerator: Triton divides and takes roots approximately (PTX ISA, "div":
                    2 ulp of div.full.f32).
    rescales        whether a call multiplies by a factor that is itself rounded: a product may then be off though it is
                    representable.

    Precision:
    wide            float32 inside where its tensors are float16 or bfloat16, decomposed or not. Any other compound
                    kernel may be decomposed into operations that each round to the tensor's dtype (lerp, addcdiv).
    inner           (step, unit of its coarsest dtype, unit of its partial sums, error of a sum in the latter) -> the
                    error of operands and results inside, relative to their size; None: all of these together.
    calls_products  whether it calls matrix products, which autocast casts inside it too.
    scalars_in_double   whether it keeps scalar operands in double; others read them in the precision in which they
                        compute.
    decides         whether its result jumps at an operand: operands are then promoted as eager promotes them, and a
                    scalar is read as eager reads it (`scalars`), for a jump is no rounding. A function where that
                    depends on the call.
    unstated        why a row states nothing else: operands of such a kernel move, as those of one without a row do.
    jumps           whether its result, in the dtype of its operands, is a step function of them, or has steps.
    divides_first   (step, whether a side divides approximately) -> the relative error of a quotient that is rounded
                    before it decides; one that is exact has none where division is exact.
    on_its_grid     whether its result is a neighbour on the grid of its tensors' dtype: it is replayed in that dtype.
    domain          the interval that holds the first operand of every finite result: an operand that is moved stays in
                    it.

    Accumulation:
    terms           number of terms that one result element may sum, at least 1; an upper bound where the step does not
                    determine it. None: its operands' elements over its smallest result's, 1 where torch tags it as
                    pointwise.
    divides         whether the sum is divided, or is no sum at all: its length cannot be counted by summing ones.
    narrow          whether partial sums may be kept in the tensors' dtype: terms added one by one to memory, on some
                    device or in some layout. Every other kernel accumulates at least in float32.
    shrinks         whether autograd uses it to sum a gradient back to the shape of an expanded operand.
    is_tree         whether that sum is a tree on CUDA, and in float32 elsewhere: no partial sum grows large one by one.
    adds_to_product whether it adds to a product that has been rounded.
    adds_rounded    whether a call adds up terms that have been rounded to half precision.
    sums_gradients  whether autograd uses it to add two gradients of one value.
    copies_at       the argument of which its result is a copy, maybe in another layout or dtype.
    reads_geometry  whether it reads only its operand's sizes and dtype, never numbers.
    frequency_at    the argument that is True where a gradient is divided by the frequency of its index.
    is_product      whether it is a product of matrices or vectors, alone or with a summand.

    Cancellation:
    cancels         absolute errors that neither its operands nor its results show.
    attended        the same where the step is the softmax of an attention, which a compiler may fuse (`attentions`).
    factorises      whether it is an algorithm of many dependent steps on a matrix: its backward error is bounded by the
                    whole matrix's size, not by each element's, and grows with the number of rows (Higham 2002).
    rounds_first    (step, operands, noise, scale of units) -> its operands as it rounds them before anything else.
    kept            (step, operands, moved operands) -> the moved ones, with the numbers restored that it does not
                    round.
    contracts       whether a fused multiply-add may give it an operand that is rounded otherwise than elsewhere.
    recomputes      whether, in a backward, one operand may be a result that was kept and the other be computed anew
                    from the same numbers, without the rounding of the one kept: `copysign` divides its result by its
                    input.
    rereads         for a kernel that reads its operand once for a maximum and a sum and once more for its result:
                    (result, the difference of the second reading) -> the result then.

    Edge cases:
    ties            whether a call may legally order equal elements either way, and shows which.
    times_written   arguments -> how often each place of the result is written, where one write replaces another; None:
                    writes of this call accumulate, or are equal.
    scatters_by     the argument with the indices, where autograd uses it to scatter the gradient of an ordered operand.
    picks_zeros     whether its result may be either where zeros of both signs are the largest or smallest: which one a
                    kernel takes depends on how it is vectorised.
    nan_is_largest  whether it orders NaN too, as the largest.
    compared_at     the argument that is compared with a constant, or tested for 0, unchanged.
    flags_at        the result that is a flag, as 1 or 0 in the tensor's own dtype.
    signs_of        results that are unique only up to signs: columns, and the result whose rows go with them.
    unsorted        whether its values have no order: the algorithm's own differs from one precision to the next.
    is_root         whether it is the root of a sum of squares, which may underflow.
    modulus_at      the argument whose modulus, if it is complex, may be the root of a sum of squares.
    intermediate    (step, operands) -> its intermediate value, element by element, which it may round to the tensor's
                    dtype: if that overflows, the results may be infinite though the true ones are not. None: this call
                    has none.
    limited         (step, operands, result) -> its result if it rounds its limits to the tensor's dtype.
    reached         (step, operands, 1.0 where one is not finite) -> where a weight of 0 may make the result NaN, or may
                    not.
    odd_at          the argument that this looks at.
    divides_by_zero (step, operands) -> whether it divides by a zero in them: a result that is not finite may then be
                    infinite or NaN, by the order of its sums.
    sign_at         the argument whose sign it reads: that of NaN is not defined.

    Recording and replay:
    writes          the operands, by name, that a call in training writes to although its schema does not say so.
    draws_nothing   whether a call of it is deterministic although torch tags it as random, by its named arguments.
    masked          for a kernel that draws and also depends on an operand: the drawn tensor and the factor beside it.
    spelt_out       (step, precision in which it reads scalars) -> arguments that mean in float64 what its own meant.
    mended          (step, args, kwargs) -> its results, where the CPU, which replays traces, computes them wrong or not
                    at all, or where the kernel rounds before it decides (`rounds_first` may then give operands that the
                    kernel itself cannot take).
    uninitialised   whether its results are uninitialised memory.
    """

    name: str
    kind: Kind = COMPOUND
    kind_of: Callable[[Step], Kind] | None = None
    by_parts: bool = False
    units: tuple[float, float, float] | None = None
    inexact: bool = False
    approximated: bool = False
    rescales: Callable[[Step], bool] | None = None

    wide: bool = False
    inner: Callable[[Step, float, float, float], float] | None = None
    calls_products: bool = False
    scalars_in_double: bool = False
    decides: bool | Callable[[Step], bool] = False
    jumps: bool = False
    unstated: str = ""
    divides_first: Callable[[Step, bool], float] | None = None
    on_its_grid: bool = False
    domain: tuple[float, float] | None = None

    terms: Callable[[Step], float] | None = None
    divides: bool = False
    narrow: bool = False
    shrinks: bool = False
    is_tree: bool = False
    adds_to_product: bool = False
    adds_rounded: Callable[[Step], bool] | None = None
    sums_gradients: bool = False
    copies_at: int | None = None
    reads_geometry: bool = False
    frequency_at: int | None = None
    is_product: bool = False

    cancels: Callable[[Evaluation], Hidden] | None = None
    attended: Callable[[Evaluation], Hidden] | None = None
    factorises: bool = False
    rounds_first: Callable[[Step, Any, Noise, float], Any] | None = None
    kept: Callable[[Step, Any, Any], Any] | None = None
    contracts: bool = False
    recomputes: bool = False
    rereads: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None

    ties: Callable[[Step], bool] | None = None
    picks_zeros: bool = False
    times_written: Callable[..., torch.Tensor | None] | None = None
    scatters_by: int | None = None
    nan_is_largest: bool = False
    compared_at: int | None = None
    flags_at: int | None = None
    signs_of: tuple[int, int | None] | None = None
    unsorted: bool = False
    is_root: bool = False
    modulus_at: int | None = None
    divides_by_zero: Callable[[Step, Any], bool] | None = None
    intermediate: Callable[[Step, Any], torch.Tensor | None] | None = None
    limited: Callable[[Step, Any, torch.Tensor], torch.Tensor] | None = None
    reached: Callable[[Step, Any, torch.Tensor], torch.Tensor] | None = None
    odd_at: int = 0
    sign_at: int | None = None

    writes: tuple[str, ...] = ()
    draws_nothing: Callable[[dict[str, Any]], bool] | None = None
    masked: Callable[[Step], tuple[Ref, float]] | None = None
    spelt_out: Callable[[Step, torch.dtype | None], tuple[Any, ...]] | None = None
    mended: Callable[[Step, Any, Any], Any] | None = None
    uninitialised: bool = False


def each(names: str, kind: Kind = COMPOUND, **facts: Any) -> tuple[Kernel, ...]:
    """A row for each of these names, otherwise equal."""
    return tuple(Kernel(name, kind, **facts) for name in names.split())
