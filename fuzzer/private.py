"""Every use of a torch API that is not public, in one place. Tried on torch 2.11.0, 2.13.0 and 2.15.0.

fake_mode            torch._subclasses.FakeTensorMode: types of a program without running it
config_module        torch._inductor.config, torch._functorch.config, torch._dynamo.config
reset_compiler       torch._dynamo.reset: forget what was compiled before
inductor_graph_count torch._inductor.metrics.generated_kernel_count
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import torch

CONFIGS = {
    "inductor": "torch._inductor.config",
    "functorch": "torch._functorch.config",
    "dynamo": "torch._dynamo.config",
}


def fake_mode() -> contextlib.AbstractContextManager[Any]:
    """A mode under which tensors have a type and no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def config_module(prefix: str) -> Any:
    """The config module behind a setting's prefix ("inductor", "functorch" or "dynamo"). KeyError otherwise."""
    return importlib.import_module(CONFIGS[prefix])


def preload() -> None:
    """Import what every compile needs, so that forked workers find it in memory. Touches no device."""
    for name in ("torch._dynamo", "torch._inductor.compile_fx", "torch._functorch.aot_autograd", "torch.func"):
        importlib.import_module(name)


def reset_compiler() -> None:
    """Forget every compiled frame."""
    torch._dynamo.reset()


def print_native_stacks() -> None:
    """Have torch print the C++ stack on a fatal signal (used to name the native frame of a crash)."""
    torch._C._set_print_stack_traces_on_fatal_signal(True)
