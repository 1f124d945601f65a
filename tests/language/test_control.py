"""Control flow in eager: what torch's own operations compute, and what they refuse of a body."""

from __future__ import annotations

import pytest
import torch

from fuzzer.language import control
from fuzzer.language.private import fake_mode, higher_order

X = torch.arange(6.0).reshape(3, 2)


def test_in_eager_it_computes_what_torchs_own_operations_do() -> None:
    def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        return carry * 2 + x, (carry - x,)

    for reverse in (False, True):
        carry, (stacked,) = control.scan(step, torch.ones(2), X, reverse=reverse)
        theirs, (theirs_stacked,) = higher_order("scan")(step, torch.ones(2), X, reverse=reverse)
        assert torch.equal(carry, theirs)
        assert torch.equal(stacked, theirs_stacked)
    assert torch.equal(control.map(lambda x: (x.sin(),), X)[0], X.sin())
    _, doubled = control.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), X))
    assert torch.equal(doubled, X * 8)
    for sign in (1.0, -1.0):
        (found,) = control.cond(torch.tensor(sign > 0), lambda x: (x.clone(),), lambda x: (-x,), (X,))
        assert torch.equal(found, X * sign)


def test_without_values_one_branch_and_one_round_give_the_types() -> None:
    with fake_mode():
        x = torch.empty(3, 2)
        (found,) = control.cond(x[0, 0] > 0, lambda x: (x.sum(0),), lambda x: (-x.sum(0),), (x,))
        assert found.shape == (2,)
        _, found = control.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.zeros(()), x))
        assert found.shape == (3, 2)


def test_a_body_whose_result_is_an_operand_or_is_carried_on_as_another_type_is_refused() -> None:
    with pytest.raises(control.BodyRefused, match="in the memory of an operand"):
        control.map(lambda x: (x.view(2, 1),), X)
    with pytest.raises(control.BodyRefused, match="in the memory of an operand"):
        torch.func.grad(lambda x: control.map(lambda row: (row,), x)[0].sum())(X)
    with pytest.raises(control.BodyRefused, match=r"carries torch.float32\[3, 2\] on where it was torch.float32\[2\]"):
        control.scan(lambda carry, x: (carry + X, (x + 1,)), torch.ones(2), X)
    with pytest.raises(control.BodyRefused, match="no elements along the first dimension"):
        control.map(lambda x: (x + 1,), torch.ones(()))


def test_eager_runs_torchs_own_operations_where_that_is_asked_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def torchs_own(name: str) -> object:
        asked.append(name)
        return lambda *_, **__: "torch's"

    monkeypatch.setattr(control, "higher_order", torchs_own)
    x = torch.ones(2)
    calls = {
        "cond": lambda: control.cond(torch.tensor(True), lambda t: (t + 1,), lambda t: (t + 2,), (x,)),
        "map": lambda: control.map(lambda t: (t + 1,), x),
        "scan": lambda: control.scan(lambda c, t: (c + t, (c * t,)), torch.ones(()), x),
        "while_loop": lambda: control.while_loop(lambda t: bool(t.sum() < 3), lambda t: (t + 1,), (x,)),
    }
    with control.as_torch():
        assert [call() for call in calls.values()] == ["torch's"] * len(calls)
    assert asked == list(calls)
    assert all(isinstance(call(), tuple) for call in calls.values())
    assert asked == list(calls)
