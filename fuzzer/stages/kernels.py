"""Kernels as loop nests to be evaluated, and `run`, which inductor's wrapper calls in place of a compiled kernel.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0: torch._inductor.loop_body.LoopBody.{indexing, indexing_exprs,
root_block, sizes, iter_vars, reduce_vars, indirect_vars, indirect_var_ranges},
torch._inductor.virtualized.V.set_ops_handler, torch.utils._python_dispatch._disable_current_modes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.loop_body import LoopBody
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import _disable_current_modes

from fuzzer.stages.cannot import own_work
from fuzzer.stages.evaluator import Evaluator, Memory, reachable
from fuzzer.stages.index import Expressions
from fuzzer.stages.lanes import Lanes


@dataclass(frozen=True)
class Node:
    """A node of a kernel: its body, the number of its nest, the wrapper's variable (or the local buffer) behind each
    name in the body, and which of these variables the body loads and stores."""

    body: LoopBody
    nest: int
    names: Mapping[str, str]
    loads: frozenset[str]
    stores: frozenset[str]


@dataclass(frozen=True)
class Kernel:
    """One kernel's computation: nodes in order, in one loop nest or in several.

    results  for each nest, the sizes of the loops that all its nodes have.
    outer    the sizes of the loops that all nests have.
    late     whether a reduction's result is ready only after its nest's inner loop (`Lanes`).
    local    buffers that exist in this kernel alone, without allocated memory: elements and dtype by name.
    reasons  a list for the reasons why the stage cannot run the kernel.
    """

    nodes: Sequence[Node]
    results: Sequence[Sequence[Any]]
    outer: Sequence[Any]
    late: bool
    local: Mapping[str, tuple[Any, torch.dtype]]
    reasons: list[str]

    @functools.cached_property
    def symbols(self) -> list[sympy.Symbol]:
        """The symbols among the sizes."""
        found = {symbol for node in self.nodes for symbol in _symbols_of(node.body)}
        found |= {symbol for size, _ in self.local.values() for symbol in getattr(size, "free_symbols", ())}
        return sorted(found, key=str)

    @functools.cached_property
    def given(self) -> list[str]:
        """The wrapper's variables that are passed to the kernel."""
        names = dict.fromkeys(name for node in self.nodes for name in node.names.values())
        return [name for name in names if name not in self.local]

    def run(self, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> None:
        """Evaluate the kernel on these tensors, for these symbolic sizes. Raises Faulty and Cannot."""
        with (
            own_work(self.reasons),
            torch.no_grad(),
            _disable_current_modes(),
        ):  # AOTAutograd's mode looks at every operation
            symbols = {symbol: sizes[str(symbol)] for symbol in self.symbols}
            values, device = Expressions(symbols), self._device(tensors)
            memory = self._memory(tensors, values, device)
            numbers = [math.prod(map(values.integer, part)) for part in (*self.results, self.outer)]
            lanes = Lanes(numbers[:-1], numbers[-1], self.late)
            for node in self.nodes:
                seen = {name: memory[variable] for name, variable in node.names.items()}
                evaluate(node.body, Evaluator(node.body, seen, symbols, lanes, node.nest, device))

    def _device(self, tensors: Mapping[str, torch.Tensor]) -> torch.device:
        """The device to which the kernel stores: a loaded tensor may also be one number on the CPU."""
        stored = [tensors[name] for node in self.nodes for name in node.stores if name in tensors]
        return next(iter([*stored, *tensors.values()])).device

    def _memory(self, tensors: Mapping[str, torch.Tensor], values: Expressions, device: Any) -> dict[str, Memory]:
        """All memory by the wrapper's names; shared memory is stored to and touched once more, under any name."""
        flat = {name: reachable(tensor).to(device) for name, tensor in tensors.items()}
        flat |= {name: _poisoned(values.integer(n), dtype, device) for name, (n, dtype) in self.local.items()}
        where = {name: tensor.untyped_storage().data_ptr() for name, tensor in flat.items()}
        stored = Counter(where[name] for node in self.nodes for name in node.stores)
        loaded = {where[name] for node in self.nodes for name in node.loads}
        shared = {place for place, times in stored.items() if times > 1 or place in loaded}
        return {name: Memory(tensor, where[name] in shared) for name, tensor in flat.items()}


def _symbols_of(body: LoopBody) -> set[sympy.Symbol]:
    own = {*body.iter_vars, *body.reduce_vars, *body.indirect_vars}
    parts = (body.indexing_exprs.values(), *body.sizes, body.indirect_var_ranges.values())
    found = {symbol for part in itertools.chain(*parts) for symbol in getattr(part, "free_symbols", ())}
    return found - own


def _poisoned(elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory to which nothing was stored yet."""
    value = float("nan") if dtype.is_floating_point or dtype.is_complex else True if dtype == torch.bool else 99
    return torch.full((elements,), value, dtype=dtype, device=device)


def evaluate(body: LoopBody, handler: Evaluator) -> None:
    """Run a body under a handler, as its own `__call__` does, but in its own variables."""
    body.indexing = dict(body.indexing_exprs)
    try:
        with V.set_ops_handler(handler):
            body.root_block()
    finally:
        body.indexing = None


# Registered kernels, by numbers that are never used again: code that inductor wrote for another program may still be
# loaded.
KERNELS: dict[int, Kernel] = {}
_numbers = itertools.count()


def register(kernel: Kernel) -> int:
    """The number under which `run` finds this kernel."""
    number = next(_numbers)
    KERNELS[number] = kernel
    return number


def run(number: int, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> None:
    """Run the kernel of this number on tensors by the wrapper's names for them. Raises Faulty and Cannot."""
    KERNELS[number].run(tensors, sizes)
