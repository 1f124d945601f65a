"""The stages of inductor as backends of their own: `inductor:graph`, `inductor:ir`; `inductor` itself is the last.

A stage is inductor up to a point, and something in place of the rest that needs no code to be built. It is judged like
any other backend; where it cannot run a program, that is built, in the same trial, and the Observation says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from fuzzer.language.private import config_module
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import CUDA_GRAPHS, default, exists
from fuzzer.stages.graph import graphs
from fuzzer.stages.ir import loops

# By name, from the cheapest on: what puts a stage in force. It is given a list, for reasons why it cannot.
STAGES: dict[str, Callable[[list[str]], AbstractContextManager[None]]] = {"graph": graphs, "ir": loops}

# Settings under which what is written is no Python that could call us.
_BUILT_UNDER = ("inductor.cpp_wrapper", "inductor.fx_wrapper", CUDA_GRAPHS)
_UNCACHED = {"force_disable_caches": True}  # no stage is part of a cache key


def built_under(setting: str) -> bool:
    """Whether a setting, where it is on, leaves no stage anything to run."""
    return setting in _BUILT_UNDER


def cannot_run(program: Program) -> str:
    """Why no stage can run a program, known from its text; "" where one may."""
    if not ROUTES[program.route.name].torch_compile:
        return f"route: {program.route.name}"
    own = dict(program.settings)
    set_so = (name for name in _BUILT_UNDER if exists(name) and own.get(name, default(name)))
    return next((f"setting: {name}" for name in set_so), "")


@contextlib.contextmanager
def in_force(stage: str) -> Iterator[list[str]]:
    """Have inductor stop at a stage, its caches off. Gives a list, in which there is afterwards why it could not."""
    reasons: list[str] = []
    with config_module("inductor").patch(_UNCACHED), STAGES[stage](reasons):
        yield reasons
