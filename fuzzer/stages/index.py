"""inductor's index expressions as tensors of int64: one element for each iteration of a loop nest.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0: the names of the functions in
torch.utils._sympy.functions that an index may hold, each defined by its docstring.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

from fuzzer.stages.cannot import Cannot

# The value of an expression: an int (a float, a bool) where no part depends on the loops, else a tensor.
Value = Any


def _pairwise(of_tensors: Callable[[Any, Any], Any], of_numbers: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def two(a: Value, b: Value) -> Value:
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            device = (a if isinstance(a, torch.Tensor) else b).device
            return of_tensors(torch.as_tensor(a, device=device), torch.as_tensor(b, device=device))
        return of_numbers(a, b)

    return lambda *args: functools.reduce(two, args)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    return lambda *args: functools.reduce(function, args)


def _rounded(name: str) -> Callable[..., Value]:
    def to_integer(a: Value) -> Value:
        if isinstance(a, torch.Tensor):
            return getattr(torch, name)(a).to(torch.int64)
        return int(getattr(torch, name)(torch.tensor(a, dtype=torch.float64)))

    return to_integer


def _real(a: Value) -> Value:
    return a.double() if isinstance(a, torch.Tensor) else float(a)


def _chosen(condition: Value, yes: Value, no: Value) -> Value:
    if not isinstance(condition, torch.Tensor):
        return yes if condition else no
    return torch.where(condition, yes, no)


def _power(a: Value, b: Value) -> Value:
    if isinstance(b, int) and b < 0:
        raise Cannot("index expression: a negative power")
    return a**b


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "Add": _folded(operator.add),
    "Mul": _folded(operator.mul),
    "Pow": _power,
    "PowByNatural": _power,
    "FloatPow": lambda a, b: _real(a) ** b,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "ModularIndexing": lambda a, divisor, modulus: (a // divisor) % modulus,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Identity": lambda a: a,
    "Min": _pairwise(torch.minimum, min),
    "Max": _pairwise(torch.maximum, max),
    "Where": _chosen,
    "ToFloat": _real,
    "IntTrueDiv": lambda a, b: _real(a) / _real(b),
    "FloatTrueDiv": lambda a, b: _real(a) / _real(b),
    "RoundToInt": _rounded("round"),
    "FloorToInt": _rounded("floor"),
    "CeilToInt": _rounded("ceil"),
    "TruncToInt": _rounded("trunc"),
    "TruncToFloat": lambda a: torch.trunc(a) if isinstance(a, torch.Tensor) else float(int(a)),
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    "And": _folded(operator.and_),
    "Or": _folded(operator.or_),
    "Not": lambda a: ~a if isinstance(a, torch.Tensor) else not a,
    "Abs": abs,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
}


class Expressions:
    """The values of expressions, given the values of their symbols. Raises Cannot for an unknown function."""

    def __init__(self, values: Mapping[sympy.Symbol, Value]):
        self.values: dict[Any, Value] = dict(values)

    def define(self, symbol: sympy.Symbol, value: Value) -> None:
        self.values[symbol] = value

    def __call__(self, expression: Any) -> Value:
        found = self.values.get(expression)
        if found is None:
            found = self.values[expression] = self._compute(sympy.sympify(expression))
        return found

    def _compute(self, expression: Any) -> Value:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Number:
            return float(expression)
        if expression in (sympy.true, sympy.false):
            return bool(expression)
        function = FUNCTIONS.get(expression.func.__name__)
        if function is None:
            raise Cannot(f"index expression: {expression.func.__name__}")
        return function(*map(self, expression.args))

    def integer(self, expression: Any) -> int:
        """The value of an expression without loop variables."""
        return int(self(expression))


def row_major(sizes: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """The loop variables of a nest of these sizes, each along its own dimension."""
    shapes = ([n if i == j else 1 for j in range(len(sizes))] for i, n in enumerate(sizes))
    return [torch.arange(n, device=device).reshape(shape) for n, shape in zip(sizes, shapes, strict=True)]
