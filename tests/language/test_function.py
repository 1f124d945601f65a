"""The tensors of a call of a Python function, by the names that its author knows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from fuzzer.language.function import Function, rebuilt, tree_leaves

OUTSIDE = torch.ones(2)


class Pair(NamedTuple):
    left: torch.Tensor
    right: Any


@dataclass
class Batch:
    ids: torch.Tensor
    rest: Any = None


def test_inputs_have_the_names_of_the_functions_own_parameters() -> None:
    def function(x: Any, *more: Any, batch: Any = None, **rest: Any) -> None: ...

    one = torch.ones(1)
    call = Function(function, (one, one, [one]), {"batch": {"ids": one, "n": 3}, "last": Pair(one, Batch(one))})
    assert list(call.inputs) == ["x", "more[0]", "more[1][0]", "batch['ids']", "last.left", "last.right.ids"]


def test_inputs_of_a_function_that_shows_no_parameters_are_numbered() -> None:
    assert list(Function(torch.add, (torch.ones(1), torch.ones(1)), {"alpha": 2}).inputs) == ["x0", "x1"]


def test_parameters_and_buffers_have_the_names_that_their_module_gives_them() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    own = Function(module, (torch.ones(2, 2),))
    assert {"0.weight", "1.bias", "1.running_mean"} <= own.state().keys()
    assert (own.role("input"), own.role("0.weight"), own.role("1.running_var")) == ("leaf", "parameter", "buffer")
    closed = Function(lambda x: module(x) + OUTSIDE, (torch.ones(2, 2),))
    assert {"module.0.weight", "OUTSIDE"} <= closed.state().keys()
    assert closed.role("OUTSIDE") == "tensor"
    assert "0.weight" in Function(module.forward, (torch.ones(2, 2),)).state()
    assert "net.0.weight" in Function(functools.partial(lambda net, x: net(x), net=module), (OUTSIDE,)).state()
    assert "net.0.weight" in Function(lambda net, x: net(x), (module, OUTSIDE)).state()


def test_a_structure_is_rebuilt_with_other_leaves_and_is_itself_with_the_same() -> None:
    tree = {"a": [1, (2, Pair(OUTSIDE, 3))], "b": Batch(OUTSIDE, {"c": 4})}
    doubled = rebuilt(tree, lambda leaf: leaf * 2)
    assert [leaf if isinstance(leaf, int) else leaf.tolist() for _, leaf in tree_leaves(doubled)] == [
        2, 4, [2.0, 2.0], 6, [2.0, 2.0], 8,
    ]  # fmt: skip
    assert isinstance(doubled["a"][1][1], Pair)
    assert isinstance(doubled["b"], Batch)
    assert rebuilt(tree, lambda leaf: leaf) is tree


def test_tensors_that_an_object_holds_are_results() -> None:
    normal = torch.distributions.Normal(OUTSIDE, OUTSIDE)
    assert [name for name, _ in tree_leaves(normal, "output", objects=True)] == ["output.loc", "output.scale"]
    assert [name for name, _ in tree_leaves(normal, "output")] == ["output"]
