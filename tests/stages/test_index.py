"""Index expressions over all iterations, held against sympy's own arithmetic, iteration by iteration."""

from __future__ import annotations

import itertools

import pytest
import sympy
import torch
from torch.utils._sympy import functions as f

from fuzzer.stages.cannot import Cannot
from fuzzer.stages.index import Expressions, row_major

X, Y, S = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("i", "j", "s"))
SIZES = (3, 5)
EXPRESSIONS = [
    7 * X + Y + 2,
    sympy.Integer(4),
    S * X + Y,
    f.FloorDiv(7 * X + Y, 3),
    f.ModularIndexing(7 * X + Y, 2, 5),
    f.PythonMod(X - Y, 3),
    f.Mod(X + Y, 3),
    f.CeilDiv(X + Y, 2),
    X**2 * Y,
    sympy.Min(X, Y),
    sympy.Max(X, Y, 2),
    sympy.Max(S, 3),
    f.Where(sympy.Lt(X, Y), X, Y),
    f.Where(sympy.And(sympy.Lt(X, 2), sympy.Ge(Y, 1)), X, 9),
    f.TruncToInt(f.IntTrueDiv(X + Y, 2)),
    f.FloorToInt(f.IntTrueDiv(X - Y, 2)),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_every_iteration_has_the_value_that_sympy_gives(expression: sympy.Expr) -> None:
    variables = row_major(SIZES, torch.device("cpu"))
    value = Expressions({X: variables[0], Y: variables[1], S: 11})(expression)
    found = torch.as_tensor(value).expand(SIZES)
    for i, j in itertools.product(*map(range, SIZES)):
        assert int(found[i, j]) == int(expression.subs({X: i, Y: j, S: 11})), (i, j)


def test_a_function_that_is_not_known_cannot_be_run() -> None:
    with pytest.raises(Cannot, match="index expression: Unheard"):
        Expressions({X: torch.arange(3)})(sympy.Function("Unheard")(X))
