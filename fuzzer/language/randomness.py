"""The state of every random generator that a function may draw from: torch's, Python's and numpy's."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from fuzzer.language.devices import DEVICES

State = tuple[Any, ...]


def random_state() -> State:
    """The states now; of accelerators that this process has used, and of numpy where that is imported."""
    used = {name: module.get_rng_state_all() for name, module in _used().items()}
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), used, random.getstate(), numpy.random.get_state() if numpy else None


def set_random_state(state: State) -> None:
    """Have the generators give what they would have given at that time."""
    host, used, python, numpy = state
    torch.set_rng_state(host)
    for name, states in used.items():
        torch.get_device_module(name).set_rng_state_all(states)
    random.setstate(python)
    if numpy is not None:
        sys.modules["numpy"].random.set_state(numpy)


def numpy_drew(state: State) -> bool:
    """Whether numpy's generator has moved since that state."""
    numpy, then = sys.modules.get("numpy"), state[3]
    if numpy is None or then is None:
        return False
    now = numpy.random.get_state()
    return bool(now[2:] != then[2:] or (now[1] != then[1]).any())


def _used() -> dict[str, Any]:
    """The modules of torch for the types of accelerators that this process has used."""
    built = torch.accelerator.current_accelerator()
    modules = {} if built is None or built.type not in DEVICES else {built.type: torch.get_device_module(built.type)}
    return {name: module for name, module in modules.items() if module.is_initialized()}
