"""PARTS: planted faults in every part of inductor, each with the stages that must hear it.

A fault names the first stage that must detect it. Later stages must detect it too; at earlier ones it cannot act.
Without the fault, its program agrees at every stage. `benches.hearing` runs the stages.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benches import distortions as wrong
from benches.insides import as_hyperbolic_cosine, in_method, in_own_pass, in_partition, unmasked
from benches.mechanisms import Plant, in_formula, in_lowering, recorded
from benches.miswritten import CODE
from benches.stages import FULL
from fuzzer.judgement.planted.passes import insert_call
from fuzzer.stages import STAGES

_aten = torch.ops.aten
_CORPUS = Path(__file__).parents[2] / "corpus" / "rare"
_SCHEDULER, _WRAPPER = "torch._inductor.scheduler", "torch._inductor.codegen.wrapper"
_TRITON = "torch._inductor.codegen.triton"
LEVELS = (*STAGES, FULL)


@dataclass(frozen=True)
class Row:
    """A fault: the part of inductor that it is in, the first of LEVELS that hears it, and a program's text.

    device  whose code it is in; "" where that does not matter.
    """

    part: str
    heard_from: str
    plant: Plant
    program: str
    device: str = ""

    def heard_at(self, level: str) -> bool:
        """Whether a stage, or the full compile, must hear it."""
        return LEVELS.index(level) >= LEVELS.index(self.heard_from)


def _program(body: str) -> str:
    return 'program(1)\nroute("autograd")\n' + "\n".join(line.strip() for line in body.strip().splitlines()) + "\n"


_DIFFERENCE = _program("""
    x0 = leaf(f32[3, 5], seed=1)
    x1 = leaf(f32[3, 5], seed=2)
    v0 = sub(x0, x1)
    v1 = exp(v0)
    backward(v1, cotangent(f32[3, 5], seed=3))""")
_PRODUCT = _program("""
    x0 = leaf(f32[3, 5], seed=1)
    x1 = leaf(f32[3, 5], seed=2)
    v0 = sin(x0)
    v1 = mul(v0, x1)
    backward(v1, cotangent(f32[3, 5], seed=3))""")
_TANH = _program("""
    x0 = leaf(f32[4, 5], seed=1)
    v0 = tanh(x0)
    backward(v0, cotangent(f32[4, 5], seed=2))""")
_SIGMOID = _TANH.replace("tanh", "sigmoid")
# what a matrix product reads has to be in memory, where another kernel then reads it backwards
_REVERSED = _program("""
    x0 = leaf(f32[24], seed=1)
    x1 = leaf(f32[4, 3], requires_grad=False, seed=2)
    v0 = sin(x0)
    v1 = reshape(v0, shape=(6, 4))
    v2 = mm(v1, x1)
    v3 = flip(v0, dims=(0,))
    v4 = mul(v3, x0)
    backward(v2, cotangent(f32[6, 3], seed=3))
    backward(v4, cotangent(f32[24], seed=4))""")
_ROW_SUMS = _program("""
    x0 = leaf(f32[6, 13], seed=1)
    v0 = sum(x0, dim=(1,), keepdim=True)
    v1 = flip(v0, dims=(0,))
    v2 = mul(v1, x0)
    backward(v2, cotangent(f32[6, 13], seed=2))""")
_PART = _program("""
    x0 = leaf(f32[5, 4], seed=1)
    x1 = leaf(f32[4, 4], seed=2)
    v0 = narrow(x0, dim=0, start=1, length=4)
    v1 = mm(v0, x1)
    backward(v1, cotangent(f32[4, 4], seed=3))""")
_WRITTEN = _program("""
    x0 = leaf(f32[24], requires_grad=False, seed=1)
    x1 = leaf(f32[24], seed=2)
    x2 = leaf(f32[24], requires_grad=False, seed=3)
    v0 = flip(x0, dims=(0,))
    v1 = mul(v0, x2)
    v2 = add(v1, x1)
    v3 = mul_(x0, x2)
    backward(v2, cotangent(f32[24], seed=4))""")
_CHOSEN = _program("""
    x0 = leaf(f32[5, 4], seed=1)
    x1 = leaf(i64[3], values=between(-5, -1), seed=2)
    v0 = index(x0, [x1])
    v1 = exp(v0)
    backward(v1, cotangent(f32[3, 4], seed=3))""")
_ROWS = _program("""
    x0 = leaf(f32[5, 13], seed=1)
    v0 = sinh(x0)
    v1 = exp(v0)
    v2 = sum(v1, dim=(1,))
    backward(v2, cotangent(f32[5], seed=2))""")


# ---------------------------------------------------------------- what they do


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _like(a: Any, b: Any) -> bool:
    """Whether two nodes of a graph have values of one type."""
    return all("val" in n.meta for n in (a, b)) and a.meta["val"].shape == b.meta["val"].shape


def exchange_saved(forward: Any, backward: Any, outputs: int) -> bool:
    """The first two values of one type that are saved for the backward, each in the other's place."""
    end = next(node for node in forward.graph.nodes if node.op == "output")
    given = list(end.args[0])
    saved = [place for place in range(outputs, len(given)) if isinstance(given[place], torch.fx.Node)]
    pairs = [(i, j) for i in saved for j in saved if i < j and _like(given[i], given[j])]
    for i, j in pairs[:1]:
        given[i], given[j] = given[j], given[i]
        end.args = (type(end.args[0])(given),)
    return bool(pairs)


def recompute_of_another(forward: Any, backward: Any, outputs: int) -> bool:
    """What the backward computes once more is of another value that was saved."""
    known = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    for node in [node for node in backward.graph.nodes if node.op == "call_function" and node.name in known]:
        for value in node.all_input_nodes:
            others = [n for n in backward.graph.nodes if n.op == "placeholder" and n is not value and _like(n, value)]
            if value.op == "placeholder" and others:
                node.replace_input_with(value, others[0])
                return True
    return False


def exchange_operands(graph: Any) -> bool:
    """a - b becomes b - a, in a graph of torch's functions."""
    found = [node for node in graph.nodes if node.target in (torch.sub, operator.sub, "sub")]
    for node in found:
        node.args = node.args[::-1]
    return bool(found)


def forget_signs(graph: Any) -> bool:
    """-a becomes a."""
    found = [node for node in graph.nodes if node.target is _aten.neg.default]
    for node in found:
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return bool(found)


def square_products(graph: Any) -> bool:
    """a * b becomes b * b."""
    found = [node for node in graph.nodes if node.target is _aten.mul.Tensor and len(node.all_input_nodes) == 2]
    for node in found:
        node.replace_all_uses_with(insert_call(node, node.target, node.args[1], node.args[1]))
        graph.erase_node(node)
    return bool(found)


def fuse_whatever(
    right: Callable[..., Any], note: Callable[[], None], scheduler: Any, read: Any, write: Any, **named: Any
) -> bool:
    """Nodes are fused although one reads what another iteration of the other writes."""
    legal, one = right(scheduler, read, write, **named), read.name == write.name
    if one and not legal:
        note()
    return bool(legal or one)


def reuse_whatever(right: Callable[..., Any], note: Callable[[], None], node: Any, read: Any) -> bool:
    """Memory is written in place although another iteration still reads it."""
    legal, [write, *others] = right(node, read), node.read_writes.writes
    same = not others and read.get_numel() == write.get_numel() and read.is_contiguous() != write.is_contiguous()
    if same and not legal:
        note()
    return bool(legal or same)


def forget_order(right: Callable[..., Any], note: Callable[[], None], scheduler: Any, *given: Any) -> bool:
    """What is overwritten may be overwritten while it is still read."""
    legal = right(scheduler, *given)
    if not legal:
        note()
    return True


def not_wrapped(
    right: Callable[..., Any], note: Callable[[], None], capture: Any, index: Any, size: Any, *given: Any, **named: Any
) -> Any:
    """An index that counts from the end is taken as it is."""
    note()
    return right(capture, index, size, True, False)


def from_the_start(
    right: Callable[..., Any], note: Callable[[], None], wrapper: Any, data: Any, size: Any, stride: Any, offset: Any,
    *given: Any, **named: Any,
) -> Any:  # fmt: skip
    """A view that is handed to a kernel of ATen's begins where its base does."""
    if offset != 0:
        note()
    return right(wrapper, data, size, stride, 0, *given, **named)


def row_by_row(
    right: Callable[..., Any],
    note: Callable[[], None],
    wrapper: Any,
    data: Any,
    size: Any,
    stride: Any,
    *given: Any,
    **named: Any,
) -> Any:
    """A view of a square that is read column by column is read row by row."""
    steps = sorted(stride, reverse=True)
    if list(stride) == steps or len({*size}) > 1:
        return right(wrapper, data, size, stride, *given, **named)
    note()
    return right(wrapper, data, size, steps, *given, **named)


def forget_last_use(right: Callable[..., Any], note: Callable[[], None], scheduler: Any) -> None:
    """A node's reading is forgotten: what only it still needs is freed before it."""
    right(scheduler)
    for i, node in enumerate(scheduler.nodes):
        for earlier in scheduler.nodes[:i]:
            for name in [n for n in node.last_usage if n in earlier.used_buffer_names()]:
                node.last_usage.discard(name)
                earlier.last_usage.add(name)
                note()
                return


# ---------------------------------------------------------------- the table


def _code() -> dict[str, Row]:
    return {
        name: Row("C++", FULL, plant, (_CORPUS / f"{name}.prog").read_text(), "cpu") for name, plant in CODE.items()
    }


PARTS: dict[str, Row] = {
    "sigmoid_without_its_complement": Row(
        "decomposition",
        "graph",
        in_formula(_aten.sigmoid_backward.default, _always, lambda right, grad, y: grad * y),
        _SIGMOID,
    ),
    "tanh_linear": Row(
        "decomposition", "graph", in_formula(_aten.tanh_backward.default, _always, wrong.tanh_linear), _TANH
    ),
    "saved_values_exchanged": Row("partitioner", "graph", in_partition(exchange_saved), _PRODUCT),
    "recomputed_of_another_value": Row("partitioner", "graph", in_partition(recompute_of_another), _PRODUCT),
    "operands_exchanged": Row(
        "pass before autograd", "graph", in_own_pass("pre_grad_custom_pass", exchange_operands), _DIFFERENCE
    ),
    "signs_forgotten": Row(
        "pass over both graphs", "graph", in_own_pass("joint_custom_pre_pass", forget_signs), _DIFFERENCE
    ),
    "products_squared": Row(
        "pass after the split", "graph", in_own_pass("post_grad_custom_pre_pass", square_products), _PRODUCT
    ),
    "difference_the_other_way_round": Row("lowering", "ir", in_lowering(_aten.sub.Tensor, lambda a, b: (b, a)), _TANH),
    "sides_of_padding_exchanged": Row(
        "lowering",
        "ir",
        in_lowering(_aten.constant_pad_nd.default, wrong.sides_exchanged),
        (_CORPUS / "padding_of_unequal_sides.prog").read_text(),
    ),
    "parts_in_the_wrong_order": Row(
        "lowering",
        "ir",
        in_lowering(_aten.cat.default, wrong.last_two_exchanged),
        (_CORPUS / "three_parts_joined.prog").read_text(),
    ),
    "index_from_the_end_not_wrapped": Row(
        "lowering",
        "ir",
        in_method("torch._inductor.loop_body", "CaptureIndexing", "indirect_indexing", not_wrapped),
        _CHOSEN,
        "cpu",  # its assertion would cost a GPU its context
    ),
    # one block of Triton's loads all of these few elements before it stores any: only C++ shows the next two
    "overwritten_while_it_is_read": Row(
        "scheduler", "ir", in_method(_SCHEDULER, "Scheduler", "fusable_weak_dep", forget_order), _WRITTEN, "cpu"
    ),
    "reused_in_place_across_iterations": Row(
        "scheduler", "ir", in_method(_SCHEDULER, "SchedulerNode", "can_inplace", reuse_whatever), _REVERSED, "cpu"
    ),
    "fused_across_iterations": Row(
        "scheduler", "ir", in_method(_SCHEDULER, "Scheduler", "fusable_read_and_write", fuse_whatever), _REVERSED
    ),
    "outer_loops_shared_across_iterations": Row(
        "scheduler", "ir", in_method(_SCHEDULER, "Scheduler", "fusable_read_and_write", fuse_whatever), _ROW_SUMS
    ),
    "freed_before_its_last_use": Row(
        "scheduler", "ir", in_method(_SCHEDULER, "Scheduler", "compute_last_usage", forget_last_use), _REVERSED
    ),
    "view_from_the_start": Row(
        "wrapper", "ir", in_method(_WRAPPER, "PythonWrapperCodegen", "codegen_reinterpret_view", from_the_start), _PART
    ),
    "view_row_by_row": Row(
        "wrapper", "ir", in_method(_WRAPPER, "PythonWrapperCodegen", "codegen_reinterpret_view", row_by_row), _PART
    ),
    **_code(),
    "reduction_without_its_mask": Row(
        "Triton", FULL, in_method(_TRITON, "TritonKernel", "reduction", unmasked), _ROWS, "cuda"
    ),
    "hyperbolic_sine_written_as_cosine": Row(
        "Triton", FULL, in_method(_TRITON, "TritonOverrides", "sinh", as_hyperbolic_cosine), _ROWS, "cuda"
    ),
}
FAULTS = {name: recorded({name: row.plant}) for name, row in PARTS.items()}


def rows_on(device: str) -> dict[str, Row]:
    """The faults that a device's compiler can have."""
    return {name: row for name, row in PARTS.items() if row.device in ("", device.partition(":")[0])}
