"""Accelerators: how many there are, which one to run on, free memory filled with NaN, results copied to the host.

The process that starts workers never initialises a device: what needs that is asked by a process of its own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import operator
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzzer.judgement.comparison import within_storage
from fuzzer.judgement.trial import Observation
from fuzzer.language.devices import DEVICES, HOST, Device, device_row, synchronise
from fuzzer.language.errors import NoMachine
from fuzzer.rounding.trace import moved_to

# Blocks that are filled with NaN: their elements, as powers of two, and how many of each.
_POWERS, _BLOCKS = (7, 9, 11, 13, 15, 18), 6
# A line a device: bytes free, the percentage of its time that it computes, its name. Some modules of torch cannot say
# how a device is called, or need a package (nvidia-ml-py) to say how busy it is.
_QUERY = """
import sys, torch
module = torch.get_device_module(sys.argv[1])
for index in range(module.device_count()):
    try:
        busy = module.utilization(index)
    except Exception:
        busy = 0
    free, _ = torch.accelerator.get_memory_info(index)
    print(free, busy, getattr(module, "get_device_name", lambda _: "")(index))
"""
QUERY_SECONDS = 60.0  # importing torch from a cold disk takes 20


@dataclass(frozen=True)
class DeviceState:
    """A device as it is now: bytes free, the share of its time that it computes, and its name, such as NVIDIA H200."""

    free: int = sys.maxsize
    busy: float = 0.0
    name: str = ""


def count_devices(type: str) -> int:
    """How many devices of this type the running torch can use; 0 where it is built for another."""
    built = torch.accelerator.current_accelerator()
    return torch.accelerator.device_count() if built is not None and built.type == type else 0


def check_devices(devices: list[str]) -> None:
    """Raise NoMachine where a device is asked for that is not there. Touches none."""
    for device in devices:
        kind, _, index = device.partition(":")
        if kind == HOST.type:
            continue
        there, name = count_devices(kind), kind.upper()
        if there == 0:
            raise NoMachine(f"no {name} device: none is found, or this torch is built without {name}; use --device cpu")
        if index and int(index) >= there:
            raise NoMachine(f"no device {device}: this machine has {there} GPU(s)")


def check_flag_gems(device: str) -> None:
    """Raise NoMachine where FlagGems' operators cannot run: they are Triton's, and a package of their own."""
    if device_row(device).code != "triton":
        raise NoMachine(f"flag_gems runs where Triton does, not on {device}")
    if importlib.util.find_spec("flag_gems") is None:
        raise NoMachine("no flag_gems: pip install 'backfuzz[flag_gems]' brings it")


def default_device_type() -> str:
    """The type of device to run on by default: the accelerator's where the machine has one, else cpu."""
    return next((name for name in DEVICES if count_devices(name)), HOST.type)


def can_fork() -> bool:
    """Whether children of a process that has imported the compiler, which looks for accelerators, can use them."""
    built = torch.accelerator.current_accelerator()
    return built is None or (built.type in DEVICES and device_row(built.type).forks and torch.version.hip is None)


def query_devices(type: str) -> list[DeviceState]:
    """The devices of a type; none where that cannot be said."""
    if not count_devices(type):
        return []
    command = (sys.executable, "-P", "-c", _QUERY, type)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return []
    told = re.findall(r"^(\d+) (\d+) (.*)$", done.stdout, re.MULTILINE)
    return [DeviceState(int(free), int(busy) / 100, name) for free, busy, name in told]


def free_memory(type: str) -> int:
    """Bytes free on all devices of this type together; sys.maxsize where that is unknown."""
    return sum(device.free for device in query_devices(type)) or sys.maxsize


@functools.cache
def device_name(type: str) -> str:
    """The name of the first device of this type, such as NVIDIA H200; "" where that is unknown."""
    return next((device.name for device in query_devices(type)), "")


def use_device(row: Device, number: int, of: int) -> None:
    """Run on device `number` modulo `of` from now on, with TF32 off."""
    torch.accelerator.set_device_index(number % of)
    torch.set_float32_matmul_precision("highest")
    _set_tf32(row, [False] * len(row.tf32))


def _set_tf32(row: Device, values: Sequence[bool]) -> list[bool]:
    """Set a device's switches of TF32, and return what they were."""
    before = []
    for switch, value in zip(row.tf32, values, strict=True):
        path, _, name = switch.rpartition(".")
        owner = operator.attrgetter(path)(torch)
        before.append(getattr(owner, name))
        setattr(owner, name, value)
    return before


@contextlib.contextmanager
def tf32_off(device: str) -> Iterator[None]:
    """Products and convolutions of float32 keep all bits of their factors in the block, as in workers."""
    row, precision = device_row(device), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    before = _set_tf32(row, [False] * len(row.tf32))
    try:
        yield
    finally:
        _set_tf32(row, before)
        torch.set_float32_matmul_precision(precision)


def bound_memory(row: Device, share: float) -> None:
    """The tensors of this process have no more than this share of its device's memory, where torch can bound that: one
    program cannot take what the others need."""
    bound = getattr(torch.get_device_module(row.type), "set_per_process_memory_fraction", None)
    if bound is not None and share < 1:
        bound(share)


def context_is_usable(device: str) -> bool:
    """Whether the device still computes after an error. An illegal access ends its context; a device may also refuse
    each launch and yet have nothing to wait for, so that only a computation tells."""
    if device_row(device) is HOST:
        return True
    try:
        return (torch.ones((), device=device) + 1).item() == 2.0
    except torch.OutOfMemoryError:  # the program that failed still holds its memory
        return True
    except RuntimeError:
        return False


def poison(device: str) -> None:
    """Fill the accelerator's free memory with NaN, so that a kernel that writes nothing cannot inherit a right answer.

    On the CPU the worker's MALLOC_PERTURB_ does this for every free.
    """
    if device_row(device) is not HOST:
        blocks = [torch.full((2**power,), float("nan"), device=device) for power in _POWERS for _ in range(_BLOCKS)]
        synchronise(device)
        del blocks


def on_host(seen: Observation) -> Observation:
    """The observation with its tensors on the CPU, where they are judged. One that reaches beyond its storage cannot be
    read, and stays."""
    found = [*seen.outputs, *seen.gradients.values(), *seen.written.values()]
    far = [t for t in found if t is not None and device_row(t.device) is not HOST and within_storage(t)]
    near = {id(t): moved for t, moved in zip(far, moved_to(HOST.type, [t.detach() for t in far]), strict=True)}
    return replace(
        seen,
        outputs=[near.get(id(t), t) for t in seen.outputs],
        gradients={name: near.get(id(t), t) for name, t in seen.gradients.items()},
        written={name: near.get(id(t), t) for name, t in seen.written.items()},
    )


_lost = _collect = False
_KEPT: list[Any] = []  # what may hold memory of a context that is lost


def lose_context(error: BaseException) -> None:
    """Have nothing freed from now on: destructors of what lies on a device without a context abort the process, before
    it has told what happened. A frame keeps those that called it, and each of them its variables."""
    global _lost
    _lost = True
    gc.disable()
    _KEPT.append((sys._getframe(), error))


def collect_before_next() -> None:
    """Have frames collected before the next program, since a trace failed (`context_lost`)."""
    global _collect
    _collect = True


def context_lost() -> bool:
    """Whether this process computes no more: an illegal access takes a device's context with it.

    After a trace that failed within a transform of torch.func nothing has a gradient any more once its frames are
    collected (torch 2.13), so they are collected here, and not while the next program is drawn.
    """
    global _collect
    if _lost:
        return True
    if _collect:
        gc.collect()
        _collect = False
    return not (torch.ones((), requires_grad=True) * 2).requires_grad
