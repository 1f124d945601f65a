"""PLANTED: faults as conditions on a program, to measure the minimizer with.

Each says what a real fault might need: one or two operations, with a shape, a dtype, a layout, a value, a setting or a
route. `corpus/planted/NAME.prog` is a big random program that has it. The conditions are exact, so it is known what the
minimizer must leave; `tests/minimizer/test_shrink.py` holds that text for each.

`examine_planted` makes such a fault real inside a worker: where the condition holds, the compiled gradients are doubled
(one of FAULTS), and the oracles have to find that out. The compile is a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.interpret import value_recipes
from fuzzer.language.ops import OPS
from fuzzer.language.program import FLOATS, Node, Program, TensorType, contiguous
from fuzzer.language.text import parse
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task

_Types = Mapping[str, TensorType]
_Fault = Callable[[Program, _Types], bool]
PLANTED: dict[str, _Fault] = {}


def _planted(fault: _Fault) -> _Fault:
    PLANTED[fault.__name__] = fault
    return fault


def examine_planted(task: Task, text: str) -> Report:
    """Like `examine`, with the fault that `task.canary` names planted. Raises ParseError."""
    program = parse(text)
    try:
        there = PLANTED[task.canary](program, infer(program))
    except IllTyped as error:
        return Report(text, rejected=str(error))
    return examine(replace(task, canary="gradients_doubled" if there else ""), text)


# ---------------------------------------------------------------- what conditions are made of


def _nodes(program: Program, *ops: str) -> Iterator[Node]:
    """The nodes of these ops through which a gradient flows to a leaf, in order."""
    tracked = {leaf.name for leaf in program.leaves if leaf.requires_grad}
    for node in program.nodes:
        if tracked.intersection(node.uses):
            tracked.update(node.outs)
            if node.op in ops:
                yield node


def _attribute(node: Node, name: str, default: Any = None) -> Any:
    return dict(node.attrs).get(name, default)


def _operand(node: Node, types: _Types, place: int = 0) -> TensorType:
    return types[node.uses[place]]


def _result(node: Node, types: _Types) -> TensorType:
    return types[node.outs[0]]


def _readers(program: Program, name: str) -> list[Node]:
    return [node for node in program.nodes if name in node.uses]


def _pairs(program: Program, first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[Node, Node]]:
    """(a node of the first ops, a node of the second that reads its first result)."""
    for one in _nodes(program, *first):
        for two in _readers(program, one.outs[0]):
            if two.op in second:
                yield one, two


def _family(name: str) -> tuple[str, ...]:
    """The differentiable ops of a family."""
    return tuple(spec.name for spec in OPS.values() if spec.family == name and spec.differentiable)


_DIFFERENTIABLE = tuple(spec.name for spec in OPS.values() if spec.differentiable)
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot", "logaddexp")
_REDUCTION = ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "prod", "vector_norm")


def _rows_first(t: TensorType) -> bool:
    """Whether strides fall from left to right, sizes of 1 left out."""
    strides = [step for size, step in zip(t.shape, t.stride, strict=True) if size > 1]
    return strides == sorted(strides, reverse=True)


# ---------------------------------------------------------------- one operation


@_planted
def relu_anywhere(p: Program, types: _Types) -> bool:
    """relu, whatever its operand."""
    return any(_nodes(p, "relu"))


@_planted
def exp_wider_than_a_vector(p: Program, types: _Types) -> bool:
    """A loop's tail: 16 floats fill an AVX-512 register, the 17th is the tail's."""
    return any(_operand(n, types).rank and _operand(n, types).shape[-1] >= 17 for n in _nodes(p, "exp"))


@_planted
def sigmoid_in_half_precision(p: Program, types: _Types) -> bool:
    """A lost cast: only bfloat16 and float16 show it."""
    return any(_operand(n, types).dtype in ("bf16", "f16") for n in _nodes(p, "sigmoid"))


@_planted
def add_of_permuted_operand(p: Program, types: _Types) -> bool:
    """A wrong stride: an operand whose dimensions are not in row-major order."""
    return any(not _rows_first(types[name]) for n in _nodes(p, "add") for name in n.uses)


@_planted
def mul_broadcast_over_rows(p: Program, types: _Types) -> bool:
    """A wrong broadcast reduction in the backward: one operand lacks a dimension of the other."""
    return any(
        _operand(n, types).rank != _operand(n, types, 1).rank and min(_operand(n, types, i).rank for i in (0, 1)) > 0
        for n in _nodes(p, "mul")
    )


@_planted
def sub_of_size_one_dim(p: Program, types: _Types) -> bool:
    """A wrong index where one operand has size 1 and the other has not."""
    for n in _nodes(p, "sub"):
        a, b = _operand(n, types).shape, _operand(n, types, 1).shape
        if any(1 in pair and max(pair) > 1 for pair in zip(reversed(a), reversed(b), strict=False)):
            return True
    return False


@_planted
def matmul_with_a_long_inner_dim(p: Program, types: _Types) -> bool:
    """A dropped tail of a blocked product."""
    return any(_operand(n, types).shape[-1] >= 3 and _operand(n, types).rank == 2 for n in _nodes(p, "matmul", "mm"))


@_planted
def softmax_over_an_outer_dim(p: Program, types: _Types) -> bool:
    """A reduction over a dimension that is not the innermost."""
    for n in _nodes(p, "softmax", "log_softmax"):
        t = _operand(n, types)
        if t.rank > 1 and int(_attribute(n, "dim")) % t.rank != t.rank - 1 and t.shape[int(_attribute(n, "dim"))] > 1:
            return True
    return False


@_planted
def cat_of_unequal_parts(p: Program, types: _Types) -> bool:
    """A wrong offset of a later part."""
    return any(len({types[name].shape for name in n.uses if types[name].numel}) > 1 for n in _nodes(p, "cat"))


@_planted
def cumsum_in_reverse(p: Program, types: _Types) -> bool:
    """The backward of a scan flips it: three elements tell a reversal from a swap."""
    return any(
        _operand(n, types).rank and _operand(n, types).shape[int(_attribute(n, "dim"))] >= 3
        for n in _nodes(p, "cumsum")
    )


@_planted
def where_with_a_broadcast_condition(p: Program, types: _Types) -> bool:
    return any(types[n.uses[0]].numel < _result(n, types).numel for n in _nodes(p, "where"))


@_planted
def layer_norm_without_weight(p: Program, types: _Types) -> bool:
    return any(len(n.uses) == 1 for n in _nodes(p, "layer_norm"))


@_planted
def padding_on_the_left_only(p: Program, types: _Types) -> bool:
    """A pad that starts before the first element of the innermost dimension."""
    return any(tuple(_attribute(n, "pad"))[:2] in ((1, 0), (2, 0), (3, 0)) for n in _nodes(p, "pad"))


@_planted
def pooling_beyond_the_edge(p: Program, types: _Types) -> bool:
    """ceil_mode: the last window hangs over the edge."""
    return any(_attribute(n, "ceil_mode") is True for n in _nodes(p, "avg_pool1d", "avg_pool2d", "avg_pool3d"))


@_planted
def convolution_with_a_stride(p: Program, types: _Types) -> bool:
    for n in _nodes(p, "conv1d", "conv2d"):
        stride = _attribute(n, "stride", 1)
        if max(stride if isinstance(stride, tuple) else (stride,)) > 1:
            return True
    return False


@_planted
def gather_of_a_repeated_index(p: Program, types: _Types) -> bool:
    """An accumulating scatter in the backward: by the pigeonhole principle some element is read twice."""
    for n in _nodes(p, "gather", "index_select"):
        t, index = types[n.uses[0]], types[n.uses[1]]
        axis = int(_attribute(n, "dim", 0))
        if t.rank and index.rank and index.shape[axis if n.op == "gather" else 0] > t.shape[axis]:
            return True
    return False


@_planted
def upsampling_by_a_fraction(p: Program, types: _Types) -> bool:
    """A scale factor that is no integer."""
    for n in _nodes(p, "interpolate_nearest", "interpolate_linear", "interpolate_bilinear"):
        factor = _attribute(n, "scale_factor")
        if any(not float(f).is_integer() for f in (factor if isinstance(factor, tuple) else (factor,)) if f):
            return True
    return False


@_planted
def prod_through_a_zero(p: Program, types: _Types) -> bool:
    """The gradient of a product at a zero cannot divide by it."""
    at_zero = {leaf.name for leaf in p.leaves if leaf.values.name in ("zeros", "sparse", "ties", "integers")}
    return any(n.uses[0] in at_zero and _operand(n, types).numel > 1 for n in _nodes(p, "prod", "prod_all"))


# ---------------------------------------------------------------- two operations


@_planted
def slice_scatter_under_sum(p: Program, types: _Types) -> bool:
    """pytorch #180164: the written part is smaller than the tensor, and sum broadcasts the cotangent."""
    for written, _ in _pairs(p, ("slice_scatter",), ("sum",)):
        x, source = (types[name] for name in written.uses)
        if 0 < source.numel < x.numel and written.uses[0] in _tracked(p):
            return True
    return False


def _tracked(p: Program) -> set[str]:
    found = {leaf.name for leaf in p.leaves if leaf.requires_grad}
    for node in p.nodes:
        if found.intersection(node.uses):
            found.update(node.outs)
    return found


@_planted
def value_meets_its_own_reduction(p: Program, types: _Types) -> bool:
    """A diamond: two cotangents accumulate, one of them broadcast."""
    return any(
        s.uses[0] in m.uses and _result(s, types).numel < _operand(s, types).numel
        for s, m in _pairs(p, _REDUCTION, _BINARY)
    )


@_planted
def value_read_twice(p: Program, types: _Types) -> bool:
    """A missing accumulation: two different operations with a gradient read one computed value."""
    every = list(_nodes(p, *_DIFFERENTIABLE))
    return any(len({r.op for r in every if n.outs[0] in r.uses}) > 1 for n in every)


@_planted
def transposed_into_a_binary_op(p: Program, types: _Types) -> bool:
    return any(not _rows_first(_result(one, types)) for one, _ in _pairs(p, ("transpose", "t", "permute"), _BINARY))


@_planted
def reduction_of_a_window(p: Program, types: _Types) -> bool:
    """A view into a tensor that leaves its start out, reduced: the backward writes zeros before a broadcast."""
    return any(
        one.attrs and int(_attribute(one, "start", 0) or 0) > 0 for one, _ in _pairs(p, ("narrow", "slice"), _REDUCTION)
    )


@_planted
def expanded_into_a_binary_op(p: Program, types: _Types) -> bool:
    return any(0 in _result(one, types).stride for one, _ in _pairs(p, ("expand",), _BINARY))


@_planted
def activation_of_a_strided_value(p: Program, types: _Types) -> bool:
    """A computed value that is not dense."""
    made = {name for node in p.nodes for name in node.outs}
    return any(
        n.uses[0] in made and _operand(n, types).stride != contiguous(_operand(n, types).shape)
        for n in _nodes(p, *_family("activation"))
    )


@_planted
def two_reductions_with_a_node_between(p: Program, types: _Types) -> bool:
    """Three nodes: a fusion of two loop nests over what stands between them."""
    return any(
        first.outs[0] in middle.uses and _operand(first, types).numel > _result(first, types).numel > 1
        for middle, last in _pairs(p, (*_BINARY, *_family("activation"), *_family("pointwise")), _REDUCTION)
        for first in _nodes(p, *_REDUCTION)
    )


@_planted
def division_by_a_small_value(p: Program, types: _Types) -> bool:
    """A fault of values: no operation of the program says that they are small."""
    divisions = list(_nodes(p, "div", "reciprocal", "rsqrt", "log"))
    held = value_recipes(p) if divisions else {}
    numbers = (x for n in divisions if n.uses[-1] in held for x in held[n.uses[-1]].args)
    return any(isinstance(x, float) and 0 < abs(x) < 0.125 for x in numbers)


# ---------------------------------------------------------------- what is no operation


@_planted
def add_under_a_setting(p: Program, types: _Types) -> bool:
    """A fault of one setting."""
    return any(_nodes(p, "add")) and any(key == "inductor.max_fusion_size" for key, _ in p.settings)


@_planted
def broadcast_cotangent_on_vjp(p: Program, types: _Types) -> bool:
    """A cotangent of stride 0, on the route where its layout arrives."""
    strides = [(o.cotangent.stride, o.cotangent.shape) for o in p.outputs if o.cotangent is not None]
    return p.route.name == "vjp" and any(
        step == 0 and size > 1 for stride, shape in strides for size, step in zip(shape, stride, strict=True)
    )


@_planted
def leaf_with_gaps(p: Program, types: _Types) -> bool:
    """A leaf whose storage has elements between its own."""
    return any(
        leaf.requires_grad and leaf.type.numel > 1 and 0 not in leaf.stride and min(leaf.stride) > 1
        for leaf in p.leaves
    )


@_planted
def two_gradients_of_two_outputs(p: Program, types: _Types) -> bool:
    """Two outputs of different shapes that nodes computed: their backwards meet in one graph."""
    computed = {name for node in _nodes(p, *_DIFFERENTIABLE) for name in node.outs}
    return len({o.cotangent.shape for o in p.outputs if o.cotangent is not None and o.value in computed}) > 1


@_planted
def mixed_precision_product(p: Program, types: _Types) -> bool:
    """Operands of two float dtypes: promotion, and a gradient that has to be cast back."""
    return any(len({types[name].dtype for name in n.uses}.intersection(FLOATS)) > 1 for n in _nodes(p, "mul", "add"))
