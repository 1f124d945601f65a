"""Wrong passes over compiled graphs, most over those of the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuzzer.judgement.planted.fault import Fault
from fuzzer.language.private import inner_graphs

aten = torch.ops.aten


def insert_call(node: Any, target: Any, *args: Any) -> Any:
    """Insert a new call in front of a node."""
    with node.graph.inserting_before(node):
        call = node.graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda arg: arg.meta["val"])
    with call.all_input_nodes[0].meta["val"].fake_mode:
        call.meta["val"] = target(*values)
    return call


_CONVERT = torch.ops.prims.convert_element_type.default


def contract(graph: Any) -> None:
    """Compute a * b - c without rounding the product, as a fused multiply-add does."""
    for node in list(graph.nodes):
        if node.target is not aten.sub.Tensor or node.args[0].target is not aten.mul.Tensor:
            continue
        product, other = node.args
        a, b, c = (insert_call(node, _CONVERT, t, torch.float64) for t in (*product.args, other))
        fused = insert_call(node, aten.sub.Tensor, insert_call(node, aten.mul.Tensor, a, b), c)
        node.replace_all_uses_with(insert_call(node, _CONVERT, fused, node.meta["val"].dtype))
        graph.erase_node(node)


def replace_in_backward(target: Any, change: Callable[[Any], Any]) -> Fault:
    """In the compiled backward graph, replace every call of an overload by the result of change(call)."""

    def graphs(module: Any, backward: bool) -> bool:
        for node in list(module.graph.nodes) if backward else ():
            if node.target is target:
                node.replace_all_uses_with(change(node))
                module.graph.erase_node(node)
        return True

    return Fault(lambda: inner_graphs(graphs))


def first_operand(node: Any) -> Any:
    """The call's first operand in place of its result."""
    return node.args[0]


def over_columns(node: Any) -> Any:
    """A sum over dimension 1 instead of 0, in the required shape."""
    total = insert_call(node, node.target, node.args[0], [1], True)
    return insert_call(node, aten.permute.default, total, [1, 0])


def of_what_came_before(node: Any) -> Any:
    """The call on its operand's operand: a recomputation that differs from the forward."""
    return insert_call(node, node.target, node.args[0].args[0])


def from_the_first_row(node: Any) -> Any:
    """The first row, expanded in place of all rows."""
    return insert_call(node, node.target, insert_call(node, aten.slice.Tensor, node.args[0], 0, 0, 1), *node.args[1:])


def overwriting(node: Any) -> Any:
    """Where an index repeats, the last value overwrites the others instead of being added."""
    return insert_call(node, aten.scatter.src, *node.args)


def one_further(node: Any) -> Any:
    """A window of the last dimension, written one element too far."""
    x, source, dim, start, end = node.args[:5]
    return insert_call(node, node.target, x, source, dim, start + 1, end + 1)


def transposed(node: Any) -> Any:
    """A product whose first operand is transposed back to its form in the forward."""
    return insert_call(node, node.target, insert_call(node, aten.permute.default, node.args[0], [1, 0]), node.args[1])


def of_padding_too(node: Any) -> Any:
    """An average's divisor counts padding where it should not, or the other way round."""
    *most, count_padding, divisor = node.args
    return insert_call(node, node.target, *most, not count_padding, divisor)
