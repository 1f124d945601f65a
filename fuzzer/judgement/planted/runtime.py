"""Faults that act when compiled code, or the compiler, runs: it dies, raises, hangs, or writes out of bounds."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fuzzer.judgement.planted.fault import Fault, Tamper
from fuzzer.judgement.planted.gradients import Gradient, decomposed, sigmoid_gradient
from fuzzer.judgement.trial import Observation
from fuzzer.language.private import replaced_decomposition
from fuzzer.language.settings import in_force

aten = torch.ops.aten
# Longer than any deadline; a worker that outlives this shows that deadlines do not work.
ASLEEP_SECONDS = 3600.0


@functools.cache
def faulty_op() -> Any:
    """A custom operation that returns a copy of its operand, and misbehaves as requested (`cause`). Made once."""

    @torch.library.custom_op("backfuzz::misbehave", mutates_args=())
    def operation(x: torch.Tensor, how: str) -> torch.Tensor:
        copy = x.clone()
        for deed in how.split(", "):
            cause(deed, x, copy)
        return copy

    @operation.register_fake
    def _(x: torch.Tensor, how: str) -> torch.Tensor:
        return torch.empty_like(x)

    return operation


_calls = itertools.count()


def cause(how: str, x: torch.Tensor | None = None, copy: torch.Tensor | None = None) -> None:
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
        past_the_end(x).fill_(7)
    elif how == "take memory" and x is not None:
        torch.ones(2**26, device=x.device)
    elif how == "alternate" and copy is not None and next(_calls) % 2:
        copy.mul_(1.5)


def past_the_end(x: torch.Tensor, far: int = 0) -> torch.Tensor:
    """Four bytes at this distance behind the storage of x."""
    start = x.untyped_storage().data_ptr() + x.untyped_storage().nbytes() + far
    if x.is_cuda:
        return torch.as_tensor(_DeviceMemory(start), device=x.device)
    return torch.frombuffer((ctypes.c_uint8 * 4).from_address(start), dtype=torch.uint8)


class _DeviceMemory:
    """Four bytes of a GPU's memory, in the interface by which other libraries pass memory to torch."""

    def __init__(self, address: int):
        self.__cuda_array_interface__ = {"shape": (4,), "typestr": "|u1", "data": (address, False), "version": 2}


def in_compiled_backward(how: str) -> Fault:
    """The compiled code of sigmoid's backward does this (`cause`) when it runs."""

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return faulty_op()(sigmoid_gradient(grad, y), how)

    def plant() -> AbstractContextManager[None]:
        faulty_op()  # registered before anything is traced
        return replaced_decomposition(aten.sigmoid_backward.default, gradient)

    return Fault(plant)


def overwriting_cotangent(gradient: Gradient, how: str = "write") -> Fault:
    """The compiled code of sigmoid's backward adds 1 to the cotangent after using it, or writes behind it."""

    def changed(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gradient(faulty_op()(grad, how), y)

    def plant() -> AbstractContextManager[None]:
        faulty_op()
        return replaced_decomposition(aten.sigmoid_backward.default, changed)

    return Fault(plant)


def in_compiler(how: str) -> Fault:
    """The compiler does this while it traces sigmoid's backward, during the forward's compile."""

    def gradient(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cause(how)
        return sigmoid_gradient(grad, y)

    return decomposed(aten.sigmoid_backward.default, gradient)


def in_eager(how: str) -> Tamper:
    """Eager does this at the end of its backward."""

    def tamper(observation: Observation) -> Observation:
        cause(how)
        return observation

    return tamper


class _Refusing(TorchFunctionMode):
    """Makes a function of torch raise as if a tensor that it saved was overwritten."""

    def __init__(self, refused: Any):
        super().__init__()
        self.refused = refused

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is self.refused:
            raise RuntimeError("planted: a variable needed for gradients has been modified by an inplace operation")
        return func(*args, **(kwargs or {}))


def refusing(function: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: _Refusing(function)


def injected_relu(kind: str) -> Fault:
    """PyTorch's own planted relu fault, in the code generators of both devices."""
    return Fault(
        lambda: in_force(
            (
                ("inductor.cpp.inject_relu_bug_TESTING_ONLY", kind),
                ("inductor.triton.inject_relu_bug_TESTING_ONLY", kind),
            )
        )
    )
