"""Chains of additions by which autograd sums the gradients of one value: one sum, in any order.

Eager adds the gradients one by one, as they arrive. If the value is read in a body that runs for each row or each step,
a compiler stacks them and sums the stack, or starts at the other end. If the value is written through a view, eager
copies the sum so far into memory with the base's layout and goes on adding there; a compiler has neither write nor
copy. If the value is expanded, eager adds up the gradients of the expanded value, sums them to the first value's shape
and goes on adding there. A compiled function may return the expanded value as a view; then autograd sums the gradient
of that view apart, and adds it last.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzzer.language.values import real_parts
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.precision import ULPS, epsilon, growth
from fuzzer.rounding.trace import Ref, Step, is_rounded

GRIDS = (1.0, 2.0, 4.0, 8.0, 16.0)  # a sum may be exact where every term is a multiple of 1 / grid
_PAIR = 2  # terms: the order of two makes no difference


@dataclass
class Chain:
    """Additions of which each but the first adds to the result of others.

    terms  by each addition's step number, the places of those operands that are no results of others.
    last   where the sum of all terms is.
    times  by each addition's step number, of its result the elements that are added up into one of `last`: more than
           one where a sum to the shape of an expanded value came after it.
    sizes  the sum of the terms' sizes, and `grids` that hold all terms, both from an unperturbed replay.
    """

    terms: dict[int, tuple[int, ...]]
    last: Ref
    times: dict[int, int]
    sizes: torch.Tensor | float = 0.0
    grids: tuple[float, ...] = GRIDS

    @property
    def length(self) -> int:
        return sum(len(places) * self.times[number] for number, places in self.terms.items())

    def show(self, number: int, args: Sequence[Any]) -> None:
        """Note the operands of one of the additions."""
        for place in self.terms[number]:
            term = real_parts(args[place])
            times = self.times[number]
            same = times == 1 and (isinstance(self.sizes, float) or self.sizes.shape == term.shape)
            # in another shape the elements are in another order: use the largest
            self.sizes = self.sizes + (term.abs() if same or not term.numel() else times * term.abs().max())
            self.grids = tuple(g for g in self.grids if bool((term * g == (term * g).round()).all()))

    @functools.cached_property
    def unit(self) -> float:
        """The error of each term, relative to its size; 0 if every order of all terms is exact."""
        dtype = self.last.dtype.to_real()
        most = float(torch.as_tensor(self.sizes).max()) if self.last.numel else 0.0
        if any(most * grid <= 2 / epsilon(dtype) for grid in self.grids):
            return 0.0
        unit = epsilon(dtype) * ULPS[dtype]
        return unit * growth(self.length, unit)


def chains(steps: Sequence[Step]) -> dict[int, Chain]:
    """The chains of three terms and more, by the number of each of their additions."""
    found = [chain for chain in _all_chains(steps) if chain.length > _PAIR]
    return {number: chain for chain in found for number in chain.terms}


def _all_chains(steps: Sequence[Step]) -> Iterator[Chain]:
    ends: dict[int, Chain] = {}  # by the storage of their last sum, which no other step has read or written yet
    for number, step in enumerate(steps):
        if kernel(step).reads_geometry:
            continue
        chain = _joined(number, step, ends) if _adds(step) else _copied(step, ends) or _shrunk(step, ends)
        yield from [ends.pop(ref.storage) for ref in (*step.inputs, *step.results) if ref.storage in ends]
        if chain is not None:
            ends[chain.last.storage] = chain
    yield from ends.values()


def _joined(number: int, step: Step, ends: dict[int, Chain]) -> Chain:
    """The chain that ends with this addition: the chains whose sums it adds (removed from `ends`) and its other
    operands."""
    terms: dict[int, tuple[int, ...]] = {}
    times = {number: 1}
    places = []
    for place, ref in enumerate(step.args):
        if _is_end(ref, ends):
            ended = ends.pop(ref.storage)
            terms, times = terms | ended.terms, times | ended.times
        else:
            places.append(place)
    return Chain({**terms, number: tuple(places)}, step.results[0], times)


def _copied(step: Step, ends: dict[int, Chain]) -> Chain | None:
    """The chain whose sum this step copies; the chain now ends in the copy. None if there is none."""
    at = kernel(step).copies_at
    if at is None or len(step.results) != 1:
        return None
    source, result = step.args[at], step.results[0]
    whole = _is_end(source, ends) and (source.dtype, source.numel) == (result.dtype, result.numel)
    return replace(ends.pop(source.storage), last=result) if whole else None


def _shrunk(step: Step, ends: dict[int, Chain]) -> Chain | None:
    """The chain whose sum this step sums to the shape of the value that was expanded. None if there is none."""
    if not (step.backward and kernel(step).shrinks and len(step.results) == 1):
        return None
    source, result = step.args[0], step.results[0]
    whole = _is_end(source, ends) and source.dtype == result.dtype and result.numel > 0
    if not whole or ends[source.storage].last.numel != source.numel:
        return None
    chain, times = ends.pop(source.storage), source.numel // result.numel
    return replace(chain, last=result, times={number: times * before for number, before in chain.times.items()})


def _is_end(ref: object, ends: dict[int, Chain]) -> bool:
    """Whether a Ref is all of the last sum of a chain, in any shape, or memory into which that sum was copied: autograd
    puts the gradient of a view into zeros of its base's size."""
    if not isinstance(ref, Ref) or ref.storage not in ends:
        return False
    last = ends[ref.storage].last
    whole = (last.numel, last.offset) == (ref.numel, ref.offset)
    return last.numel > 0 and last.dtype == ref.dtype and (whole or last.numel < ref.numel)


def _adds(step: Step) -> bool:
    """Whether autograd may have added two gradients of one value."""
    if not (step.backward and kernel(step).sums_gradients and len(step.args) == 2 and not step.kwargs):
        return False
    refs = [ref for ref in step.args if isinstance(ref, Ref)]
    alike = len(refs) == 2 and (refs[0].shape, refs[0].dtype) == (refs[1].shape, refs[1].dtype)
    return alike and is_rounded(refs[0]) and len(step.results) == 1
