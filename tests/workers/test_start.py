"""What sympy answered before."""

from __future__ import annotations

import pytest
import sympy

from fuzzer.workers.start import remember_simplified


def test_what_was_simplified_is_not_simplified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[sympy.Expr] = []

    def simplify(expression: sympy.Expr) -> sympy.Expr:
        asked.append(expression)
        return sympy.expand(expression)

    monkeypatch.setattr(sympy, "simplify", simplify)
    remember_simplified()
    remember_simplified()  # the second time nothing is put before it
    x, whole = sympy.Symbol("x"), sympy.Symbol("x", integer=True)
    assert sympy.simplify(2 * (x + 1)) == sympy.simplify(2 * (x + 1)) == 2 * x + 2
    assert sympy.simplify(2 * (whole + 1)) == 2 * whole + 2 != 2 * x + 2  # another symbol, if of the same name
    assert [type(sympy.simplify(one)) for one in (sympy.S.One, sympy.Float(1.0))] == [type(sympy.S.One), sympy.Float]
    assert asked == [2 * (x + 1), 2 * (whole + 1), sympy.S.One, sympy.Float(1.0)]
