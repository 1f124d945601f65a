"""FAULTS: what a canary plants, in the worker and around one side's run only. A fault is one function and one line.

Most sit where a real fault would: a wrong decomposition of an op that only backwards have; a wrong pass over the
compiled backward graph; a meta kernel that gives wrong strides; compiled code that dies or writes where it must not;
torch's own planted relu faults. The rest corrupt what a run has recorded.
A fault knows nothing of programs or oracles: `canaries` says what is expected of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzzer.execution.messages import Observation
from fuzzer.private import config_module, graph_pass, inner_graphs, replaced_decomposition, replaced_fake
from fuzzer.settings import default, in_force

Tamper = Callable[[Observation], Observation]

aten = torch.ops.aten
# Longer than any deadline; a worker that outlives it shows that deadlines do not work.
ASLEEP_SECONDS = 3600.0


def untouched(observation: Observation) -> Observation:
    return observation


@dataclass(frozen=True)
class Fault:
    """plant is in force while the side runs; tamper changes what was recorded, after it ran."""

    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    tamper: Tamper = untouched
    side: str = "subject"


class UnknownFault(ValueError):
    """A fault that is not in FAULTS."""


@contextlib.contextmanager
def planted(name: str, side: str) -> Iterator[Tamper]:
    """The fault of this name in force where it belongs on this side; "" is none. Raises UnknownFault."""
    if name and name not in FAULTS:
        raise UnknownFault(f"no fault {name!r}; known are {', '.join(FAULTS)}")
    fault = FAULTS[name] if name else Fault()
    if fault.side != side:
        yield untouched
        return
    with fault.plant():
        yield fault.tamper


# ---------------------------------------------------------------- wrong arithmetic in the compiled graph

Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def decomposed(op: Any, function: Callable[..., torch.Tensor]) -> Fault:
    return Fault(lambda: replaced_decomposition(op, function))


def sigmoid_gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (y * (1 - y))


def without_complement(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * y


def one_element_scaled(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    right = sigmoid_gradient(grad, y)
    where = torch.arange(right.numel(), device=right.device).reshape(right.shape)
    return torch.where(where == right.numel() // 2, right * 1.01, right)


def zeros(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(grad)


def without_threshold(grad: torch.Tensor, x: torch.Tensor, beta: float, threshold: float) -> torch.Tensor:
    z = (x * beta).exp()
    return grad * z / (z + 1)


def hardtanh_without_its_limits(grad: torch.Tensor, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """At the limits themselves eager gives 0."""
    return torch.where((x < low) | (x > high), 0.0, grad)


def relu_by_multiplication(grad: torch.Tensor, x: torch.Tensor, threshold: float) -> torch.Tensor:
    """Infinity times zero is NaN."""
    return grad * (x > threshold)


def softmax_beyond_its_tail(grad: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """The sum along the last dimension goes on into the next row, up to a whole vector of 8."""
    product = grad * y
    following = product.roll(-1, 0)[..., : -product.shape[-1] % 8]
    total = product.sum(dim, keepdim=True) + following.sum(dim, keepdim=True)
    return product - y * total


VECTOR = 16  # floats in the widest register


def elu_beside_a_vector(
    grad: torch.Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: torch.Tensor
) -> torch.Tensor:
    """The first element after a vector is the last one of it once more."""
    slope = torch.where(x > 0, scale, scale * alpha * input_scale * (x * input_scale).exp())
    place = torch.arange(x.numel(), device=x.device)
    place = place - ((place > 0) & (place % VECTOR == 0)).to(place.dtype)
    return (grad * slope).flatten()[place].reshape(x.shape)


def tanh_in_single_precision(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The cast to the operands' own dtype is lost."""
    narrow = grad.float() * (1 - y.float() * y.float())
    return narrow.to(grad.dtype)


def layer_norm_without_mean(
    grad: torch.Tensor, x: torch.Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    """The gradient through the mean is forgotten. For a layer norm over the last dimension, without weight and bias."""
    normal = (x - mean) * rstd
    return (grad - normal * (grad * normal).mean(-1, keepdim=True)) * rstd, None, None


def sigmoid_under_a_setting(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Wrong unless inductor.max_fusion_size is what it usually is."""
    return sigmoid_gradient(grad, y) * (1.0 if _usual_fusion() else 1.01)


def sigmoid_without_a_setting(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return sigmoid_gradient(grad, y) * (1.01 if _usual_fusion() else 1.0)


def _usual_fusion() -> bool:
    return bool(config_module("inductor").max_fusion_size == default("inductor.max_fusion_size"))


def relu_masked_by_minus_zero(grad: torch.Tensor, x: torch.Tensor, threshold: float) -> torch.Tensor:
    return torch.where(x > threshold, grad, -x)  # of x, which is 0 there: inductor takes a literal -0.0 for 0.0


# ---------------------------------------------------------------- wrong passes over the compiled graph


def made(node: Any, target: Any, *args: Any) -> Any:
    """A new call in front of a node."""
    with node.graph.inserting_before(node):
        call = node.graph.call_function(target, args)
    values = [arg.meta["val"] if hasattr(arg, "meta") else arg for arg in args]
    with next(value.fake_mode for value in values if hasattr(value, "fake_mode")):
        call.meta["val"] = target(*values)
    return call


widen = torch.ops.prims.convert_element_type.default


def contract(graph: Any) -> None:
    """a * b - c with the product not rounded, as a fused multiply-add has it."""
    for node in list(graph.nodes):
        if node.target is not aten.sub.Tensor or node.args[0].target is not aten.mul.Tensor:
            continue
        product, other = node.args
        a, b, c = (made(node, widen, t, torch.float64) for t in (*product.args, other))
        fused = made(node, aten.sub.Tensor, made(node, aten.mul.Tensor, a, b), c)
        node.replace_all_uses_with(made(node, widen, fused, node.meta["val"].dtype))
        graph.erase_node(node)


def in_backward(target: Any, change: Callable[[Any], Any]) -> Fault:
    """In the compiled backward graph, what change(call) gives stands in for every call of an overload."""

    def graphs(module: Any, backward: bool) -> bool:
        for node in list(module.graph.nodes) if backward else ():
            if node.target is target:
                node.replace_all_uses_with(change(node))
                module.graph.erase_node(node)
        return True

    return Fault(lambda: inner_graphs(graphs))


def operand(node: Any) -> Any:
    """The call's first operand in place of its result."""
    return node.args[0]


def over_columns(node: Any) -> Any:
    """A sum over dimension 1 instead of 0, in the shape that was asked for."""
    total = made(node, node.target, node.args[0], [1], True)
    return made(node, aten.permute.default, total, [1, 0])


def of_what_came_before(node: Any) -> Any:
    """The same of its operand's operand: what is recomputed is not what the forward computed."""
    return made(node, node.target, node.args[0].args[0])


def from_the_first_row(node: Any) -> Any:
    """A dimension of size 1 is expanded with an index that leaves the others out."""
    return made(node, node.target, made(node, aten.slice.Tensor, node.args[0], 0, 0, 1), *node.args[1:])


def overwriting(node: Any) -> Any:
    """Where an index repeats, the last one wins instead of adding."""
    return made(node, aten.scatter.src, *node.args)


def one_further(node: Any) -> Any:
    """A window of the last dimension, written one element too late."""
    x, source, dim, start, end = node.args[:5]
    return made(node, node.target, x, source, dim, start + 1, end + 1)


def transposed(node: Any) -> Any:
    """A product of the first operand as the forward had it."""
    return made(node, node.target, made(node, aten.permute.default, node.args[0], [1, 0]), node.args[1])


def of_padding_too(node: Any) -> Any:
    """The elements that an average divides by: padding counted where it was not, or the other way round."""
    *most, count_padding, divisor = node.args
    return made(node, node.target, *most, not count_padding, divisor)


# ---------------------------------------------------------------- wrong strides


def layout_of_2_11(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """slice_scatter as torch declared it before 2.12: laid out as x, even where x's elements share memory."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def layout_since_2_12(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty_like(x)


# ---------------------------------------------------------------- compiled code that does not come back


@functools.cache
def misbehave() -> Any:
    """A custom operation that returns its operand's copy, and does what it is told to (`act`). Made once."""

    @torch.library.custom_op("backfuzz::misbehave", mutates_args=())
    def operation(x: torch.Tensor, how: str) -> torch.Tensor:
        copy = x.clone()
        for deed in how.split(", "):
            act(deed, x, copy)
        return copy

    @operation.register_fake
    def _(x: torch.Tensor, how: str) -> torch.Tensor:
        return torch.empty_like(x)

    return operation


_calls = itertools.count()


def act(how: str, x: torch.Tensor | None = None, copy: torch.Tensor | None = None) -> None:
    """Die, raise, sleep, write to x or behind its storage, take memory, or make every other copy differ."""
    if how == "abort":
        os.abort()
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "raise":
        raise RuntimeError("planted: the compiled backward raises")
    elif how == "sleep":
        time.sleep(ASLEEP_SECONDS)
    elif how == "write" and x is not None:
        x.add_(1)
    elif how == "write behind" and x is not None:
        behind(x).fill_(7)
    elif how == "take memory" and x is not None:
        torch.ones(2**26, device=x.device)
    elif how == "alternate" and copy is not None and next(_calls) % 2:
        copy.mul_(1.5)


def behind(x: torch.Tensor, far: int = 0) -> torch.Tensor:
    """Four bytes so far behind the storage of x, which are not its own."""
    start = x.untyped_storage().data_ptr() + x.untyped_storage().nbytes() + far
    if x.is_cuda:
        return torch.as_tensor(Memory(start), device=x.device)
    return torch.frombuffer((ctypes.c_uint8 * 4).from_address(start), dtype=torch.uint8)


class Memory:
    """Four bytes of a GPU, as other libraries hand them to torch."""

    def __init__(self, address: int):
        self.__cuda_array_interface__ = {"shape": (4,), "typestr": "|u1", "data": (address, False), "version": 2}


def in_compiled_backward(how: str) -> Fault:
    """The compiled code of sigmoid's backward does this when it runs."""

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return misbehave()(sigmoid_gradient(grad, y), how)

    def plant() -> AbstractContextManager[None]:
        misbehave()  # registered before anything is traced
        return replaced_decomposition(aten.sigmoid_backward.default, gradient)

    return Fault(plant)


def overwriting_cotangent(gradient: Gradient, how: str = "write") -> Fault:
    """The compiled code of sigmoid's backward adds 1 to the cotangent, once that is used, or writes behind it."""

    def changed(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gradient(misbehave()(grad, how), y)

    def plant() -> AbstractContextManager[None]:
        misbehave()
        return replaced_decomposition(aten.sigmoid_backward.default, changed)

    return Fault(plant)


def in_compiler(how: str) -> Fault:
    """The compiler does this while it traces sigmoid's backward (which it does in the forward's compile)."""

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        act(how)
        return sigmoid_gradient(grad, y)

    return decomposed(aten.sigmoid_backward.default, gradient)


def injected_relu(kind: str) -> Fault:
    """PyTorch's own planted fault, in the code generators of both devices."""
    return Fault(
        lambda: in_force(
            (
                ("inductor.cpp.inject_relu_bug_TESTING_ONLY", kind),
                ("inductor.triton.inject_relu_bug_TESTING_ONLY", kind),
            )
        )
    )


# ---------------------------------------------------------------- records corrupted after the run

Change = Callable[[torch.Tensor], torch.Tensor | None]


def changed_gradients(change: Change, side: str = "subject") -> Fault:
    def tamper(observation: Observation) -> Observation:
        changed = {name: None if t is None else change(t) for name, t in observation.gradients.items()}
        return replace(observation, gradients=changed)

    return Fault(tamper=tamper, side=side)


def changed_outputs(change: Change) -> Fault:
    return Fault(tamper=lambda observation: replace(observation, outputs=[change(t) for t in observation.outputs]))


def long_compile(observation: Observation) -> Observation:
    return replace(observation, cpu_seconds=observation.cpu_seconds + ASLEEP_SECONDS)


def scaled_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """The reference's tensors are known to its trace by their storage."""
    return tensor.mul_(1.01)


def together(*faults: Fault) -> Fault:
    """Several faults in one run of the subject: they must not touch the same tensor's values."""

    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for fault in faults:
                stack.enter_context(fault.plant())
            yield

    def tamper(observation: Observation) -> Observation:
        for fault in faults:
            observation = fault.tamper(observation)
        return observation

    return Fault(plant, tamper)


FAULTS: dict[str, Fault] = {
    "sigmoid_gradient_without_complement": decomposed(aten.sigmoid_backward.default, without_complement),
    "one_gradient_element_scaled": decomposed(aten.sigmoid_backward.default, one_element_scaled),
    "gradient_all_zero": decomposed(aten.tanh_backward.default, zeros),
    "softplus_gradient_without_threshold": decomposed(aten.softplus_backward.default, without_threshold),
    "hardtanh_gradient_at_its_limits": decomposed(aten.hardtanh_backward.default, hardtanh_without_its_limits),
    "relu_gradient_by_multiplication": decomposed(aten.threshold_backward.default, relu_by_multiplication),
    "softmax_gradient_beyond_its_tail": decomposed(aten._softmax_backward_data.default, softmax_beyond_its_tail),
    "elu_gradient_beside_a_vector": decomposed(aten.elu_backward.default, elu_beside_a_vector),
    "tanh_gradient_in_single_precision": decomposed(aten.tanh_backward.default, tanh_in_single_precision),
    "layer_norm_gradient_without_mean": decomposed(aten.native_layer_norm_backward.default, layer_norm_without_mean),
    "sigmoid_gradient_under_a_setting": decomposed(aten.sigmoid_backward.default, sigmoid_under_a_setting),
    "sigmoid_gradient_without_a_setting": decomposed(aten.sigmoid_backward.default, sigmoid_without_a_setting),
    "relu_gradient_masked_by_minus_zero": decomposed(aten.threshold_backward.default, relu_masked_by_minus_zero),
    "product_not_rounded": Fault(lambda: graph_pass(contract)),
    "accumulation_forgotten": in_backward(aten.add.Tensor, operand),
    "broadcast_summed_over_columns": in_backward(aten.sum.dim_IntList, over_columns),
    "recomputed_of_another_value": in_backward(aten.exp.default, of_what_came_before),
    "size_one_dim_of_the_first_row": in_backward(aten.expand.default, from_the_first_row),
    "ties_not_shared": in_backward(aten.div.Tensor, operand),
    "scatter_overwrites": in_backward(aten.scatter_add.default, overwriting),
    "window_one_further": in_backward(aten.slice_scatter.default, one_further),
    "scan_not_reversed": in_backward(torch.ops.prims.rev.default, operand),
    "product_not_transposed": in_backward(aten.mm.default, transposed),
    "average_of_padding_too": in_backward(aten.avg_pool2d_backward.default, of_padding_too),
    "slice_scatter_of_2_11": Fault(lambda: replaced_fake(aten.slice_scatter.default, layout_of_2_11)),
    "slice_scatter_since_2_12": Fault(lambda: replaced_fake(aten.slice_scatter.default, layout_since_2_12)),
    "compiler_aborts": in_compiler("abort"),
    "compiler_raises": in_compiler("raise"),
    "compiled_backward_aborts": in_compiled_backward("abort"),
    "compiled_backward_segfaults": in_compiled_backward("segfault"),
    "compiled_backward_raises": in_compiled_backward("raise"),
    "compiled_backward_hangs": in_compiled_backward("sleep"),
    "compiled_backward_alternates": in_compiled_backward("alternate"),
    "compiled_backward_takes_memory": in_compiled_backward("take memory"),
    "compile_takes_long": Fault(tamper=long_compile),
    "cotangent_overwritten": overwriting_cotangent(sigmoid_gradient),
    "written_behind_cotangent": overwriting_cotangent(sigmoid_gradient, "write behind"),
    "relu_accuracy": injected_relu("accuracy"),
    "relu_compile_error": injected_relu("compile_error"),
    "relu_runtime_error": injected_relu("runtime_error"),
    "gradients_doubled": changed_gradients(lambda gradient: gradient * 2),
    "gradient_in_float64": changed_gradients(torch.Tensor.double),
    "gradient_flattened": changed_gradients(torch.Tensor.flatten),
    "gradient_missing": changed_gradients(lambda tensor: None),
    "output_in_float64": changed_outputs(torch.Tensor.double),
    "eager_gradient_scaled": changed_gradients(scaled_in_place, side="reference"),
}
# One compile rings several oracles, where seconds count.
FAULTS["three_at_once"] = together(in_compiled_backward("alternate, take memory"), FAULTS["compile_takes_long"])
FAULTS["five_at_once"] = together(
    overwriting_cotangent(without_complement),
    *(FAULTS[name] for name in ("softplus_gradient_without_threshold", "relu_accuracy", "gradient_in_float64")),
)
