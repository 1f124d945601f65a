"""Ordinary spellings of tensor code, made of calls that the tables say: `x == 0` is `torch.eq(x, 0)`.

A spelling is a function of the call's arguments. It returns the call's result, or NotImplemented for arguments that it
does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Spelling = Callable[..., Any]


def _of_bools(function: Spelling) -> Spelling:
    """Bit by bit is element by element for bool alone."""

    def spelled(*xs: Any) -> Any:
        fits = all(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in xs)
        return function(*xs) if fits else NotImplemented

    return spelled


def _into(function: Spelling) -> Spelling:
    """The in-place form of a function of bools."""
    return _of_bools(lambda x, y: x.copy_(function(x, y)))


def _to_type(x: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    return x.to(dtype) if isinstance(dtype, torch.dtype) else NotImplemented


def _deviation(function: Spelling) -> Spelling:
    """With Bessel's correction as a number."""

    def spelled(x: torch.Tensor, dim: Any, unbiased: Any = None, keepdim: bool = False, **given: Any) -> Any:
        if given or type(unbiased) is not bool or type(dim) is bool:
            return NotImplemented
        return function(x, dim, correction=int(unbiased), keepdim=keepdim)

    return lambda *args, **given: spelled(*args, **given) if len(args) > 1 or "dim" in given else NotImplemented


def _parts(index: Any) -> list[Any] | None:
    """An index as its parts: integers, slices, None, an ellipsis and tensors; None where it has others."""
    found = [torch.tensor(p) if isinstance(p, list) else p for p in (index if isinstance(index, tuple) else (index,))]
    plain = all(p is None or p is Ellipsis or type(p) is int or isinstance(p, torch.Tensor) or _is_slice(p)
                for p in found)  # fmt: skip
    return found if plain else None


def _is_slice(part: Any) -> bool:
    return isinstance(part, slice) and all(type(n) in (int, type(None)) for n in (part.start, part.stop, part.step))


def _located(x: torch.Tensor, parts: list[Any]) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """The view of x that the integers, slices and None give, and the tensors that index it (None: a whole
    dimension)."""
    dim, tensors = 0, list[torch.Tensor | None]()
    for i, part in enumerate(parts):
        if part is Ellipsis:
            dim = x.dim() - sum(_dims(p) for p in parts[i + 1 :])
        elif part is None:
            x, dim = torch.unsqueeze(x, dim), dim + 1
        elif isinstance(part, slice):
            if part != slice(None):
                x = torch.ops.aten.slice.Tensor(x, dim, part.start, part.stop, part.step or 1)
            dim += 1
        elif isinstance(part, torch.Tensor):
            tensors += [None] * (dim - len(tensors)) + [part]
            dim += 1
        else:
            x = torch.select(x, dim, part)
    return x, tensors


def _dims(part: Any) -> int:
    """How many dimensions of the tensor a part of an index takes."""
    if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8):
        return part.dim()
    return part is not None


def _get(x: torch.Tensor, index: Any) -> Any:
    parts = _parts(index)
    if parts is None:
        return NotImplemented
    x, tensors = _located(x, parts)
    return torch.ops.aten.index.Tensor(x, tensors) if tensors else x


def _set(x: torch.Tensor, index: Any, value: Any) -> Any:
    parts = _parts(index)
    if parts is None or not isinstance(value, torch.Tensor | int | float):
        return NotImplemented
    part, tensors = _located(x, parts)
    if None in tensors:
        return NotImplemented
    if tensors:
        given = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=x.dtype)
        part.index_put_(tensors, given)
    elif not isinstance(value, torch.Tensor) or (value.dim() == 0 and part.dim()):
        part.fill_(value)
    else:
        while value.dim() > part.dim() and value.shape[0] == 1:
            value = torch.squeeze(value, 0)
        part.copy_(value)
    return None


SPELLINGS: dict[str, Spelling] = {
    "__getitem__": _get,
    "__setitem__": _set,
    "__eq__": torch.eq,
    "__and__": _of_bools(torch.logical_and),
    "__or__": _of_bools(torch.logical_or),
    "__xor__": _of_bools(torch.logical_xor),
    "__invert__": _of_bools(torch.logical_not),
    "__iand__": _into(torch.logical_and),
    "__ior__": _into(torch.logical_or),
    "__ixor__": _into(torch.logical_xor),
    "floor_divide_": lambda x, y: x.div_(y, rounding_mode="floor"),
    "relu6_": lambda x: torch.nn.functional.hardtanh_(x, 0.0, 6.0),
    "dropout_": lambda x, p, train: NotImplemented if p and train else x,
    "data": torch.Tensor.detach,
    "bool": lambda x: x.to(torch.bool),
    "int": lambda x: x.to(torch.int32),
    "long": lambda x: x.to(torch.int64),
    "type_as": lambda x, like: x.to(like.dtype),
    "type": _to_type,
    "var": _deviation(torch.var),
    "std": _deviation(torch.std),
}
