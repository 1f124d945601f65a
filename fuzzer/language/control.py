"""Control flow: torch's own operations where a compiler traces them, elsewhere the same in plain Python.

Eager torch hands these operations to dynamo, but a recording of eager needs the operations inside them. The plain form
refuses the same bodies as torch. Within `as_torch` eager runs torch's own, for it may be wrong too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fuzzer.language.private import higher_order, is_fake, memory_of

_Tensors = tuple[torch.Tensor, ...]


class BodyRefused(ValueError):
    """A body that torch's control flow does not take."""


_uses_torchs = False


@contextlib.contextmanager
def as_torch() -> Iterator[None]:
    """Eager, too, runs torch's own operations in the block."""
    global _uses_torchs
    _uses_torchs, before = True, _uses_torchs
    try:
        yield
    finally:
        _uses_torchs = before


def cond(
    holds: torch.Tensor, block: Callable[..., _Tensors], otherwise: Callable[..., _Tensors], given: _Tensors
) -> _Tensors:
    """block(*given) where `holds`, a bool of one element, is true; else otherwise(*given)."""
    if torch.compiler.is_compiling() or _uses_torchs:
        return higher_order("cond")(holds, block, otherwise, given)  # type: ignore[no-any-return]
    found = (block if is_fake(holds) or bool(holds) else otherwise)(*given)
    return _own(found, given)


def map(block: Callable[[torch.Tensor], _Tensors], xs: torch.Tensor) -> _Tensors:
    """The results of block(x) for each x along the first dimension, stacked."""
    if torch.compiler.is_compiling() or _uses_torchs:
        return higher_order("map")(block, xs)  # type: ignore[no-any-return]
    return _stacked([_own(block(x), (x,)) for x in _rows(xs)])


def scan(
    block: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, _Tensors]],
    init: torch.Tensor,
    xs: torch.Tensor,
    reverse: bool = False,
) -> tuple[torch.Tensor, _Tensors]:
    """The last carry and the stacked ys of carry, ys = block(carry, x), for each x along the first dimension."""
    if torch.compiler.is_compiling() or _uses_torchs:
        return higher_order("scan")(block, init, xs, reverse=reverse)  # type: ignore[no-any-return]
    carry, found = init, []
    for x in reversed(_rows(xs)) if reverse else _rows(xs):
        after, ys = block(carry, x)
        _own((after, *ys), (carry, x))
        carry = _carried(after, carry)
        found.append(ys)
    return carry, _stacked(found[::-1] if reverse else found)


def while_loop(goes_on: Callable[..., Any], block: Callable[..., _Tensors], given: _Tensors) -> _Tensors:
    """The result of given = block(*given), repeated as long as goes_on(*given)."""
    if torch.compiler.is_compiling() or _uses_torchs:
        return higher_order("while_loop")(goes_on, block, given)  # type: ignore[no-any-return]
    while is_fake(given[0]) or bool(goes_on(*given)):
        after = _own(block(*given), given)
        given = tuple(_carried(new, old) for new, old in zip(after, given, strict=True))
        if is_fake(given[0]):
            break
    return given


def _rows(xs: torch.Tensor) -> Sequence[torch.Tensor]:
    if xs.dim() == 0 or not len(xs):
        raise BodyRefused(f"no elements along the first dimension of {tuple(xs.shape)}")
    return torch.unbind(xs)


def _stacked(found: Sequence[_Tensors]) -> _Tensors:
    return tuple(torch.stack(parts) for parts in zip(*found, strict=True))


def _carried(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """The carried value, which must have the same type as before."""
    if (new.dtype, new.shape, new.stride()) != (old.dtype, old.shape, old.stride()):
        raise BodyRefused(f"carries {new.dtype}{list(new.shape)} on where it was {old.dtype}{list(old.shape)}")
    return new


def _own(results: _Tensors, operands: _Tensors) -> _Tensors:
    """The results, none of which may share memory with an operand or another result."""
    seen = [memory_of(t) for t in operands]
    for result in results:
        if memory_of(result) in seen:
            raise BodyRefused("a result that lies in the memory of an operand or of another result")
        seen.append(memory_of(result))
    return results
