"""One node of a loop nest, evaluated for all its iterations at once: V.ops over tensors.

Each value is a tensor that broadcasts over the node's iterations, one dimension a loop. Memory accesses are checked
here: loads and stores lie in their buffers, indices read from data are in range, no two iterations store different
values into one element.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0: torch._inductor.ops_handler.{OpsHandler's methods,
DefaultHandler}, torch._inductor.virtualized.OpsValue, torch._inductor.loop_body.LoopBody.{vars, sizes}.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.loop_body import LoopBody
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import OpsValue

from fuzzer.stages.cannot import Cannot, Faulty
from fuzzer.stages.elementwise import compute_dtype, elementwise, reduced, scanned, sorted_together
from fuzzer.stages.index import Expressions, row_major
from fuzzer.stages.lanes import Access, Element, Lanes

_FROM_DATA = "from_data"  # prefix of the symbols whose values were loaded


@dataclass(frozen=True)
class Memory:
    """A buffer as a kernel sees it: all memory that it can reach from the buffer's address, flat.

    shared   whether the running kernel stores to it and may touch it a second time, so that lanes are compared.
    """

    flat: torch.Tensor
    shared: bool = False

    @property
    def element(self) -> Element:
        return self.flat.untyped_storage().data_ptr(), self.flat.dtype


def reachable(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a kernel reaches from this tensor's address: the first element to the last."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return torch.as_strided(tensor.detach(), (last + 1 if tensor.numel() else 0,), (1,), tensor.storage_offset())


class Evaluator(DefaultHandler):
    """V.ops while one node runs, over all iterations at once.

    memory    by the names that the body uses.  symbols  the values of symbolic sizes.
    lanes     the record of accesses to shared memory;  nest  the number of the node's nest.
    """

    def __init__(
        self,
        body: LoopBody,
        memory: Mapping[str, Memory],
        symbols: Mapping[sympy.Symbol, int],
        lanes: Lanes,
        nest: int,
        device: torch.device,
    ):
        self.memory, self.lanes, self.nest, self.device = memory, lanes, nest, device
        self.mask: torch.Tensor | None = None
        self.index = Expressions(symbols)
        outer, inner = body.sizes
        self.shape = [self.index.integer(n) for n in (*outer, *inner)]
        self.reduced_dims = len(inner)
        self.kept = self.shape[: len(outer)] + [1] * len(inner)
        for variable, values in zip((*body.vars[0], *body.vars[1]), row_major(self.shape, device), strict=True):
            self.index.define(variable, values)
        self.indirect = 0

    # ---------------------------------------------------------------- values

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return elementwise(name)(*map(self._value, args), **kwargs)

    def _value(self, value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        """An operand as a tensor with one dimension for each loop of the node, so that dtypes promote as in C++; dtype:
        of a number."""
        if isinstance(value, OpsValue):
            value = value.value
        if isinstance(value, torch.Tensor):
            return value
        return torch.tensor(value, dtype=dtype, device=self.device).reshape([1] * len(self.shape))

    def constant(self, value: Any, dtype: torch.dtype) -> torch.Tensor:
        return self._value(value, compute_dtype(dtype))

    def index_expr(self, expr: Any, dtype: torch.dtype) -> torch.Tensor:
        found = self.index(expr)  # a float is a quotient of sizes, which C++ first turns into a double
        return self._value(found, torch.float64 if isinstance(found, float) else None).to(compute_dtype(dtype))

    value_expr = index_expr

    def to_dtype(
        self, x: Any, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> torch.Tensor:
        # without compute types: rounded to the dtype, as emulate_precision_casts asks, and then used in that dtype
        rounded = self._value(x).to(compute_dtype(dtype) if use_compute_types else dtype)
        return rounded.to(compute_dtype(dtype))

    def to_dtype_bitcast(self, x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> torch.Tensor:
        return self._value(x).to(src_dtype).contiguous().view(dtype).to(compute_dtype(dtype))

    def trunc_to_int(self, x: Any, dtype: torch.dtype) -> torch.Tensor:
        return self._value(x).trunc().to(dtype)

    def ceil_to_int(self, x: Any, dtype: torch.dtype) -> torch.Tensor:
        return self._value(x).ceil().to(dtype)

    def floor_to_int(self, x: Any, dtype: torch.dtype) -> torch.Tensor:
        return self._value(x).floor().to(dtype)

    def round_to_int(self, x: Any, dtype: torch.dtype) -> torch.Tensor:
        return self._value(x).round().to(dtype)

    def masked(self, mask: Any, body: Callable[[], Any], other: Any) -> torch.Tensor:
        mask, before = self._value(mask).bool(), self.mask
        self.mask = mask if before is None else mask & before
        try:
            value = self._value(body())
        finally:
            self.mask = before
        return torch.where(mask, value, self._value(other, value.dtype).to(value.dtype))

    # ---------------------------------------------------------------- memory

    def _where(self, name: str, index: Any, what: str) -> torch.Tensor:
        """Offsets in a buffer. Raises Faulty where an unmasked offset lies outside."""
        at, size = self._value(self.index(index)), self.memory[name].flat.numel()
        outside = (at < 0) | (at >= size)
        if bool(outside.any()):
            self._require(outside, f"{what} {name} at {index}: outside its {size} elements")
            at = at.clamp(0, max(size - 1, 0))
        return at

    def _require(self, wrong: torch.Tensor, message: str) -> None:
        """Raise Faulty where an unmasked iteration is wrong."""
        if bool((wrong if self.mask is None else wrong & self.mask).any()):
            raise Faulty(message)

    def _note(self, name: str, stores: bool, at: torch.Tensor, shape: list[int]) -> None:
        """Note which lanes touch which elements of shared memory."""
        memory = self.memory[name]
        if not memory.shared:
            return
        count = functools.reduce(int.__mul__, shape, 1)
        lanes, at = torch.arange(count, device=self.device), at.expand(shape).reshape(-1)
        if not stores and self.mask is not None:
            seen = self.mask.expand(shape).reshape(-1)
            lanes, at = lanes[seen], at[seen]
        access = Access(name, stores, at + memory.flat.storage_offset(), lanes, count, self.nest)
        self.lanes.note(memory.element, access)

    def load(self, name: str, index: Any) -> torch.Tensor:
        at, flat = self._where(name, index, "load of"), self.memory[name].flat
        if not flat.numel():  # nothing is loaded: all iterations are masked, or there are none
            return torch.zeros(at.shape, dtype=compute_dtype(flat.dtype), device=self.device)
        self._note(name, False, at, self.shape)
        return flat.take(at).to(compute_dtype(flat.dtype))

    def store(self, name: str, index: Any, value: Any, mode: str | None = None) -> None:
        if mode not in (None, "tma", "atomic_add"):
            raise Cannot(f"store: {mode}")
        if value is not None:  # a node that only asserts has nothing to store
            self._store(name, index, value, self.shape, mode == "atomic_add")

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        self._store(name, index, value, self.kept, False)

    def _store(self, name: str, index: Any, value: Any, shape: list[int], adds: bool) -> None:
        flat, at = self.memory[name].flat, self._where(name, index, "store to").expand(shape)
        value = self._value(value).expand(shape).to(flat.dtype)
        flat.index_put_((at,), value, accumulate=adds)
        if adds:
            return  # the order does not matter
        self._note(name, True, at, shape)
        if any(symbol.name.startswith(_FROM_DATA) for symbol in getattr(index, "free_symbols", ())):
            return  # where data decides the index, eager leaves open which of several values stays
        left = flat.take(at)
        if not bool(((left == value) | ((left != left) & (value != value))).all()):
            raise Faulty(f"store to {name} at {index}: lanes store different values into one element")

    def indirect_indexing(self, x: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        at, most = self._value(x).to(torch.int64), self.index(size)
        if wrap_neg:
            at = torch.where(at < 0, at + most, at)
        if check:
            self._require((at < 0) | (at >= most), f"an index is out of range of {size}")
        self.indirect += 1
        symbol = sympy.Symbol(f"{_FROM_DATA}{self.indirect}", integer=True)
        self.index.define(symbol, at)
        return symbol

    def check_bounds(self, expr: Any, size: Any, lower: bool, upper: bool) -> None:
        at, most = self._value(self.index(expr)), self.index(size)
        self._require(((at < 0) & lower) | ((at >= most) & upper), f"{expr} is out of range of {size}")

    def device_assert_async(self, cond: Any, msg: str) -> None:
        self._require(~self._value(cond).bool(), msg)

    def bucketize(
        self,
        values: Any,
        boundaries: tuple[str, Any, Any, Any],
        boundary_indices: Any,
        indexing_dtype: torch.dtype,
        right: bool,
        sorter: Any = None,
        sorter_indices: Any = None,
    ) -> torch.Tensor:
        name, count, _, step = boundaries
        start = self._value(boundary_indices)
        if sorter is not None or start.numel() != 1:
            raise Cannot("bucketize: boundaries that are not one sorted list")
        at = start.reshape(()) + torch.arange(self.index.integer(count), device=self.device) * self.index.integer(step)
        found = torch.searchsorted(self.memory[name].flat[at], self._value(values).contiguous(), right=right)
        return found.to(indexing_dtype)

    # ---------------------------------------------------------------- along the reduced loops

    def _everywhere(self, values: Any) -> tuple[torch.Tensor, ...]:
        """Values broadcast to every iteration."""
        given = values if isinstance(values, tuple | list) else (values,)
        return tuple(self._value(value).expand(self.shape) for value in given)

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any) -> Any:
        found = reduced(reduction_type, dtype, self._everywhere(value), self.reduced_dims)
        return found if len(found) > 1 else found[0]

    def scan(self, dtypes: Any, combine_fn: Callable[[Any, Any], Any], values: Any) -> tuple[torch.Tensor, ...]:
        def combine(left: Any, right: Any) -> tuple[torch.Tensor, ...]:
            return tuple(map(self._value, combine_fn(left, right)))

        given = (value.to(compute_dtype(dtype)) for value, dtype in zip(self._everywhere(values), dtypes, strict=True))
        return scanned(combine, tuple(given), self.reduced_dims)

    def sort(self, dtypes: Any, values: Any, stable: bool, descending: bool) -> tuple[torch.Tensor, ...]:
        return sorted_together(self._everywhere(values), self.reduced_dims, descending)
