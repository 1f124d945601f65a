"""The loops of inductor's kernels, in words: known once a graph is lowered, before code is written.

The words of a kernel, in which names have no numbers and numbers are N:

`exp f32(load)`               a line of a body: an operation, its result's dtype, the operations that made its operands.
                              `load of exp`: a load of a value that another node of the kernel stored.
`load f32 [N 1] indirect`     an access: the step along each loop, and the other terms of its index.
`exp f32 at tail`             an operation, and how the innermost loop divides into vectors.
`pointwise f32 whole tail`    a nest: its kind, its dtypes, and how each loop divides into vectors (reduced loops behind
                              a bar).
`sum then pointwise`          two nodes, one after the other in one kernel.

Bodies are inductor's `LoopBody`, of which nothing is imported here.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch

from fuzzer.language.values import DTYPE_NAMES

_HALF = (torch.float16, torch.bfloat16)
_BOOLEAN = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit", "logical_and", "logical_or", "logical_not",
     "logical_xor")
)  # fmt: skip
_ACCESSES = ("load", "store", "store_reduction")


class Target(NamedTuple):
    """The target of a kernel: the dtypes of buffers by name, and how many elements of a dtype one vector holds (0: no
    vectors)."""

    dtype_of: Callable[[str], torch.dtype | None]
    lanes: Callable[[torch.dtype], int]


class _Value(NamedTuple):
    """The result of an operation of a body: the word for the operation that made it, and its dtype."""

    made: str
    dtype: torch.dtype | None = None


def kernel_words(bodies: Iterable[Any], target: Target) -> frozenset[str]:
    """The words of one kernel that consists of these bodies in this order."""
    stored: dict[str, str] = {}
    nodes = [_Node(body, target, stored) for body in bodies]
    together = (f"{a.kind} then {b.kind}" for a, b in itertools.pairwise(nodes))
    return frozenset(together).union(*(node.words() for node in nodes))


class _Node:
    """One body of a kernel. stored: the words stored to each buffer so far by the kernel; this body adds its own."""

    def __init__(self, body: Any, target: Target, stored: dict[str, str]):
        self.body, self.target, self.stored = body, target, stored
        self.lines: set[str] = set()
        self.accesses: set[str] = set()
        self.operations: set[str] = set()
        self.loaded: set[torch.dtype] = set()
        self.kind = "pointwise"
        outer, inner = body.sizes
        self.loops = [(v, n) for v, n in zip(_variables(body), (*outer, *inner), strict=True) if n != 1]
        self.kept = sum(n != 1 for n in outer)
        self._block(body.root_block.graph)

    def words(self) -> Iterator[str]:
        halves = bool(self.loaded) and self.loaded <= set(_HALF)
        lanes = self.target.lanes(min(self.loaded, key=str) if halves else torch.float32)
        fits = [fit(n, lanes) for _, n in self.loops]
        inner = fits[-1] if fits else "once"
        yield from self.lines
        yield from self.accesses
        yield from (f"{word} at {inner}" for word in self.operations)
        nest = fits if self.kept == len(fits) else [*fits[: self.kept], "|", *fits[self.kept :]]
        yield " ".join([self.kind, *sorted(map(_name, self.loaded)), *nest])

    def _block(self, graph: Any) -> _Value:
        """Read the operations of a block; returns the block's result."""
        values: dict[Any, _Value] = {}
        for node in graph.nodes:
            if node.op == "output":
                return next((values[n] for n in _nodes(node.args) if n in values), _Value("nothing"))
            if node.op != "placeholder":
                values[node] = self._value(node, values)
        return _Value("nothing")

    def _value(self, node: Any, values: Mapping[Any, _Value]) -> _Value:
        operands = [values[n] for n in _nodes((node.args, node.kwargs)) if n in values]
        if node.op == "call_function":  # one of several results
            return operands[0]
        if node.op == "call_module":
            return self._module(str(node.target), operands, node)
        op, given = str(node.target), list(_leaves((node.args[1:], node.kwargs)))
        if op in _ACCESSES:
            return self._access(op, given, operands)
        named = [a for a in given if isinstance(a, torch.dtype)]
        if op == "reduction":
            op = self.kind = next(a for a in given if isinstance(a, str))
        dtype = named[0] if named else torch.bool if op in _BOOLEAN else _promoted(operands[op == "where" :])
        return self._operation(op, dtype, operands)

    def _module(self, name: str, operands: list[_Value], node: Any) -> _Value:
        if name == "get_index":
            return _Value(self._index(self.body.indexing_exprs[node.args[0]]))
        kind = name.rstrip("0123456789")
        if name in self.body.subblocks:
            inside = self._block(self.body.subblocks[name].graph)
            return self._operation("masked", inside.dtype, [inside, *operands])
        return self._operation(kind, _promoted(operands), operands)

    def _operation(self, op: str, dtype: torch.dtype | None, operands: Sequence[_Value]) -> _Value:
        self.lines.add(f"{op} {_name(dtype)}({', '.join(value.made for value in operands)})")
        self.operations.add(f"{op} {_name(dtype)}")
        return _Value(op, dtype)

    def _access(self, op: str, given: Sequence[Any], operands: Sequence[_Value]) -> _Value:
        """A load or store. given: its buffer and mode; operands: its index, then the value."""
        buffer, *mode = [a for a in given if isinstance(a, str)]
        dtype = self.target.dtype_of(buffer)
        op = " ".join([op, *mode])
        self.accesses.add(f"{op} {_name(dtype)} {operands[0].made}")
        if op != "load":
            self.stored[buffer] = operands[-1].made
            self.lines.add(f"{op} {_name(dtype)}({operands[-1].made})")
            return _Value(op, dtype)
        if dtype is not None:
            self.loaded.add(dtype)
        return _Value(f"load of {self.stored[buffer]}" if buffer in self.stored else op, dtype)

    def _index(self, expression: Any) -> str:
        """The step along each loop (`?`: no number), and the other terms of an index."""
        steps, rest = {variable: "0" for variable, _ in self.loops}, set[str]()
        for term in sympy.Add.make_args(sympy.sympify(expression)):
            own = [variable for variable in steps if variable in term.free_symbols]
            number, factor = term.as_coeff_Mul()
            if own and factor == own[0]:
                steps[own[0]] = str(number) if number in (1, -1) else "-N" if number < 0 else "N"
            elif own:
                steps |= dict.fromkeys(own, "?")
                rest |= {function.func.__name__ for function in term.atoms(sympy.Function)}
            elif term.free_symbols:
                rest.add("indirect" if set(self.body.indirect_vars) & term.free_symbols else "symbolic")
            elif term != 0:
                rest.add("offset")
        return " ".join([f"[{' '.join(steps.values())}]", *sorted(rest)])


def fit(size: Any, lanes: int) -> str:
    """How a loop of this size divides into vectors of so many elements, on which depends the code that is written for
    it."""
    if not lanes or not getattr(size, "is_number", isinstance(size, int)):
        return "scalar" if not lanes else "symbolic"
    if int(size) <= lanes:
        return "one" if int(size) == lanes else "part"
    return "tail" if int(size) % lanes else "whole"


def _variables(body: Any) -> list[Any]:
    return [*body.iter_vars, *body.reduce_vars]


def _leaves(given: Any) -> Iterator[Any]:
    """The leaves of nested tuples, lists and dicts, in order."""
    if isinstance(given, tuple | list | dict):
        for part in given.values() if isinstance(given, dict) else given:
            yield from _leaves(part)
    else:
        yield given


def _nodes(given: Any) -> Iterator[torch.fx.Node]:
    return (leaf for leaf in _leaves(given) if isinstance(leaf, torch.fx.Node))


def _promoted(values: Iterable[_Value]) -> torch.dtype | None:
    """The dtype to which these values are promoted together."""
    known = [value.dtype for value in values if value.dtype is not None]
    return functools.reduce(torch.promote_types, known) if known else None


def _name(dtype: torch.dtype | None) -> str:
    return "" if dtype is None else DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))
