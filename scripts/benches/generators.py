"""How faults get into code generators: a method that writes text is replaced, and what it writes wrong is marked. A
fault notes that it acted where the text of a kernel has its mark: generators write kernels that are dropped again, and
loops that run no iteration. Then the mark goes.

Private API, tried on torch 2.11.0 and 2.13.0: torch._inductor.codegen.cpp.{CppOverrides, CppVecOverrides, CppKernel,
CppVecKernel}, their methods that faults replace, CppVecKernel.{tail_size, tiling_idx, ranges, reduction_depth},
CppScheduling.define_kernel, the dtype of a CppCSEVariable, torch._inductor.virtualized.V.{kernel, graph}, CSE._cache.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from benches.mechanisms import Plant

Mark = Callable[[Any], str]  # text, marked
Write = Callable[..., Any]  # (what writes it right, Mark, *its arguments): NotImplemented where that is right
_numbers = itertools.count()


def in_code(owner: str, method: str, write: Write) -> Plant:
    """write(...) stands in for a method of a class of C++'s code generator."""

    def plant(note: Callable[[], None]) -> AbstractContextManager[None]:
        return _planted(owner, method, write, note)

    return plant


@contextlib.contextmanager
def _planted(owner: str, method: str, write: Write, note: Callable[[], None]) -> Iterator[None]:
    from torch._inductor.codegen import cpp

    mark = f"/*{next(_numbers)}*/"
    table = getattr(cpp, owner)
    before = vars(table)[method]
    right = getattr(before, "__func__", before)

    def written(*args: Any, **kwargs: Any) -> Any:
        wrong = write(right, lambda text: f"{text}{mark}", *args, **kwargs)
        return right(*args, **kwargs) if wrong is NotImplemented else wrong

    written.__name__ = method  # by which overrides are told apart
    setattr(table, method, staticmethod(written) if isinstance(before, staticmethod) else written)
    try:
        with _told(mark, note):
            yield
    finally:
        setattr(table, method, before)


@contextlib.contextmanager
def _told(mark: str, note: Callable[[], None]) -> Iterator[None]:
    """Note when a kernel is written that is marked."""
    from torch._inductor.codegen.cpp import CppScheduling

    before = CppScheduling.define_kernel

    def define(self: Any, source: str, *args: Any, **kwargs: Any) -> Any:
        if mark in source:
            note()
        return before(self, source.replace(mark, ""), *args, **kwargs)

    CppScheduling.define_kernel = define
    try:
        yield
    finally:
        CppScheduling.define_kernel = before


def graph_is_backward() -> bool:
    """Whether the graph that code is written for is a backward."""
    from torch._inductor.virtualized import V

    return bool(V.graph.is_backward)


def text_of(variable: Any) -> str:
    """What a variable of the kernel that is being written was made of, if it was written there."""
    from torch._inductor.virtualized import V

    return next((text for text, known in V.kernel.cse._cache.items() if f"{known}" == f"{variable}"), "")


def kernel_in_work() -> Any:
    """The kernel that is being written."""
    from torch._inductor.virtualized import V

    return V.kernel


def dtype_of(name: str) -> Any:
    """The dtype of a buffer."""
    from torch._inductor.virtualized import V

    return V.graph.get_dtype(name)
