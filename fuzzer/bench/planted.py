"""PLANTED: faults as conditions on a program, to measure the minimizer with.

Each says what a real fault might need: one or two operations, with a shape, a dtype, a layout, a value, a setting or a
route. `corpus/planted/NAME.prog` is a big random program that has it. The conditions are exact, so it is known what the
minimizer must leave; `tests/quality/test_shrink.py` holds that text for each.

`examine` makes such a fault real inside a worker: where the condition holds, the compiled gradients are doubled (one of
FAULTS), and the oracles have to find that out. The compile is a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fuzzer.execution import worker
from fuzzer.execution.messages import Report
from fuzzer.execution.worker import Task
from fuzzer.infer import IllTyped, infer
from fuzzer.interpret import record
from fuzzer.ops import OPS
from fuzzer.program import FLOATS, Node, Program, TensorType, contiguous
from fuzzer.text import parse

Types = Mapping[str, TensorType]
Fault = Callable[[Program, Types], bool]
PLANTED: dict[str, Fault] = {}


def planted(fault: Fault) -> Fault:
    PLANTED[fault.__name__] = fault
    return fault


def examine(task: Task, text: str) -> Report:
    """Like `worker.examine`, with the fault that `task.canary` names planted. Raises ParseError."""
    program = parse(text)
    try:
        there = PLANTED[task.canary](program, infer(program))
    except IllTyped as error:
        return Report(text, rejected=str(error))
    return worker.examine(replace(task, canary="gradients_doubled" if there else ""), text)


# ---------------------------------------------------------------- what conditions are made of


def nodes(program: Program, *ops: str) -> Iterator[Node]:
    """The nodes of these ops through which a gradient flows to a leaf, in order."""
    tracked = {leaf.name for leaf in program.leaves if leaf.requires_grad}
    for node in program.nodes:
        if tracked.intersection(node.uses):
            tracked.update(node.outs)
            if node.op in ops:
                yield node


def attribute(node: Node, name: str, default: Any = None) -> Any:
    return dict(node.attrs).get(name, default)


def operand(node: Node, types: Types, place: int = 0) -> TensorType:
    return types[node.uses[place]]


def result(node: Node, types: Types) -> TensorType:
    return types[node.outs[0]]


def readers(program: Program, name: str) -> list[Node]:
    return [node for node in program.nodes if name in node.uses]


def pairs(program: Program, first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[Node, Node]]:
    """(a node of the first ops, a node of the second that reads its first result)."""
    for one in nodes(program, *first):
        for two in readers(program, one.outs[0]):
            if two.op in second:
                yield one, two


def family(name: str) -> tuple[str, ...]:
    """The differentiable ops of a family."""
    return tuple(spec.name for spec in OPS.values() if spec.family == name and spec.differentiable)


DIFFERENTIABLE = tuple(spec.name for spec in OPS.values() if spec.differentiable)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot", "logaddexp")
REDUCTION = ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "prod", "vector_norm")


def rows_first(t: TensorType) -> bool:
    """Whether strides fall from left to right, sizes of 1 left out."""
    strides = [step for size, step in zip(t.shape, t.stride, strict=True) if size > 1]
    return strides == sorted(strides, reverse=True)


# ---------------------------------------------------------------- one operation


@planted
def relu_anywhere(p: Program, types: Types) -> bool:
    """relu, whatever its operand."""
    return any(nodes(p, "relu"))


@planted
def exp_wider_than_a_vector(p: Program, types: Types) -> bool:
    """A loop's tail: 16 floats fill an AVX-512 register, the 17th is the tail's."""
    return any(operand(n, types).rank and operand(n, types).shape[-1] >= 17 for n in nodes(p, "exp"))


@planted
def sigmoid_in_half_precision(p: Program, types: Types) -> bool:
    """A lost cast: only bfloat16 and float16 show it."""
    return any(operand(n, types).dtype in ("bf16", "f16") for n in nodes(p, "sigmoid"))


@planted
def add_of_permuted_operand(p: Program, types: Types) -> bool:
    """A wrong stride: an operand whose dimensions are not in row-major order."""
    return any(not rows_first(types[name]) for n in nodes(p, "add") for name in n.uses)


@planted
def mul_broadcast_over_rows(p: Program, types: Types) -> bool:
    """A wrong broadcast reduction in the backward: one operand lacks a dimension of the other."""
    return any(
        operand(n, types).rank != operand(n, types, 1).rank and min(operand(n, types, i).rank for i in (0, 1)) > 0
        for n in nodes(p, "mul")
    )


@planted
def sub_of_size_one_dim(p: Program, types: Types) -> bool:
    """A wrong index where one operand has size 1 and the other has not."""
    for n in nodes(p, "sub"):
        a, b = operand(n, types).shape, operand(n, types, 1).shape
        if any(1 in pair and max(pair) > 1 for pair in zip(reversed(a), reversed(b), strict=False)):
            return True
    return False


@planted
def matmul_with_a_long_inner_dim(p: Program, types: Types) -> bool:
    """A dropped tail of a blocked product."""
    return any(operand(n, types).shape[-1] >= 3 and operand(n, types).rank == 2 for n in nodes(p, "matmul", "mm"))


@planted
def softmax_over_an_outer_dim(p: Program, types: Types) -> bool:
    """A reduction over a dimension that is not the innermost."""
    for n in nodes(p, "softmax", "log_softmax"):
        t = operand(n, types)
        if t.rank > 1 and int(attribute(n, "dim")) % t.rank != t.rank - 1 and t.shape[int(attribute(n, "dim"))] > 1:
            return True
    return False


@planted
def cat_of_unequal_parts(p: Program, types: Types) -> bool:
    """A wrong offset of a later part."""
    return any(len({types[name].shape for name in n.uses if types[name].numel}) > 1 for n in nodes(p, "cat"))


@planted
def cumsum_in_reverse(p: Program, types: Types) -> bool:
    """The backward of a scan flips it: three elements tell a reversal from a swap."""
    return any(
        operand(n, types).rank and operand(n, types).shape[int(attribute(n, "dim"))] >= 3 for n in nodes(p, "cumsum")
    )


@planted
def where_with_a_broadcast_condition(p: Program, types: Types) -> bool:
    return any(types[n.uses[0]].numel < result(n, types).numel for n in nodes(p, "where"))


@planted
def layer_norm_without_weight(p: Program, types: Types) -> bool:
    return any(len(n.uses) == 1 for n in nodes(p, "layer_norm"))


@planted
def padding_on_the_left_only(p: Program, types: Types) -> bool:
    """A pad that starts before the first element of the innermost dimension."""
    return any(tuple(attribute(n, "pad"))[:2] in ((1, 0), (2, 0), (3, 0)) for n in nodes(p, "pad"))


@planted
def pooling_beyond_the_edge(p: Program, types: Types) -> bool:
    """ceil_mode: the last window hangs over the edge."""
    return any(attribute(n, "ceil_mode") is True for n in nodes(p, "avg_pool1d", "avg_pool2d", "avg_pool3d"))


@planted
def convolution_with_a_stride(p: Program, types: Types) -> bool:
    for n in nodes(p, "conv1d", "conv2d"):
        stride = attribute(n, "stride", 1)
        if max(stride if isinstance(stride, tuple) else (stride,)) > 1:
            return True
    return False


@planted
def gather_of_a_repeated_index(p: Program, types: Types) -> bool:
    """An accumulating scatter in the backward: by the pigeonhole principle some element is read twice."""
    for n in nodes(p, "gather", "index_select"):
        t, index = types[n.uses[0]], types[n.uses[1]]
        axis = int(attribute(n, "dim", 0))
        if t.rank and index.rank and index.shape[axis if n.op == "gather" else 0] > t.shape[axis]:
            return True
    return False


@planted
def upsampling_by_a_fraction(p: Program, types: Types) -> bool:
    """A scale factor that is no integer."""
    for n in nodes(p, "interpolate_nearest", "interpolate_linear", "interpolate_bilinear"):
        factor = attribute(n, "scale_factor")
        if any(not float(f).is_integer() for f in (factor if isinstance(factor, tuple) else (factor,)) if f):
            return True
    return False


@planted
def prod_through_a_zero(p: Program, types: Types) -> bool:
    """The gradient of a product at a zero cannot divide by it."""
    at_zero = {leaf.name for leaf in p.leaves if leaf.values.name in ("zeros", "sparse", "ties", "integers")}
    return any(n.uses[0] in at_zero and operand(n, types).numel > 1 for n in nodes(p, "prod", "prod_all"))


# ---------------------------------------------------------------- two operations


@planted
def slice_scatter_under_sum(p: Program, types: Types) -> bool:
    """pytorch #180164: the written part is smaller than the tensor, and sum broadcasts the cotangent."""
    for written, _ in pairs(p, ("slice_scatter",), ("sum",)):
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


@planted
def value_meets_its_own_reduction(p: Program, types: Types) -> bool:
    """A diamond: two cotangents accumulate, one of them broadcast."""
    return any(
        s.uses[0] in m.uses and result(s, types).numel < operand(s, types).numel for s, m in pairs(p, REDUCTION, BINARY)
    )


@planted
def value_read_twice(p: Program, types: Types) -> bool:
    """A missing accumulation: two different operations with a gradient read one computed value."""
    every = list(nodes(p, *DIFFERENTIABLE))
    return any(len({r.op for r in every if n.outs[0] in r.uses}) > 1 for n in every)


@planted
def transposed_into_a_binary_op(p: Program, types: Types) -> bool:
    return any(not rows_first(result(one, types)) for one, _ in pairs(p, ("transpose", "t", "permute"), BINARY))


@planted
def reduction_of_a_window(p: Program, types: Types) -> bool:
    """A view into a tensor that leaves its start out, reduced: the backward writes zeros before a broadcast."""
    return any(
        one.attrs and int(attribute(one, "start", 0) or 0) > 0 for one, _ in pairs(p, ("narrow", "slice"), REDUCTION)
    )


@planted
def expanded_into_a_binary_op(p: Program, types: Types) -> bool:
    return any(0 in result(one, types).stride for one, _ in pairs(p, ("expand",), BINARY))


@planted
def activation_of_a_strided_value(p: Program, types: Types) -> bool:
    """A computed value that is not dense."""
    made = {name for node in p.nodes for name in node.outs}
    return any(
        n.uses[0] in made and operand(n, types).stride != contiguous(operand(n, types).shape)
        for n in nodes(p, *family("activation"))
    )


@planted
def two_reductions_with_a_node_between(p: Program, types: Types) -> bool:
    """Three nodes: a fusion of two loop nests over what stands between them."""
    return any(
        first.outs[0] in middle.uses and operand(first, types).numel > result(first, types).numel > 1
        for middle, last in pairs(p, (*BINARY, *family("activation"), *family("pointwise")), REDUCTION)
        for first in nodes(p, *REDUCTION)
    )


@planted
def division_by_a_small_value(p: Program, types: Types) -> bool:
    """A fault of values: no operation of the program says that they are small."""
    divisions = list(nodes(p, "div", "reciprocal", "rsqrt", "log"))
    held = record(p) if divisions else {}
    numbers = (x for n in divisions if n.uses[-1] in held for x in held[n.uses[-1]].args)
    return any(isinstance(x, float) and 0 < abs(x) < 0.125 for x in numbers)


# ---------------------------------------------------------------- what is no operation


@planted
def add_under_a_setting(p: Program, types: Types) -> bool:
    """A fault of one setting."""
    return any(nodes(p, "add")) and any(key == "inductor.max_fusion_size" for key, _ in p.settings)


@planted
def broadcast_cotangent_on_vjp(p: Program, types: Types) -> bool:
    """A cotangent of stride 0, on the route where its layout arrives."""
    strides = [(o.cotangent.stride, o.cotangent.shape) for o in p.outputs if o.cotangent is not None]
    return p.route.name == "vjp" and any(
        step == 0 and size > 1 for stride, shape in strides for size, step in zip(shape, stride, strict=True)
    )


@planted
def leaf_with_gaps(p: Program, types: Types) -> bool:
    """A leaf whose storage has elements between its own."""
    return any(
        leaf.requires_grad and leaf.type.numel > 1 and 0 not in leaf.stride and min(leaf.stride) > 1
        for leaf in p.leaves
    )


@planted
def two_gradients_of_two_outputs(p: Program, types: Types) -> bool:
    """Two outputs of different shapes that nodes computed: their backwards meet in one graph."""
    computed = {name for node in nodes(p, *DIFFERENTIABLE) for name in node.outs}
    return len({o.cotangent.shape for o in p.outputs if o.cotangent is not None and o.value in computed}) > 1


@planted
def mixed_precision_product(p: Program, types: Types) -> bool:
    """Operands of two float dtypes: promotion, and a gradient that has to be cast back."""
    return any(len({types[name].dtype for name in n.uses}.intersection(FLOATS)) > 1 for n in nodes(p, "mul", "add"))
