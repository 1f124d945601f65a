"""Roundings to float16 and bfloat16 that inductor drops where it fuses operations.

Generated code computes in float32 and rounds where it stores. So an intermediate result of half precision that is read
in the kernel that makes it is never rounded, also where the program casts to half precision and back. With
`inductor.emulate_precision_casts` it is. The replays of this file round every result to the nearest number of its
dtype, as eager does; in one of them the roundings within one chain are dropped, all together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fuzzer.rounding.arithmetic import is_exact
from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.precision import by_parts
from fuzzer.rounding.scalars import round_to
from fuzzer.rounding.trace import Ref, Step, is_rounded, mapped, once, refs_in, widened

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class FusedChain:
    """Elementwise steps of a forward or a backward that read each other's results, and the reductions that end it.

    members  the numbers of its steps.
    casts    of those among them whose results are rounded to half precision and read by members, in order.
    moves    of those that hand on such a result as it is.
    """

    members: frozenset[int]
    casts: tuple[int, ...]
    moves: frozenset[int]


@once
def _is_elementwise(step: Step) -> bool:
    return torch.Tag.pointwise in step.op.tags or kernel(step).copies_at is not None


@once
def _reduces(step: Step) -> bool:
    return torch.Tag.reduction in step.op.tags


@once
def _decides(step: Step) -> bool:
    return kernel(step).jumps or not all(map(is_rounded, step.results))


def fused_chains(steps: Sequence[Step]) -> list[FusedChain]:
    """The chains of a trace that hold casts."""
    heads: dict[int, int] = {}  # a member's number -> an earlier one of its chain, or itself

    def head(number: int) -> int:
        while heads[number] != number:
            number = heads[number]
        return number

    makers: dict[int, int] = {}  # the last step that wrote to a storage, where it is elementwise
    read: set[int] = set()
    for number, step in enumerate(steps):
        elementwise = _is_elementwise(step) and not step.recorded
        if elementwise or _reduces(step):
            heads[number] = number
            for ref in step.inputs:
                maker = makers.get(ref.storage)
                if maker is not None and steps[maker].backward == step.backward:
                    heads[head(number)] = head(maker)
                    read.add(maker)
        for ref in step.results:
            makers.pop(ref.storage, None)
            if elementwise:
                makers[ref.storage] = number
    narrow = [n for n in sorted(read) if any(ref.dtype in HALF for ref in steps[n].results)]
    found = []
    for first in dict.fromkeys(map(head, narrow)):
        own = [n for n in narrow if head(n) == first]
        casts = tuple(n for n in own if not is_exact(steps[n]))
        if casts:
            members = frozenset(n for n in heads if head(n) == first)
            found.append(FusedChain(members, casts, frozenset(own) - set(casts)))
    return found


@dataclass
class Nearest:
    """A perturbation of no more than eager's own roundings: every result becomes the nearest number of its dtype.

    chain    of which some results keep float32's precision for its own members; all other steps read them rounded.
    dropped  the steps that make them.
    wide     the storages that hold such results.
    decided  by number, the results of the steps that decide: integers and flags, and functions that jump.
    """

    chain: FusedChain | None = None
    dropped: frozenset[int] = frozenset()
    wide: set[int] = field(default_factory=set)
    decided: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def initial(self, flat: torch.Tensor) -> torch.Tensor:
        return widened(flat)

    def scalar(self, value: float, dtype: torch.dtype) -> float:
        return round_to(value, torch.float32)

    def inputs(self, number: int, step: Step, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if self.chain is None or number in self.chain.members:
            return args, kwargs
        refs = refs_in((step.args, step.kwargs))
        stored: tuple[Any, Any] = mapped((args, kwargs), lambda leaf: self._stored(leaf, refs, step))
        return stored

    def _stored(self, leaf: Any, refs: Iterator[Ref], step: Step) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        ref = next(refs)
        if ref.storage not in self.wide:
            return leaf
        found = nearest(leaf, ref.dtype)
        return leaf.copy_(found) if ref in step.writes else found

    def results(
        self, number: int, step: Step, args: Any, refs: Sequence[Ref], values: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        if _decides(step):
            self.decided[number] = [value.clone() for value in values]
        if number in self.dropped:
            self.wide |= {ref.storage for ref in refs if ref.dtype in HALF}
            return [
                nearest(v, torch.float32 if r.dtype in HALF else r.dtype) for r, v in zip(refs, values, strict=True)
            ]
        return [nearest(value, ref.dtype) for ref, value in zip(refs, values, strict=True)]


def nearest(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of a dtype to which those of a replay round, in its range too; integers and flags as they are."""
    if not (value.is_floating_point() or value.is_complex()) or dtype.to_real() == torch.float64:
        return value
    return by_parts(value, lambda parts: parts.to(dtype.to_real()).double())
