"""FAULTS: what a canary plants, in the worker and around one side's run only.

Most sit where a real fault would: a wrong decomposition, which only the compiler's backward graph uses; a pass over the
compiled graph; compiled code that dies; torch's own planted relu faults. The rest corrupt what a run has recorded.
A fault knows nothing of programs or oracles: `canaries` says what is expected of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzzer.execution.messages import Observation
from fuzzer.private import graph_pass, replaced_decomposition
from fuzzer.settings import in_force

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


def contract(graph: Any) -> None:
    """a * b - c with the product not rounded, as a fused multiply-add has it."""
    widen = torch.ops.prims.convert_element_type.default
    for node in list(graph.nodes):
        if node.target is not aten.sub.Tensor or node.args[0].target is not aten.mul.Tensor:
            continue
        product, other = node.args
        with graph.inserting_before(node):
            a, b, c = (graph.call_function(widen, (t, torch.float64)) for t in (*product.args, other))
            exact = graph.call_function(aten.mul.Tensor, (a, b))
            fused = graph.call_function(aten.sub.Tensor, (exact, c))
            for made in (a, b, c, exact, fused):
                made.meta["val"] = _computed(made)
            narrow = graph.call_function(widen, (fused, node.meta["val"].dtype))
            narrow.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(narrow)
        graph.erase_node(node)


def _computed(node: Any) -> torch.Tensor:
    """A node's fake value from those of its operands."""
    args = [arg.meta["val"] if hasattr(arg, "meta") else arg for arg in node.args]
    with args[0].fake_mode:
        return node.target(*args)


# ---------------------------------------------------------------- compiled code that does not come back


@functools.cache
def misbehave() -> Any:
    """A custom operation that returns its operand's copy, and dies, raises, sleeps or writes if told to. Made once."""

    @torch.library.custom_op("backfuzz::misbehave", mutates_args=())
    def operation(x: torch.Tensor, how: str) -> torch.Tensor:
        copy = x.clone()
        act(how, x)
        return copy

    @operation.register_fake
    def _(x: torch.Tensor, how: str) -> torch.Tensor:
        return torch.empty_like(x)

    return operation


def act(how: str, x: torch.Tensor | None = None) -> None:
    """Die, raise, sleep, or write to x."""
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


def in_compiled_backward(how: str) -> Fault:
    """The compiled code of sigmoid's backward does this when it runs."""

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return misbehave()(sigmoid_gradient(grad, y), how)

    def plant() -> AbstractContextManager[None]:
        misbehave()  # registered before anything is traced
        return replaced_decomposition(aten.sigmoid_backward.default, gradient)

    return Fault(plant)


def overwriting_cotangent(gradient: Gradient) -> Fault:
    """The compiled code of sigmoid's backward adds 1 to the cotangent, once that is used."""

    def changed(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gradient(misbehave()(grad, "write"), y)

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
    "product_not_rounded": Fault(lambda: graph_pass(contract)),
    "compiler_aborts": in_compiler("abort"),
    "compiler_raises": in_compiler("raise"),
    "compiled_backward_aborts": in_compiled_backward("abort"),
    "compiled_backward_segfaults": in_compiled_backward("segfault"),
    "compiled_backward_raises": in_compiled_backward("raise"),
    "compiled_backward_hangs": in_compiled_backward("sleep"),
    "cotangent_overwritten": overwriting_cotangent(sigmoid_gradient),
    "relu_accuracy": injected_relu("accuracy"),
    "relu_compile_error": injected_relu("compile_error"),
    "relu_runtime_error": injected_relu("runtime_error"),
    "gradient_in_float64": changed_gradients(torch.Tensor.double),
    "gradient_flattened": changed_gradients(torch.Tensor.flatten),
    "gradient_missing": changed_gradients(lambda tensor: None),
    "output_in_float64": changed_outputs(torch.Tensor.double),
    "eager_gradient_scaled": changed_gradients(scaled_in_place, side="reference"),
}
# One compile rings five oracles, where seconds count.
FAULTS["five_at_once"] = together(
    overwriting_cotangent(without_complement),
    *(FAULTS[name] for name in ("softplus_gradient_without_threshold", "relu_accuracy", "gradient_in_float64")),
)
