"""How faults get into what inductor has no table for: its partitioner, its passes, its scheduler, its code generators.

A fault in C++ marks what it writes wrong, and notes that it acted where the text of a kernel has its mark: the code
generator writes kernels that are dropped again, and loops that run no iteration. Then the mark goes.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0 (Triton not):
torch._inductor.compile_fx.min_cut_rematerialization_partition,
torch._inductor.config.{pre_grad_custom_pass, joint_custom_pre_pass, post_grad_custom_pre_pass}, methods of
torch._inductor.scheduler.{Scheduler, SchedulerNode}, of torch._inductor.codegen.cpp.{CppOverrides, CppVecOverrides,
CppVecKernel, CppTile2DKernel, CppScheduling} and of torch._inductor.codegen.triton.{TritonOverrides, TritonKernel},
CSE._cache, torch._inductor.virtualized.V.{kernel, graph}.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from benches.mechanisms import Plant
from fuzzer.language.private import config_module

_Note = Callable[[], None]
Mark = Callable[[Any], str]  # text, marked
Write = Callable[..., Any]  # (what writes it right, Mark, *its arguments): NotImplemented where that is right
Change = Callable[..., Any]  # (what does it right, note, *its arguments): what is done instead
_CPP = "torch._inductor.codegen.cpp"
_numbers = itertools.count()


@contextlib.contextmanager
def replaced(module: str, owner: str, name: str, change: Callable[..., Any]) -> Iterator[None]:
    """change(what was there, *arguments) stands in for a method of a class, or for a function where owner is ""."""
    table = importlib.import_module(module)
    table = getattr(table, owner) if owner else table
    before = vars(table)[name]
    right = getattr(before, "__func__", before)

    def instead(*args: Any, **kwargs: Any) -> Any:
        return change(right, *args, **kwargs)

    instead.__name__ = name  # by which code generators tell operations apart
    setattr(table, name, staticmethod(instead) if isinstance(before, staticmethod) else instead)
    try:
        yield
    finally:
        setattr(table, name, before)


def in_method(module: str, owner: str, name: str, change: Change) -> Plant:
    """change(what does it right, note, *arguments) stands in for a method of inductor's."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        return replaced(module, owner, name, lambda right, *args, **kwargs: change(right, note, *args, **kwargs))

    return plant


# ---------------------------------------------------------------- graphs


def in_partition(change: Callable[[Any, Any, int], bool]) -> Plant:
    """change(forward, backward, outputs of the program) where a graph was split; whether it changed anything."""

    def split(right: Callable[..., Any], note: _Note, *args: Any, num_fwd_outputs: int, **kwargs: Any) -> Any:
        forward, backward = right(*args, num_fwd_outputs=num_fwd_outputs, **kwargs)
        if change(forward, backward, num_fwd_outputs):
            note()
        forward.recompile()
        backward.recompile()
        return forward, backward

    return in_method("torch._inductor.compile_fx", "", "min_cut_rematerialization_partition", split)


def in_own_pass(setting: str, change: Callable[[Any], bool]) -> Plant:
    """change(graph) among inductor's passes, at the place that a setting is for; whether it changed anything."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        def run(graph: Any) -> None:
            if change(graph):
                note()

        return config_module("inductor").patch({setting: run})

    return plant


# ---------------------------------------------------------------- C++


def in_code(owner: str, method: str, write: Write) -> Plant:
    """write(...) stands in for a method of a class of C++'s code generator."""

    @contextlib.contextmanager
    def plant(note: _Note) -> Iterator[None]:
        mark = f"/*{next(_numbers)}*/"

        def written(right: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            wrong = write(right, lambda text: f"{text}{mark}", *args, **kwargs)
            return right(*args, **kwargs) if wrong is NotImplemented else wrong

        def define(right: Callable[..., Any], scheduling: Any, source: str, *args: Any, **kwargs: Any) -> Any:
            if mark in source:
                note()
            return right(scheduling, source.replace(mark, ""), *args, **kwargs)

        with replaced(_CPP, owner, method, written), replaced(_CPP, "CppScheduling", "define_kernel", define):
            yield

    return plant


def graph_is_backward() -> bool:
    """Whether the graph that code is written for is a backward."""
    from torch._inductor.virtualized import V

    return bool(V.graph.is_backward)


def kernel_in_work() -> Any:
    """The kernel that is being written."""
    from torch._inductor.virtualized import V

    return V.kernel


def text_of(variable: Any) -> str:
    """What a variable of the kernel that is being written was made of, if it was written there."""
    return next((text for text, known in kernel_in_work().cse._cache.items() if f"{known}" == f"{variable}"), "")


def dtype_of(name: str) -> Any:
    """The dtype of a buffer."""
    from torch._inductor.virtualized import V

    return V.graph.get_dtype(name)


# ---------------------------------------------------------------- Triton


def unmasked(right: Callable[..., Any], note: _Note, kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """A reduction of Triton's takes what lies behind the end of its row for elements of it."""
    from torch._inductor.codegen.triton import TritonKernelOverrides

    note()
    with patch.object(TritonKernelOverrides, "where", staticmethod(lambda mask, value, other: f"{value}")):
        return right(kernel, *args, **kwargs)


def as_hyperbolic_cosine(right: Callable[..., Any], note: _Note, x: Any) -> Any:
    """Triton's text for the hyperbolic sine is the cosine's."""
    from torch._inductor.codegen.triton import TritonOverrides

    note()
    return TritonOverrides.cosh(x)
