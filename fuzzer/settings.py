"""Compiler settings: the table the generator draws from, and how a program's settings are put in force.

A setting is named by config and key, `inductor.max_fusion_size`; its default is asked of torch. Any key that the
running torch has can be set by hand (`--set`); the table holds those worth drawing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from fuzzer.private import CONFIGS, config_module, config_type
from fuzzer.program import Attributes, Value


class UnknownSetting(ValueError):
    """A setting that the running torch does not have, or a value that it cannot hold."""


@dataclass(frozen=True)
class Setting:
    """A setting worth drawing: its name, the values tried beside the default, the devices where it acts."""

    name: str
    values: tuple[Value, ...]
    devices: tuple[str, ...] = ("cpu", "cuda")


SETTINGS: tuple[Setting, ...] = (
    Setting("inductor.max_fusion_size", (1, 2, 4)),
    Setting("inductor.realize_reads_threshold", (1, 16)),
    Setting("inductor.unroll_reductions_threshold", (1, 32)),
    Setting("inductor.epilogue_fusion", (False,), ("cuda",)),
    Setting("inductor.pick_loop_orders", (False,)),
    Setting("inductor.inplace_buffers", (False,)),
    Setting("inductor.allow_buffer_reuse", (False,)),
    Setting("inductor.pattern_matcher", (False,)),
    Setting("inductor.joint_graph_constant_folding", (False,)),
    Setting("inductor.optimize_scatter_upon_const_tensor", (False,)),
    Setting("inductor.comprehensive_padding", (False,), ("cuda",)),
    Setting("inductor.force_pointwise_cat", (True,)),
    Setting("inductor.emulate_precision_casts", (True,)),
    Setting("inductor.online_softmax", (False,), ("cuda",)),
    Setting("inductor.split_reductions", (False,), ("cuda",)),
    Setting("inductor.triton.persistent_reductions", (False,), ("cuda",)),
    Setting("inductor.triton.prefer_nd_tiling", (True,), ("cuda",)),
    Setting("inductor.cpp.simdlen", (1,), ("cpu",)),
    Setting("inductor.cpp.enable_tiling_heuristics", (False,), ("cpu",)),
    Setting("inductor.cpp.max_horizontal_fusion_size", (1,), ("cpu",)),
    Setting("functorch.aggressive_recomputation", (True,)),
    Setting("functorch.recompute_views", (True,)),
    Setting("functorch.cse", (False,)),
    Setting("functorch.donated_buffer", (False,)),
)


@functools.cache
def default(name: str) -> Value:
    """The running torch's default of a setting. Raises UnknownSetting."""
    prefix, _, key = name.partition(".")
    if prefix not in CONFIGS or not key:
        raise UnknownSetting(f"no setting {name!r}: a name starts with {', '.join(f'{p}.' for p in CONFIGS)}")
    found = config_module(prefix)
    for part in key.split("."):
        if not part or not hasattr(found, part):
            raise UnknownSetting(f"this torch has no setting {name!r} (no {part!r} in {CONFIGS[prefix]})")
        found = getattr(found, part)
    return found


def check(name: str, value: Value) -> None:
    """Raise UnknownSetting where the setting does not exist or its value is of another type than torch declares."""
    usual = default(name)
    declared = config_type(name)
    kinds = tuple(t for t in (*get_args(declared), declared, type(usual)) if isinstance(t, type))
    if not any(k in (bool, int, float, str) for k in kinds) or usual is None:
        return  # containers and settings without a value: torch declares too little to decide
    if not (type(value) in kinds or (type(value) is int and float in kinds)):
        raise UnknownSetting(f"{name} is {usual!r} by default and cannot be {value!r}")


def exists(name: str) -> bool:
    """Whether the running torch has this setting."""
    try:
        default(name)
    except UnknownSetting:
        return False
    return True


def parse_assignment(text: str) -> tuple[str, Value]:
    """`KEY=VALUE` of the command line, the value as a Python literal (a bare word is a string)."""
    name, separator, given = text.partition("=")
    if not separator:
        raise UnknownSetting(f"--set takes KEY=VALUE, not {text!r}")
    value: Value = given.strip()
    with contextlib.suppress(ValueError, SyntaxError):
        value = ast.literal_eval(given.strip())
    check(name.strip(), value)
    return name.strip(), value


def draw(rng: random.Random, device: str) -> Attributes:
    """Settings for one program: none in half of the draws, else one to three."""
    if rng.random() < 0.5:
        return ()
    known = [s for s in SETTINGS if device in s.devices and exists(s.name)]
    chosen = rng.sample(known, rng.randint(1, 3))
    return tuple(sorted((s.name, rng.choice(s.values)) for s in chosen))


@contextlib.contextmanager
def in_force(settings: Attributes) -> Iterator[None]:
    """Run with these settings, restored afterwards. Raises UnknownSetting."""
    grouped: dict[str, dict[str, Any]] = {}
    for name, value in settings:
        check(name, value)
        prefix, _, key = name.partition(".")
        grouped.setdefault(prefix, {})[key] = value
    with contextlib.ExitStack() as stack:
        for prefix, changes in grouped.items():
            stack.enter_context(config_module(prefix).patch(changes))
        yield
