"""The rounding model: the spread that legal arithmetic may show.

The trace of eager's operations is replayed in float64. Unperturbed, it is the reference r. Perturbed, the result of
every operation that rounds moves at random by up to one unit of the dtype that it has in the trace, so the replicas
show the possible results of other legal orders, fusions and precisions (Monte Carlo arithmetic: Parker 1997; CESTAC:
Vignes 1993). The floor of an element is its largest deviation over the replicas times a factor.

Units. A correctly rounded result is off by half a unit in the last place; float16 and bfloat16 results are float32
results rounded once more, so half a unit bounds them; float32 and float64 results are allowed one unit, functions their
documented error (`Kernel.units`).

Accumulations of n terms add, in the precision in which they accumulate, u * sqrt(n) on every summand, on the result and
on the largest partial sum: the probabilistic bound of Higham and Mary (2019). docs/rounding.md names the cases where n
replaces its root, and everything else about the model.

Never perturbed: leaves; operations that only move, select or compare; results that are exactly representable (an exact
operation on exact operands). An accumulation counts as exact only if all its operands lie on a grid so coarse that no
partial sum can round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

import torch

from fuzzer.rounding.accumulations import Accumulations
from fuzzer.rounding.arithmetic import (
    accumulates,
    accumulation_length,
    accumulator,
    decides,
    handed_on,
    inner_unit,
    is_exact,
    promoted,
    reach,
    rescales,
    rounds_apart,
    rounds_once,
    ties,
    units,
)
from fuzzer.rounding.choices import shuffled, signed, tied, undecided, untied
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.kernels.row import Evaluation, Hidden, Kernel
from fuzzer.rounding.precision import ULPS, by_parts, epsilon, modulus, narrows, real_dtypes, representable, underflow
from fuzzer.rounding.scalars import on_grid, round_to
from fuzzer.rounding.trace import Ref, Step, is_rounded, mapped, widened

_VALUES_AND_INDICES = 2  # results


class Rounder:
    """One replica's perturbation.

    consistent  False: every rounding is drawn anew. True: it is a function of the value rounded, so that the same
                operation on the same operands rounds the same way each time (x*s - x*s stays 0).
    scale       multiplies every unit (2 in the final check).
    approximate whether a side ran where quotients and roots are not correctly rounded (`Device.approximate`).
    absolute    whether underflow adds an error to a result, however small the result is.
    """

    def __init__(
        self,
        seed: int,
        found: Accumulations,
        device: torch.device,
        consistent: bool = False,
        scale: float = 1.0,
        approximate: bool = False,
        absolute: bool = True,
    ):
        self.seed, self.found, self.consistent, self.scale = seed, found, consistent, scale
        self.approximate, self.absolute = approximate, absolute
        self.generator = torch.Generator(device).manual_seed(seed)
        self.pivots_lost = seed % 8 == 1
        self.narrow_scalars = seed % 4 < 2  # scalars are read in the tensors' dtype
        self.order = {3: 1, 7: -1}.get(seed % 8, 0)  # of equal elements
        # only rounds results to their dtype and moves nothing else, so that numbers made equal by rounding are equal
        self.nearest = seed % 8 == 2 and not consistent
        self.ordered: dict[int, torch.Tensor] = {}  # operands of steps that order, by the storage of their indices
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
        row = kernel(step)
        if ties(step):
            self._remember_order(step, args)
            return mapped((args, kwargs), lambda leaf: untied(leaf, self.generator, step, self.order))
        if self.nearest:
            return args, kwargs
        if self.narrow_scalars and torch.Tag.pointwise in step.op.tags:
            args = promoted(step, args)  # eager rounds a scalar tensor or an integer first, fused code need not
        if number in self.found.chains:
            args = self._one_of_many(number, step, args)
        if row.sign_at is not None:
            args = self._of_either_sign(row.sign_at, args)
        if rounds_apart(step) and not self.consistent:
            args = self._contracted(step, args)
        if row.rereads is not None and not self.consistent:
            self.apart = self._contracted(step, args)[0] - args[0]  # type: ignore[index]
        if row.divides_first is not None:
            args = self._divided_first(row.divides_first(step, self.approximate), step, args)
        if rounds_once(step) or number in self.found.exact or is_exact(step):
            return args, kwargs
        if self.seed % 4 == 1 and narrows(step) and accumulates(step):
            args = _in_range(args, min(torch.finfo(dtype).max for dtype in real_dtypes(step.results)))
        if self.seed % 4 == 1 and step.autocast is not None and row.calls_products:
            args = _in_range(args, torch.finfo(step.autocast).max)
        given: Any = args
        if step.writes and (row.domain is not None or row.kept is not None):  # its operand moves in its own memory
            given = mapped(args, lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
        if row.rounds_first is not None:
            args = row.rounds_first(step, args, self.noise, self.scale)
        unit = self.scale * self._inner_unit(number, step)
        written = {id_of(ref) for ref in step.writes}
        kept = frozenset() if row.compared_at is None else {id_of(step.args[row.compared_at])}
        moved: Any = self._moved((args, kwargs), (step.args, step.kwargs), unit, kept, written, row.factorises)
        if row.domain is not None:
            _stay_inside(row.domain, given[0], moved[0][0])
        return moved[0] if row.kept is None else row.kept(step, given, moved[0]), moved[1]

    def _one_of_many(self, number: int, step: Step, args: Any) -> Any:
        """Operands of an addition that is part of a longer sum: each term gets the error of a term of the whole sum."""
        chain = self.found.chains[number]
        if not chain.unit:
            return args
        kept = {id_of(ref) for place, ref in enumerate(step.args) if place not in chain.terms[number]}
        return self._moved(args, step.args, self.scale * chain.unit, kept, {id_of(ref) for ref in step.writes})

    def _remember_order(self, step: Step, args: Any) -> None:
        """Keep the operand of a step that orders it and shows the order as indices."""
        if len(step.results) == _VALUES_AND_INDICES and isinstance(args[0], torch.Tensor) and args[0].dim():
            self.ordered[step.results[1].storage] = args[0]

    def _of_any_order(self, step: Step, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """The gradient of a step that orders its operand, which autograd scatters by the indices that it showed: random
        orders do not try all of many equal elements."""
        at = kernel(step).scatters_by
        if at is None or step.args[at].storage not in self.ordered:
            return values
        indices = step.args[at]
        operand, gradient = self.ordered[indices.storage], values[0]
        alike = operand.shape == gradient.shape and operand.numel() and not gradient.is_complex()
        return [undecided(operand, gradient, step.args[1])] if alike else values

    def _of_either_sign(self, at: int, args: Any) -> Any:
        """The operands with a random sign of each NaN."""
        value = args[at]
        if not isinstance(value, torch.Tensor) or not bool(torch.isnan(value).any()):
            return args
        either = torch.where(torch.isnan(value), value.copysign(self.noise(value)), value)
        return (*args[:at], either, *args[at + 1 :])

    def _divided_first(self, unit: float, step: Step, args: Any) -> Any:
        """A dividend that gives a quotient rounded by up to a unit."""
        if not unit:
            return args
        moved = args[0] * (1 + self.noise(args[0]) * self.scale * unit)
        exact = representable(args[0] / args[1], step.results[0].dtype)
        moved = moved if self.approximate else torch.where(exact, args[0], moved)
        return (args[0].copy_(moved) if step.writes else moved, *args[1:])

    def _contracted(self, step: Step, args: Any) -> Any:
        """Operands of a sum as a fused multiply-add or a recomputation has them: rounded otherwise than elsewhere."""

        def contracted(value: Any, ref: Any) -> Any:
            if not isinstance(ref, Ref) or not is_rounded(ref) or ref in step.writes:
                return value
            return by_parts(value, lambda t: self._contracted_one(t, ref.dtype.to_real()))

        return tuple(contracted(value, ref) for value, ref in zip(args, step.args, strict=True))

    def _contracted_one(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        moved = value + value * self.noise(value) * (self.scale * ULPS[dtype] * epsilon(dtype))
        return laid_like(torch.where(representable(value, dtype), value, moved), value)

    def _moved(
        self,
        tree: object,
        refs: object,
        unit: float,
        kept: Set[tuple[int, int]],
        written: Set[tuple[int, int]],
        whole: bool = False,
    ) -> object:
        """The operands moved by up to a unit, except those to keep; operands that the step writes move in their own
        memory."""
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
                size = torch.where(tree == 0, 0.0, size)  # such a pivot stays exact
            return laid_like(torch.where(finite(tree), tree + size * self.noise(tree) * unit, tree), tree)
        if isinstance(tree, list | tuple):
            moved = [self._moved(t, r, unit, kept, written, whole) for t, r in zip(tree, refs, strict=True)]  # type: ignore[call-overload]
            return moved if isinstance(tree, list) else tuple(moved)
        if isinstance(tree, dict):
            return {k: self._moved(v, refs[k], unit, kept, written, whole) for k, v in tree.items()}  # type: ignore[index]
        return tree

    def _moved_parts(self, parts: torch.Tensor, unit: float, whole: bool) -> torch.Tensor:
        """Complex numbers have errors in proportion to their modulus, in both parts (Higham 2002, section 3.6)."""
        size = parts.abs().max() if whole and parts.numel() else modulus(parts)
        moved = parts + size * self.noise(parts) * unit
        return torch.where(finite(moved) & (parts != 0), moved, parts)

    def _inner_unit(self, number: int, step: Step) -> float:
        if number not in self.found.units:
            self.found.units[number] = inner_unit(step, self.found.growth(number, step))
        return self.found.units[number]

    def results(
        self, number: int, step: Step, args: object, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Move the results of a rounding operation by up to one unit of their dtype."""
        row = kernel(step)
        moves = [is_rounded(ref) and row.flags_at != at for at, ref in enumerate(refs)]
        if ties(step):
            values = [tied(value, ref.dtype) for ref, value in zip(refs, values, strict=True)]
        if row.copies_at is not None:
            values = [
                self._cast(args[0][row.copies_at], value)  # type: ignore[index]
                for value in values
            ]
        if step.backward and self.seed % 8 == 6:
            values = self._of_any_order(step, values)
        if is_exact(step):
            if self.seed % 8 == 3 and picks_a_zero(step, args):
                values = list(map(self._of_any_zero, values))
            return [
                self._ranged_parts(value, ref.dtype.to_real()) if moving else value
                for moving, ref, value in zip(moves, refs, values, strict=True)
            ]
        values = signed(row, shuffled(row, values, self.generator), self.generator)
        values = self._reread(row, values)
        values = self._beyond(row, step, args[0], values)  # type: ignore[index]
        found = self._cancelled(number, step, args, values)
        hidden = found if isinstance(found, list) else [found] * len(values)
        sums, sizes = (iter(found.get(number, ())) for found in (self.found.partial, self.found.sizes))
        moved = []
        for at, (moving, ref, value) in enumerate(zip(moves, refs, values, strict=True)):
            if moving:
                off = hidden[at] + self._summed(number, step, next(sums, None))
                inside = self._result_of_any(number, step, ref, value, off)
                value = self._of_any_zero(self._spilled(number, step, value, inside, next(sizes, None)))
            moved.append(value)
        return moved

    def _of_any_zero(self, value: torch.Tensor) -> torch.Tensor:
        """The value; in one replica of eight each of its zeros has a random sign, since no sign of zero is promised."""
        if self.seed % 8 != 3 or not value.is_floating_point() or not bool((value == 0).any()):
            return value
        return torch.where(value == 0, value.copysign(self.noise(value)), value)

    def _cast(self, operand: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Floating numbers that an integer dtype cannot hold: the result of such a cast is not defined."""
        whole = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
        if not whole or not operand.is_floating_point():
            return value
        info = torch.iinfo(value.dtype)
        held = (operand.trunc() >= float(info.min)) & (operand < float(info.max + 1))
        return torch.where(held, value, (info.min, 0, info.max)[self.seed % 3])

    def _beyond(self, row: Kernel, step: Step, args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Results that an overflowing intermediate, or a weight of 0, may have made infinite or NaN."""
        if self.seed % 2 == 1 and row.intermediate is not None:
            found = row.intermediate(step, args)
            values = values if found is None else [_spoilt(row, step, found, value) for value in values]
        if self.seed % 4 == 1 and step.autocast is not None and row.calls_products:
            values = [_in_range(value, torch.finfo(step.autocast).max) for value in values]
        if self.narrow_scalars and row.limited is not None:
            values = [row.limited(step, args, values[0])]
        if self.seed % 4 == 1 and row.reached is not None:  # elsewhere what is infinite by overflow alone is met
            odd = (~torch.isfinite(args[row.odd_at])).double()
            if bool(odd.any()):
                other = torch.where(torch.isnan(values[0]), 0.0, math.nan)
                values = [torch.where(row.reached(step, args, odd), other, values[0])]
        if self.seed % 4 == 1 and row.divides_by_zero is not None and row.divides_by_zero(step, args):
            other = [torch.where(torch.isnan(value), math.inf, math.nan) for value in values]
            values = [torch.where(torch.isfinite(v), v, o) for v, o in zip(values, other, strict=True)]
        return self._squared(row, step, args, values)

    def _spilled(
        self, number: int, step: Step, value: torch.Tensor, inside: torch.Tensor, sizes: torch.Tensor | None
    ) -> torch.Tensor:
        """A sum whose partial sums may overflow, whatever its value: all positive summands may come first.

        With p the sum of the positive summands and n of the negative ones' sizes, p + n is `sizes` and p - n the value;
        no order has a partial sum beyond p or n. `inside` is the sum where none overflows, infinite if the value itself
        is out of range.
        """
        if sizes is None or self.seed % 2 == 0 or value.is_complex():
            return inside
        sizes = sizes * (1 + self.scale * accumulator(step) * self.found.growth(number, step))
        total = value * accumulation_length(step) if kernel(step).divides else value
        over, under = (sizes + total > 2 * reach(step)), (sizes - total > 2 * reach(step))
        spilled = torch.where(over & under, math.nan, torch.where(over, math.inf, -math.inf))
        return torch.where(over | under, spilled, inside)

    def _squared(self, row: Kernel, step: Step, args: Any, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Functions of a complex modulus, whose square may underflow or overflow though the modulus does not."""
        at = row.modulus_at
        if at is None or not self.gradual or not isinstance(args[at], torch.Tensor) or not args[at].is_complex():
            return values
        size, info = args[at].abs(), torch.finfo(step.args[at].dtype.to_real())
        lost, spilled = (size != 0) & (size < info.smallest_normal**0.5), size > info.max**0.5
        if not values[0].is_complex():  # the modulus itself
            return [torch.where(lost, 0.0, torch.where(spilled, math.inf, values[0]))]
        return [torch.where(lost | spilled, complex(math.nan, math.nan), values[0])]

    def _summed(self, number: int, step: Step, partial: torch.Tensor | None) -> float | torch.Tensor:
        """Absolute error of a sum whose partial sums are larger than it is."""
        return 0.0 if partial is None else partial * (accumulator(step) * self.found.growth(number, step))

    def _result_of_any(
        self, number: int, step: Step, ref: Ref, value: torch.Tensor, hidden: float | torch.Tensor
    ) -> torch.Tensor:
        """Real and imaginary parts move separately; integers and flags do not move."""
        if ref.dtype.is_complex:
            real = replace(ref, dtype=ref.dtype.to_real())
            if isinstance(hidden, torch.Tensor) and hidden.dim() == value.dim():
                hidden = hidden.unsqueeze(-1)  # one size for both parts
            # as in `_moved_parts`, except for errors that each part has by itself
            alone = rounds_once(step)
            return by_parts(value, lambda t: self._result(number, step, real, t, hidden, t if alone else modulus(t)))
        return self._result(number, step, ref, value, hidden, value)

    def _reread(self, row: Kernel, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """exp(x - max) / sum where a fused multiply-add rounds the first x differently from those of max and sum."""
        if row.rereads is None or self.consistent or self.nearest:
            return values
        return [row.rereads(values[0], self.apart.nan_to_num(0.0, 0.0, 0.0))]

    def _cancelled(self, number: int, step: Step, args: Any, values: list[torch.Tensor]) -> Hidden:
        """The absolute error from cancellation inside a kernel, which neither its operands nor its result show."""
        rule = kernel(step).attended if number in self.found.attentions else kernel(step).cancels
        if rule is None:
            return 0.0
        unit = self._inner_unit(number, step)
        return rule(Evaluation(step, args[0], args[1], values, unit, accumulator(step), self.approximate))

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
        row = kernel(step)
        alone = rounds_once(step) or number in self.found.exact
        unit = units(step, ref.dtype) * epsilon(ref.dtype)
        if not alone:
            unit += self._inner_unit(number, step)
        # a unit of the last place of y is eps * 2**e for 2**e <= |y| < 2**(e + 1): y without its fraction's bits
        size = (scale.view(torch.int64) & 0x7FF0000000000000).view(torch.float64)
        least = underflow(ref.dtype, self.gradual) if self.absolute else 0.0
        # factors have errors relative to their norm: small elements are off by as much as large ones
        numbers = value.nan_to_num(0, 0, 0) if row.factorises else value
        normwise = unit * float(numbers.abs().max()) if row.factorises else 0.0
        step_size = (size * unit).clamp_min(least)
        if normwise or isinstance(hidden, torch.Tensor) or hidden:
            step_size = step_size + hidden + normwise
        if self.nearest:
            return on_grid(value, ref.dtype)
        moved = value + step_size * self.scale * self._draw(value, ref.dtype)
        moved = torch.where(self._unmoved(step, ref, value, hidden, alone), value, moved)
        if normwise and self.pivots_lost:  # a pivot no larger than its error, of the operand and its own, may be 0
            moved = torch.where(moved.abs() <= 2 * unit * self.scale * float(numbers.norm()), 0.0, moved)
        if row.is_root and self.seed % 8 == 1:  # the squares underflow; elsewhere only results do
            moved = torch.where(moved.abs() < math.sqrt(least), 0.0, moved)
        return self._ranged(moved, ref.dtype)

    def _draw(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Noise; for float64 results a whole unit, since less would round back to the same number."""
        noise = self.noise(coarse(value, dtype) if self.consistent else value)
        return torch.where(noise < 0, -1.0, 1.0) if dtype == torch.float64 else noise

    def _unmoved(
        self, step: Step, ref: Ref, value: torch.Tensor, hidden: float | torch.Tensor, alone: bool
    ) -> torch.Tensor:
        """Where a result does not move: it is not finite, or exact."""
        kept = ~finite(value)
        if isinstance(hidden, torch.Tensor):
            kept |= (value == 0) & (hidden == 0)
        elif hidden == 0:
            kept |= value == 0
        row = kernel(step)
        inexact = row.inexact or (self.approximate and row.approximated and not decides(step))
        if not alone or inexact or rescales(step):
            return kept
        if isinstance(hidden, torch.Tensor):
            kept |= representable(value, ref.dtype) & (hidden == 0)
        elif hidden == 0:
            kept |= representable(value, ref.dtype)
        return kept

    def initial(self, flat: torch.Tensor) -> torch.Tensor:
        """Tensors that no step made are exact; only their subnormals may be flushed."""
        if not (flat.dtype.is_floating_point or flat.dtype.is_complex):
            return flat
        return self._ranged_parts(widened(flat), flat.dtype.to_real())

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        """A scalar operand as kernels read it: as float32, in every second replica in the tensor's own dtype."""
        return round_to(value, dtype if self.narrow_scalars else torch.float32)

    def _ranged_parts(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`_ranged`, for complex numbers part by part."""
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
            # subnormals become zero; with gradual underflow, numbers below half of the smallest
            gradual = self.gradual or dtype == torch.float16
            # a number is flushed to a zero of its sign (x86's MXCSR, PTX's .ftz); no sign of zero itself is promised
            flushed = torch.where(size > 0, value * 0.0, 0.0)
            value = torch.where(size < info.smallest_normal * (info.eps / 2 if gradual else 1.0), flushed, value)
        return value


def id_of(ref: Ref) -> tuple[int, int]:
    """The key of a tensor in its trace: its storage and its offset there."""
    return ref.storage, ref.offset


def picks_a_zero(step: Step, args: Any) -> bool:
    """Whether the step takes an extremum of numbers that hold zeros of both signs: tensors, and bounds that are
    scalars."""
    row, found = kernel(step), set[bool]()
    if not row.picks_zeros:
        return False

    def look(leaf: Any) -> None:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            found.update(leaf[leaf == 0].signbit().unique().tolist())
        elif torch.Tag.pointwise in step.op.tags and isinstance(leaf, int | float) and leaf == 0:
            found.add(math.copysign(1.0, leaf) < 0)

    mapped(args, look)
    return len(found) == 2


def finite(value: torch.Tensor) -> torch.Tensor:
    """Where a number is neither infinite nor NaN: `torch.isfinite` in two kernels, not four."""
    return value - value == 0


def coarse(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The value to an eighth of a unit of this dtype: numbers that differ by less are rounded by about the same."""
    kept = int(-math.log2(torch.finfo(dtype).eps)) + 3
    if kept >= 52:
        return value
    return (value.contiguous().view(torch.int64) & -(1 << (52 - kept))).view(torch.float64)


def laid_like(value: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    """The value in an operand's strides, on which some kernels depend, if these give each element its own place."""
    places = 1 + sum((n - 1) * step for n, step in zip(operand.shape, operand.stride(), strict=True))
    if value.stride() == operand.stride() or operand.numel() > places:
        return value
    return torch.empty_strided(operand.shape, operand.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _in_range(given: Any, most: float) -> Any:
    """The tensors as a cast to a dtype of this range leaves them: a kernel may cast what it adds or multiplies."""

    def cast(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return torch.where(leaf.abs() > most, leaf * math.inf, leaf)

    return mapped(given, cast)


def _stay_inside(domain: tuple[float, float], given: torch.Tensor, moved: torch.Tensor) -> None:
    """Put those moved operands back that reached an end of their domain."""
    low, high = domain
    reached = (given > low) & (given < high) & ((moved <= low) | (moved >= high))
    if bool(reached.any()):
        moved.copy_(torch.where(reached, given, moved))


def _spoilt(row: Kernel, step: Step, intermediate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A result with an overflowing intermediate: infinite, in all elements of a reduction or elementwise."""
    if not value.is_floating_point():
        return value
    held = min(torch.finfo(d).max for d in real_dtypes(step.results))
    large = intermediate.abs() > (max(held, torch.finfo(torch.float32).max) if row.wide else held)
    spoilt = large if value.shape == large.shape else large.any().expand(value.shape)
    return torch.where(spoilt & torch.isfinite(value), math.inf, value)
