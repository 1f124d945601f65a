"""The stages of inductor as backends of their own: `inductor:graph`, `inductor:ir`; `inductor` itself is the last.

A stage runs inductor up to a point, and replaces the rest by an evaluation that needs no compiled code. It is judged
like any other backend. A program that a stage cannot run is compiled in full, in the same trial, and the Observation
says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from fuzzer.language.private import config_module
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import CUDA_GRAPHS, default, exists

Stage = Callable[[list[str]], AbstractContextManager[None]]


def _graph(reasons: list[str]) -> AbstractContextManager[None]:
    from fuzzer.stages.graph import graphs  # it imports most of inductor: not needed to name a stage

    return graphs(reasons)


def _ir(reasons: list[str]) -> AbstractContextManager[None]:
    from fuzzer.stages.ir import loops

    return loops(reasons)


# By name, the cheapest first: a context that activates the stage, given a list for reasons why it cannot run a program.
STAGES: dict[str, Stage] = {"graph": _graph, "ir": _ir}

# Settings under which inductor writes no Python that could call us.
_BUILT_UNDER = ("inductor.cpp_wrapper", "inductor.fx_wrapper", CUDA_GRAPHS)
_UNCACHED = {"force_disable_caches": True}  # no stage is part of a cache key


def built_under(setting: str) -> bool:
    """Whether a setting, where it is on, makes every stage impossible."""
    return setting in _BUILT_UNDER


def cannot_run(program: Program) -> str:
    """Why no stage can run a program, as far as its text shows; "" where one may."""
    if not ROUTES[program.route.name].torch_compile:
        return f"route: {program.route.name}"
    own = dict(program.settings)
    set_so = (name for name in _BUILT_UNDER if exists(name) and own.get(name, default(name)))
    return next((f"setting: {name}" for name in set_so), "")


@contextlib.contextmanager
def in_force(stage: str) -> Iterator[list[str]]:
    """Make inductor stop at a stage, its caches off. Yields a list that holds afterwards the reasons why it could
    not."""
    reasons: list[str] = []
    with config_module("inductor").patch(_UNCACHED), STAGES[stage](reasons):
        yield reasons
