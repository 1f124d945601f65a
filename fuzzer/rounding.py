"""The rounding model: what spread may legal arithmetic show?

The trace of eager's operations is replayed in float64. Unperturbed, it is the reference r. Perturbed, the result of
every operation that rounds moves at random by up to one unit of the dtype that it visibly has in the trace, so the
replicas show what other legal orders, fusions and precisions could have given (Monte Carlo arithmetic: Parker 1997;
CESTAC: Vignes 1993). The floor of an element is its largest deviation over the replicas times a factor.

Units. A correctly rounded result is off by half a unit in the last place; float16 and bfloat16 results are float32
results rounded once more, so half a unit bounds them; float32 and float64 results are allowed one unit, functions what
is documented of them (`arithmetic.UNITS`).

Accumulations of n terms add, in the precision they accumulate in, u * sqrt(n) on every summand, on the result and on
the largest partial sum: the probabilistic bound of Higham and Mary (2019). docs/rounding.md tells where n takes the
place of its root, and everything else about the model.

What is never perturbed: leaves; operations that only move, select or compare; results that are exactly representable
(an exact operation on exact operands), where an accumulation counts as exact only if all its operands lie on a grid
so coarse that no partial sum can round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

import torch

from fuzzer.accumulations import Accumulations, float_tensors, largest_of, reach
from fuzzer.arithmetic import (
    ADDING,
    BICUBIC,
    CANCELLING,
    COPIES,
    CUBIC_INNER,
    DECIDING,
    FACTORISING,
    FLAGGED,
    FLAGS,
    INEXACT,
    INEXACT_ON_CUDA,
    MODULI,
    REFLECTION,
    REREADING,
    ROOTS,
    SIGNED,
    ULPS,
    UNORDERED,
    UNSORTED,
    WIDE,
    accumulator,
    depthwise_weight,
    epsilon,
    exact_coordinates,
    grid_operand,
    grid_terms,
    growth,
    interpolation,
    is_exact,
    is_primitive,
    narrow_terms,
    narrow_units,
    narrows,
    real_dtypes,
    rescales,
    units,
)
from fuzzer.cancellation import INTERMEDIATE, NORMS, POINTWISE, dilated, nearby
from fuzzer.trace import (
    CALLING_PRODUCTS,
    Ref,
    Step,
    is_rounded,
    mapped,
    once,
    round_to,
    widened,
)
from fuzzer.values import in_parts


class Rounder:
    """One replica's perturbation.

    consistent  False: every rounding is drawn anew. True: it is a function of the value rounded, so that the same
                operation on the same operands rounds the same way each time (x*s - x*s stays 0).
    scale       multiplies every unit (2 in the final check).
    cuda        whether a side ran on CUDA, whose quotients and roots are not correctly rounded.
    """

    def __init__(
        self,
        seed: int,
        found: Accumulations,
        device: torch.device,
        consistent: bool = False,
        scale: float = 1.0,
        cuda: bool = False,
    ):
        self.seed, self.found, self.consistent, self.scale, self.cuda = seed, found, consistent, scale, cuda
        self.generator = torch.Generator(device).manual_seed(seed)
        self.pivots_lost = seed % 8 == 1
        self.gradual = seed % 8 == 5  # underflow is gradual in every dtype, though other replicas flush to zero

    def noise(self, value: torch.Tensor) -> torch.Tensor:
        """Uniform in -1..1, one number an element."""
        if not self.consistent:
            drawn = torch.empty(value.shape, dtype=value.dtype, device=value.device)
            return drawn.uniform_(-1.0, 1.0, generator=self.generator)
        # a multiply-xorshift hash of the bits (constants: Knuth's MMIX generator; Vigna's xorshift*)
        salt = (self.seed + 1) * 0x14057B7EF767814F % 2**62
        bits = value.contiguous().view(torch.int64) * 0x5851F42D4C957F2D + salt
        bits = (bits ^ (bits >> 29)) * 0x2545F4914F6CDD1D
        return ((bits >> 20) & 0xFFFFFF).double() / 2**23 - 1.0

    def inputs(self, number: int, step: Step, args: object, kwargs: object) -> tuple[object, object]:
        """Perturb the summands of an accumulation and the operands of a compound kernel."""
        if handed_on(step):
            return args, kwargs
        if ties(step):
            return mapped((args, kwargs), self._untied)
        if step.name in ("add", "sub", "rsub") and not self.consistent:
            args = self._contracted(step, args)
        if step.name in REREADING and not self.consistent:
            self.apart = self._contracted(step, args)[0] - args[0]  # type: ignore[index]
        if is_primitive(step) or number in self.found.exact or is_exact(step) or step.name in COPIES:
            return args, kwargs
        given = args[grid_operand(step)] if step.name.startswith("grid_sampler") else None  # type: ignore[index]
        if given is not None:
            args = self._regridded(step, args)
        if step.name == "_softmax_backward_data":
            args = self._multiplied(step, args)
        if step.name.startswith("convolution"):
            args = self._convolved(step, args)
        unit = self.scale * self._inner_unit(number, step)
        written = {id_of(ref) for ref in step.writes}
        flagged = {**FLAGGED, **DECIDING}.get(step.name)
        kept = frozenset() if flagged is None else {id_of(step.args[flagged])}
        whole = step.name in FACTORISING
        moved: Any = self._moved((args, kwargs), (step.args, step.kwargs), unit, kept, written, whole)
        if given is not None:
            moved = (self._gridded(step, given, moved[0]), moved[1])
        return moved[0], moved[1]

    def _contracted(self, step: Step, args: Any) -> Any:
        """Operands of a sum as a fused multiply-add or a recomputation sees them: rounded otherwise than elsewhere."""

        def contracted(value: Any, ref: Any) -> Any:
            if not isinstance(ref, Ref) or not is_rounded(ref) or ref in step.writes:
                return value
            return by_parts(value, lambda t: self._contracted_one(t, ref.dtype.to_real()))

        return tuple(contracted(value, ref) for value, ref in zip(args, step.args, strict=True))

    def _contracted_one(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        moved = value + value * self.noise(value) * (self.scale * ULPS[dtype] * epsilon(dtype))
        return torch.where(representable(value, dtype), value, moved)

    def _untied(self, leaf: object) -> object:
        """Equal elements told apart by far less than any unit."""
        if not isinstance(leaf, torch.Tensor) or not leaf.dtype.is_floating_point:
            return leaf
        drawn = torch.empty_like(leaf).uniform_(-1.0, 1.0, generator=self.generator)
        return leaf + drawn * (leaf.abs() * 2**-48 + 2**-1000)

    def _gridded(self, step: Step, given: torch.Tensor, moved: Any) -> Any:
        """The operands, the grid as it was where no coordinate is rounded: on an edge it cannot be to either side."""
        at = grid_operand(step)
        if step.args[at + 2] == REFLECTION:
            return moved
        return (*moved[:at], torch.where(exact_coordinates(step, given), given, moved[at]), *moved[at + 1 :])

    def _regridded(self, step: Step, args: Any) -> Any:
        """grid_sample computes a coordinate as ((1 + x) * size - 1) / 2: three roundings of about 1 + x."""
        at = grid_operand(step)
        error = 3 * self.scale * _own_unit(step) * (1 + args[at].abs())
        return (*args[:at], args[at] + self.noise(args[at]) * error, *args[at + 1 :])

    def _convolved(self, step: Step, args: Any) -> Any:
        """The terms that are rounded and added: a weight's elements make those of taps, an input's those of a batch."""
        unit, moved = _own_unit(step), list(args)
        if unit > epsilon(torch.float32):
            asked = step.args[10][:2] if step.name.endswith("_backward") else [True]
            places = [at for at, wanted in zip((2, 1) if len(asked) == 2 else (1,), asked, strict=True) if wanted]
            for at, terms in zip(places, narrow_terms(step), strict=False):
                size = self.scale * unit * narrow_units(terms, unit)
                moved[at] = by_parts(args[at], lambda t, size=size: t * (1 + self.noise(t) * size))  # type: ignore[misc]
        return tuple(moved)

    def _multiplied(self, step: Step, args: Any) -> Any:
        """softmax's backward may round gradient * output to their own dtype, before it is added up and taken off."""
        coarsest = max(real_dtypes(step.inputs), key=epsilon)
        return (args[0] * (1 + self.noise(args[0]) * self.scale * ULPS[coarsest] * epsilon(coarsest)), *args[1:])

    def _moved(
        self,
        tree: object,
        refs: object,
        unit: float,
        kept: Set[tuple[int, int]],
        written: Set[tuple[int, int]],
        whole: bool = False,
    ) -> object:
        """The operands moved by up to a unit, but for those that are kept; what the step writes moves where it lies."""
        if isinstance(tree, torch.Tensor) and isinstance(refs, Ref) and id_of(refs) in written - kept:
            moved_here: Any = self._moved(tree, refs, unit, kept, frozenset(), whole)
            return tree.copy_(moved_here)
        if isinstance(tree, torch.Tensor) and tree.dtype.is_complex and isinstance(refs, Ref):
            return tree if id_of(refs) in kept else by_parts(tree, lambda t: self._moved_parts(t, unit, whole))
        if isinstance(tree, torch.Tensor):
            if not tree.dtype.is_floating_point or not isinstance(refs, Ref) or id_of(refs) in kept:
                return tree
            size = tree.abs().max() if whole and tree.numel() else tree
            if whole and self.pivots_lost:
                size = torch.where(tree == 0, 0.0, size)  # such a pivot is handed on as it is
            return torch.where(torch.isfinite(tree), tree + size * self.noise(tree) * unit, tree)
        if isinstance(tree, list | tuple):
            moved = [self._moved(t, r, unit, kept, written, whole) for t, r in zip(tree, refs, strict=True)]  # type: ignore[call-overload]
            return moved if isinstance(tree, list) else tuple(moved)
        if isinstance(tree, dict):
            return {k: self._moved(v, refs[k], unit, kept, written, whole) for k, v in tree.items()}  # type: ignore[index]
        return tree

    def _moved_parts(self, parts: torch.Tensor, unit: float, whole: bool) -> torch.Tensor:
        """Complex numbers are off by a share of their modulus, in both parts (Higham 2002, section 3.6)."""
        size = parts.abs().max() if whole and parts.numel() else modulus(parts)
        moved = parts + size * self.noise(parts) * unit
        return torch.where(torch.isfinite(moved) & (parts != 0), moved, parts)

    def _inner_unit(self, number: int, step: Step) -> float:
        if number not in self.found.units:
            self.found.units[number] = self._computed_unit(number, step)
        return self.found.units[number]

    def _computed_unit(self, number: int, step: Step) -> float:
        """u * sqrt(n) in the precision the kernel computes in: float32 inside half-precision kernels."""
        dtypes = real_dtypes((*step.inputs, *step.results))
        if not dtypes:
            return 0.0
        if step.autocast is not None and step.name in CALLING_PRODUCTS:
            dtypes.append(step.autocast)
        coarsest = max(dtypes, key=epsilon)
        inner = epsilon(coarsest) * ULPS[coarsest]
        if step.name in WIDE and not narrows(step):
            if inner > epsilon(torch.float32) and step.name in ADDING:  # to a product that has been rounded
                return inner + accumulator(step) * self.found.growth(number, step)
            inner = min(inner, epsilon(torch.float32))
            return inner * (1 + self.found.growth(number, step))
        if "grid_sampler" in step.name:  # coordinates: `_regridded`
            return 2 * inner + accumulator(step) * growth(grid_terms(step), accumulator(step))
        if "upsample" in step.name and "nearest" not in step.name:
            # coordinates, as large as the sizes, are float32 at least, and rounded before their fraction is a weight
            coordinate = min(inner, epsilon(torch.float32))
            sizes = (size for ref in (*step.inputs, *step.results) for size in ref.shape[2:])
            return inner + 4 * coordinate * max(sizes, default=1) + accumulator(step) * self.found.growth(number, step)
        return 2 * inner + accumulator(step) * self.found.growth(number, step)

    def results(
        self, number: int, step: Step, args: object, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Move the results of a rounding operation by up to one unit of their dtype."""
        if is_exact(step):
            return [
                self._ranged_parts(value, ref.dtype.to_real())
                if is_rounded(ref) and FLAGS.get(step.name) != at
                else value
                for at, (ref, value) in enumerate(zip(refs, values, strict=True))
            ]
        values = self._reread(step, self._signed(step, self._shuffled(step, values)))
        if self.seed % 2 == 1 and step.name in INTERMEDIATE:
            values = [_spoilt(step, args[0], values[0])]  # type: ignore[index]
        values = self._squared(step, args[0], self._tapped(step, args[0], values))  # type: ignore[index]
        found = self._cancelled(number, step, args, values)
        hidden = found if isinstance(found, list) else [found] * len(values)
        sums, sizes = (iter(found.get(number, ())) for found in (self.found.partial, self.found.sizes))
        return [
            self._spilled(
                number,
                step,
                self._result_of_any(
                    number, step, ref, value, hidden[at] + self._summed(number, step, next(sums, None))
                ),
                next(sizes, None),
            )
            if is_rounded(ref) and FLAGS.get(step.name) != at
            else value
            for at, (ref, value) in enumerate(zip(refs, values, strict=True))
        ]

    def _spilled(self, number: int, step: Step, value: torch.Tensor, sizes: torch.Tensor | None) -> torch.Tensor:
        """A sum whose partial sums may overflow, though it does not: all positive summands may come first.

        With p of the positive and n of the negative ones, p + n are the sizes and p - n the value; no order has a
        partial sum beyond p or n.
        """
        if sizes is None or self.seed % 2 == 0 or value.is_complex():
            return value
        sizes = sizes * (1 + self.scale * accumulator(step) * self.found.growth(number, step))
        over, under = (sizes + value > 2 * reach(step)), (sizes - value > 2 * reach(step))
        spilled = torch.where(over & under, math.nan, torch.where(over, math.inf, -math.inf))
        return torch.where(over | under, spilled, value)

    def _squared(self, step: Step, args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Functions of a complex modulus, whose square may underflow or overflow though the modulus does not."""
        taken = args[MODULI[step.name]] if self.gradual and step.name in MODULI else None
        if not isinstance(taken, torch.Tensor) or not taken.is_complex():
            return values
        size, info = taken.abs(), torch.finfo(step.args[MODULI[step.name]].dtype.to_real())
        lost, spilled = (size != 0) & (size < info.smallest_normal**0.5), size > info.max**0.5
        if step.name == "abs":
            return [torch.where(lost, 0.0, torch.where(spilled, math.inf, values[0]))]
        return [torch.where(lost | spilled, complex(math.nan, math.nan), values[0])]

    def _tapped(self, step: Step, args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """An interpolation's neighbours of what is not finite: a kernel may multiply it by a weight of 0 and add it."""
        if self.seed % 2 == 0 or "upsample" not in step.name or "nearest" in step.name:
            return values
        odd = (~torch.isfinite(args[0])).double()
        if not bool(odd.any()):
            return values
        forward = not step.name.endswith("_backward")
        reached = step.op(dilated(odd) if forward else odd, *args[1:]) != 0
        reached = reached if forward else dilated(reached.double()) > 0
        return [torch.where(reached, math.nan, values[0])]

    def _summed(self, number: int, step: Step, partial: torch.Tensor | None) -> float | torch.Tensor:
        """Absolute error of a sum whose partial sums are larger than it is."""
        return 0.0 if partial is None else partial * (accumulator(step) * self.found.growth(number, step))

    def _result_of_any(
        self, number: int, step: Step, ref: Ref, value: torch.Tensor, hidden: float | torch.Tensor
    ) -> torch.Tensor:
        """Real and imaginary parts move each by itself; what is no float does not move."""
        if ref.dtype.is_complex:
            real = replace(ref, dtype=ref.dtype.to_real())
            # as in `_moved_parts`, but for what is done to each part by itself
            alone = is_primitive(step) or step.name in COPIES
            return by_parts(value, lambda t: self._result(number, step, real, t, hidden, t if alone else modulus(t)))
        return self._result(number, step, ref, value, hidden, value)

    def _signed(self, step: Step, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """The columns of eigenvectors and singular vectors (with the rows that go with them), signs left to chance."""
        columns, rows = SIGNED.get(step.name, (None, None))
        if columns is None or values[columns].numel() == 0:
            return values
        moved = list(values)
        count = values[columns].shape[-1] if rows is None else min(values[columns].shape[-1], values[rows].shape[-2])
        drawn = self._factors(count, values[columns])
        wide = torch.ones(values[columns].shape[-1], dtype=drawn.dtype, device=drawn.device)
        wide[:count] = drawn
        moved[columns] = values[columns] * wide
        if rows is not None:
            high = torch.ones(values[rows].shape[-2], dtype=drawn.dtype, device=drawn.device)
            high[:count] = drawn.conj()
            moved[rows] = values[rows] * high[:, None]
        return moved

    def _reread(self, step: Step, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """exp(x - max) / sum where a fused multiply-add rounds the first x otherwise than those of max and sum."""
        if step.name not in REREADING or self.consistent:
            return values
        apart = self.apart.nan_to_num(0.0, 0.0, 0.0)
        return [values[0] + apart if step.name.startswith("_log") else values[0] * apart.exp()]

    def _shuffled(self, step: Step, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Eigenvalues, with the vectors that go with them, in an order left to chance."""
        if step.name not in UNSORTED:
            return values
        order = torch.rand(values[0].shape[-1], generator=self.generator, device=values[0].device).argsort()
        return [value[..., order] for value in values]

    def _factors(self, count: int, columns: torch.Tensor) -> torch.Tensor:
        """Random signs; of complex columns random phases."""
        if columns.is_complex():
            angles = torch.rand(count, generator=self.generator, device=columns.device, dtype=torch.float64)
            return torch.polar(torch.ones_like(angles), 2 * math.pi * angles)
        return torch.randint(0, 2, (count,), generator=self.generator, device=columns.device) * 2.0 - 1

    def _interpolated(self, step: Step, args: Any) -> list[float | torch.Tensor]:
        """Absolute errors of grid_sample's results: weights between 0 and 1 are off by units of 1, cubic ones by more.

        The grid's gradient adds up, over channels and taps, a cotangent times differences of the input, times half
        of the input's size for a step of 1 in the grid; partial sums are as large as the root of the sum of squares.
        """
        unit = _own_unit(step) * (CUBIC_INNER if interpolation(step) == BICUBIC else 1.0)
        given = list(float_tensors(args[0]))
        largest = [largest_of([t.abs().nan_to_num(0, 0, 0)]) for t in given]
        if not step.name.endswith("_backward"):
            return [2 * unit * largest[0]]
        cotangent, field = given[:2]
        along = torch.tensor([size / 2 for size in reversed(field.shape[2:])], dtype=cotangent.dtype).to(
            cotangent.device
        )
        sums = cotangent.nan_to_num(0, 0, 0).square().sum(1).sqrt()[..., None] * along
        adding = accumulator(step) * growth(grid_terms(step), accumulator(step))
        return [2 * unit * largest[0], (4 * unit + 2 * adding) * largest[1] * sums]

    def _added(self, step: Step, args: Any, values: list[torch.Tensor]) -> list[float | torch.Tensor]:
        """Absolute errors of a convolution's results: of sums of rounded terms, and of a product before its bias."""
        unit = _own_unit(step)
        hidden = [v.abs() * unit * narrow_units(n, unit) for v, n in zip(values, narrow_terms(step), strict=True)]
        if not step.name.endswith("_backward") and args[0][2] is not None:
            bias = args[0][2].reshape(-1, *(1,) * (len(step.args[1].shape) - 2))
            hidden[0] = hidden[0] + (values[0] - bias).abs() * unit
        if self.cuda and (place := depthwise_weight(step)) is not None:
            # a tree: what the partial sums of one level are off by is at most a unit of all terms without their signs,
            # and the roundings of its few levels have nothing to do with each other
            sizes = [t for t in step.op(args[0][0].abs(), args[0][1].abs(), *args[0][2:]) if t is not None]
            hidden[place] = hidden[place] + unit * sizes[place]
        return list(hidden)

    def _cancelled(
        self, number: int, step: Step, args: object, values: list[torch.Tensor]
    ) -> float | list[float | torch.Tensor]:
        """Absolute error of what a kernel cancels inside, which neither its operands nor its result show.

        One for all of its results, or one for each.
        """
        if step.name.startswith("grid_sampler"):
            return self._interpolated(step, args)
        if "upsample" in step.name and "nearest" not in step.name and "cubic" not in step.name:
            return [self._inner_unit(number, step) * nearby(step, args[0])]  # type: ignore[index]
        if step.name.startswith("convolution") and _own_unit(step) > epsilon(torch.float32):
            return self._added(step, args, values)
        if step.name in POINTWISE:
            return [self._inner_unit(number, step) * POINTWISE[step.name](step, args[0])]  # type: ignore[index]
        if step.name.startswith("_fft_"):  # each element is off by what the largest is off by
            largest = [float(t.abs().max()) for t in float_tensors(values) if t.numel()]
            return self._inner_unit(number, step) * max(largest, default=0.0)
        if step.name in ("prod", "cumprod"):  # a zero that no factor explains has underflowed
            factors = list(float_tensors(args))[:1]
            return _underflow(step.results[0].dtype) if factors and not bool((factors[0] == 0).any()) else 0.0
        if step.name in ("erf", "erfc") and not any(r.dtype == torch.float64 for r in step.results):
            # torch's vectorised erf is 1 - the approximation 7.1.26 of Abramowitz and Stegun: 1.5e-7, absolute, and
            # what its terms round; 4.9e-7 has been measured
            return 5.0 * epsilon(torch.float32)
        if step.name == "_log_softmax":  # log(1 + a little) where one element dominates
            return 2.0 * self._inner_unit(number, step)
        if step.name == "linspace":  # (end - start) * i / n + start
            return 4.0 * self._inner_unit(number, step) * max(abs(a) for a in step.args[:2])
        if step.name == "logit":  # log(z / (1 - z)) with z limited to 1 - eps
            eps = step.args[1] if len(step.args) > 1 else None
            return 2.0 * self._inner_unit(number, step) / eps if eps else 0.0
        if step.name in NORMS:
            sizes = NORMS[step.name](args[0], values)  # type: ignore[index]
            return [self._inner_unit(number, step) * size for size in sizes]
        if not any(mark in step.name for mark in CANCELLING):
            return 0.0
        # the largest operands bound what is added up; normalisations return 1 / deviation, which scales x - mean(x)
        forward_norm = "_norm" in step.name and "backward" not in step.name
        shown = [*float_tensors(args), *(values[2:3] if forward_norm else [])]
        sizes = [float(t.abs().max()) for t in shown if t.numel()]
        unit = self._inner_unit(number, step)
        return unit * math.prod(size for size in sizes if math.isfinite(size) and size > 0)

    def _result(
        self,
        number: int,
        step: Step,
        ref: Ref,
        value: torch.Tensor,
        hidden: float | torch.Tensor,
        scale: torch.Tensor,
    ) -> torch.Tensor:
        """The result moved by units of `scale`, and by `hidden`."""
        if value.numel() == 0:
            return value
        unit = units(step, ref.dtype) * epsilon(ref.dtype)
        if number not in self.found.exact and not is_primitive(step) and step.name not in COPIES:
            unit += self._inner_unit(number, step)
        # a unit of the last place of y is eps * 2**e for 2**e <= |y| < 2**(e + 1): y without its fraction's bits
        size = (scale.view(torch.int64) & 0x7FF0000000000000).view(torch.float64)
        least = _underflow(ref.dtype, self.gradual)
        # factors are as good as a norm of theirs says: small elements are off by as much as large ones
        finite = value.nan_to_num(0, 0, 0) if step.name in FACTORISING else value
        normwise = unit * float(finite.abs().max()) if step.name in FACTORISING else 0.0
        step_size = (size * unit).clamp_min(least)
        if normwise or isinstance(hidden, torch.Tensor) or hidden:
            step_size = step_size + hidden + normwise
        noise = self.noise(value)
        if ref.dtype == torch.float64:
            noise = torch.where(noise < 0, -1.0, 1.0)  # less than a unit would round back to the same number
        moved = value + step_size * self.scale * noise
        inexact = INEXACT_ON_CUDA if self.cuda else INEXACT
        kept = ~torch.isfinite(value)
        if isinstance(hidden, torch.Tensor):
            kept |= (value == 0) & (hidden == 0)
        elif hidden == 0:
            kept |= value == 0
        alone = is_primitive(step) or step.name in COPIES or number in self.found.exact
        if alone and step.name not in inexact and not rescales(step):
            kept |= representable(value, ref.dtype)
        moved = torch.where(kept, value, moved)
        if normwise and self.pivots_lost:  # a pivot no larger than its error, of the operand and its own, may be 0
            moved = torch.where(moved.abs() <= 2 * unit * self.scale * float(finite.norm()), 0.0, moved)
        if (
            step.name in ROOTS and self.seed % 8 == 1
        ):  # the squares underflow first; in other replicas what is made of it
            moved = torch.where(moved.abs() < math.sqrt(least), 0.0, moved)
        return self._ranged(moved, ref.dtype)

    def initial(self, flat: torch.Tensor) -> torch.Tensor:
        """What no step made is exact; only its subnormals may be flushed."""
        if not (flat.dtype.is_floating_point or flat.dtype.is_complex):
            return flat
        return self._ranged_parts(widened(flat), flat.dtype.to_real())

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        """A scalar operand as kernels read it: as float32, in every second replica in the tensor's own dtype."""
        return round_to(value, dtype if self.seed % 4 < 2 else torch.float32)

    def _ranged_parts(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`_ranged`, of complex numbers part by part."""
        return by_parts(value, lambda t: self._ranged(t, dtype))

    def _ranged(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Overflow in every second replica, underflow in every fourth; else as if the range were wider."""
        if self.seed % 2 == 0:
            return value
        info = torch.finfo(dtype)
        size = value.abs()
        if dtype != torch.float64:
            value = torch.where(size > info.max, value.sign() * math.inf, value)
        if self.seed % 4 == 1:
            # subnormals become zero; where underflow is gradual, what is below half of the smallest
            gradual = self.gradual or dtype == torch.float16
            value = torch.where(size < info.smallest_normal * (info.eps / 2 if gradual else 1.0), 0.0, value)
        return value


@once
def ties(step: Step) -> bool:
    """Whether the order of equal elements is left to chance and shows: a median's value alone does not tell it."""
    position_free = step.name in ("median", "nanmedian") and len(step.args) == 1
    return step.name in UNORDERED and step.kwargs.get("stable") is not True and not position_free


@once
def handed_on(step: Step) -> bool:
    """Whether the operation computes with its operands as they are, in every replica."""
    contracted = step.name in ("add", "sub", "rsub") or step.name in REREADING
    exact = is_primitive(step) or is_exact(step) or step.name in COPIES
    return exact and not contracted and not ties(step)


def by_parts(value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """change(value); of a complex tensor, change of its parts, which stand along a last dimension."""
    return torch.view_as_complex(change(in_parts(value)).contiguous()) if value.is_complex() else change(value)


def modulus(parts: torch.Tensor) -> torch.Tensor:
    """The modulus of complex numbers, once for each of their parts."""
    return torch.linalg.vector_norm(parts, dim=-1, keepdim=True).expand_as(parts)


def id_of(ref: Ref) -> tuple[int, int]:
    return ref.storage, ref.offset


def _underflow(dtype: torch.dtype, gradual: bool = False) -> float:
    """Smallest absolute error of a nonzero result: gradual underflow for float16, flush to zero for the others.

    Compiled CPU code links with -ffast-math, which switches the whole process to flush-to-zero; CUDA's approximate
    functions flush too. float16 values are computed with as float32, where they are normal.
    """
    info = torch.finfo(dtype)
    return float(info.smallest_normal) * (float(info.eps) if gradual or dtype == torch.float16 else 1.0)


def _spoilt(step: Step, args: Any, value: torch.Tensor) -> torch.Tensor:
    """A result one of whose intermediates overflows: infinite, as the only one of a reduction or where it stands."""
    large = INTERMEDIATE[step.name](args).abs() > min(torch.finfo(d).max for d in real_dtypes(step.results))
    spoilt = large if value.shape == large.shape else large.any().expand(value.shape)
    return torch.where(spoilt, math.inf, value)


def _own_unit(step: Step) -> float:
    """The unit of the coarsest dtype that the step takes or returns."""
    coarsest = max(real_dtypes((*step.inputs, *step.results)), key=epsilon)
    return epsilon(coarsest) * ULPS[coarsest]


def representable(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where a float64 value is exactly a number of `dtype`.

    For float64 itself every value is; there one whose last 29 bits are zero (a float32 number) counts, which a
    rounded result meets with probability 2**-29.
    """
    narrow = torch.float32 if dtype == torch.float64 else dtype
    return value.to(narrow).double() == value
