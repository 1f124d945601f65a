"""Wrong passes over graphs: what each makes of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fuzzer.judgement.planted import passes

aten = torch.ops.aten
F = torch.nn.functional
X = torch.arange(1.0, 13.0).reshape(3, 4) / 3
Y = torch.arange(2.0, 14.0).reshape(3, 4).flip(0) / 7
SQUARE = X[:, :3].contiguous()


def traced(function: Callable[..., Any], *given: torch.Tensor) -> Any:
    return make_fx(function, tracing_mode="fake")(*given)


def changed(
    function: Callable[..., Any], target: Any, change: Callable[[Any], Any], *given: torch.Tensor
) -> torch.Tensor:
    """The function with every call of the overload replaced, as `in_backward` does it."""
    module = traced(function, *given)
    met = [node for node in list(module.graph.nodes) if node.target is target]
    assert met, f"{target} is not called in {module.code}"
    for node in met:
        node.replace_all_uses_with(change(node))
        module.graph.erase_node(node)
    module.recompile()
    return module(*given)


def test_a_difference_of_a_product_is_rounded_once() -> None:
    module = traced(lambda x, y, z: x * y - z, X, Y, X * Y)
    passes.contract(module.graph)
    module.recompile()
    found = module(X, Y, X * Y)
    assert found.dtype == torch.float32
    assert torch.equal(found, (X.double() * Y.double() - (X * Y).double()).float())
    assert bool((found != 0).any()), "what the rounded product would have lost"


CASES: dict[str, tuple[Callable[..., Any], Any, Callable[[Any], Any], tuple[torch.Tensor, ...], torch.Tensor]] = {
    "the operand in place of the sum": (lambda x, y: x + y, aten.add.Tensor, passes.first_operand, (X, Y), X),
    "a sum over the other dimension": (
        lambda x: x.sum([0], keepdim=True),
        aten.sum.dim_IntList,
        passes.over_columns,
        (SQUARE,),
        SQUARE.sum(1, keepdim=True).t(),
    ),
    "an exp of what came before": (
        lambda x: (x * 2).exp(),
        aten.exp.default,
        passes.of_what_came_before,
        (X,),
        X.exp(),
    ),
    "the first row alone": (
        lambda x: x.expand(2, 3, 4),
        aten.expand.default,
        passes.from_the_first_row,
        (X[None],),
        X[None].expand(2, 3, 4),
    ),
    "one element too late": (
        lambda x, y: x.slice_scatter(y, 1, 0, 2),
        aten.slice_scatter.default,
        passes.one_further,
        (X, Y[:, :2].contiguous()),
        X.slice_scatter(Y[:, :2], 1, 1, 3),
    ),
    "a transposed product": (lambda x, y: x @ y, aten.mm.default, passes.transposed, (SQUARE, X), SQUARE.t() @ X),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stands_in_for_a_call(case: str) -> None:
    function, target, change, given, expected = CASES[case]
    assert torch.equal(changed(function, target, change, *given), expected)


def test_where_an_index_repeats_the_last_one_wins() -> None:
    index = torch.tensor([[0, 0, 1, 1]])
    found = changed(
        lambda x, i, y: x.scatter_add(0, i, y),
        aten.scatter_add.default,
        passes.overwriting,
        X,
        index,
        Y[:1].contiguous(),
    )
    assert torch.equal(found, X.scatter(0, index, Y[:1]))


def test_padding_counts_where_it_did_not() -> None:
    def pooled(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [1, 1], False, True, None)

    x, gradient = X[None, None], torch.ones(1, 1, 2, 3)
    found = changed(pooled, aten.avg_pool2d_backward.default, passes.of_padding_too, x, gradient)
    assert torch.equal(found, aten.avg_pool2d_backward(gradient, x, [2, 2], [2, 2], [1, 1], False, False, None))
    assert not torch.equal(found, pooled(x, gradient))
