"""The setting `triton.config`: which of the configs that inductor lists for a Triton kernel is compiled.

inductor writes a kernel once and lists configs for it: how large its blocks are, how many warps and stages it has. By
default it compiles and times all of them on the device, and the fastest runs. Under `triton.config` it compiles one and
times none, so that the program's text says which code ran.

This module has the form of torch's config modules: settings as attributes, `get_type` and `patch`. Private torch API:
torch._inductor.runtime.triton_heuristics.CachingAutotuner.{precompile, configs, compile_results, launchers} (tried on
torch 2.11.0 and 2.13.0).
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fuzzer.language.program import Value

ALL = -1
config = ALL  # torch's default: all are compiled and timed
IMPORTS = ("torch._inductor.config", "torch._inductor.runtime.triton_heuristics")


def get_type(key: str) -> type:
    """The type of a setting of this module. KeyError for an unknown name."""
    return {"config": int}[key]


@contextlib.contextmanager
def patch(changes: Mapping[str, Any]) -> Iterator[None]:
    """Run with these settings, restored afterwards.

    inductor's caches are off meanwhile: their keys leave out the choice of config, and a cached fastest config would be
    used instead.
    """
    global config
    from torch._inductor import config as inductor
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    before, precompile = config, CachingAutotuner.precompile
    config = changes["config"]
    try:
        if config == ALL:
            yield
        else:
            CachingAutotuner.precompile = one_config(config, precompile)
            with inductor.patch(force_disable_caches=True):
                yield
    finally:
        config, CachingAutotuner.precompile = before, precompile


# Copied into scripts, so it uses nothing else of this module.
def one_config(number: int, build: Callable[..., None]) -> Callable[..., None]:
    """CachingAutotuner.precompile that compiles one config, the number taken modulo their count; where it does not fit,
    the next."""

    def precompile(kernel: Any, *args: Any, **options: Any) -> None:
        if not kernel.configs:  # it was compiled before
            return build(kernel, *args, **options)
        first = number % len(kernel.configs)
        left = [*kernel.configs[first:], *kernel.configs[:first]]
        while left:
            kernel.configs, kernel.compile_results = [left.pop(0)], []
            try:
                build(kernel, *args, **options)
                break
            except RuntimeError as error:
                if not left or not str(error).startswith("No valid triton configs"):
                    raise
        del kernel.launchers[1:]  # added for reductions that take many registers, with smaller blocks

    return precompile


def write(number: Value) -> list[str]:
    """Lines that put the setting in force for the rest of a script, which imports the modules in IMPORTS."""
    tree = ast.parse(inspect.getsource(one_config))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return [
        *ast.unparse(tree).splitlines(),
        "",
        f"tuner = {IMPORTS[1]}.CachingAutotuner",
        f"tuner.precompile = one_config({number}, tuner.precompile)",
        "torch._inductor.config.force_disable_caches = True",
    ]
