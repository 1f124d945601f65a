"""Types of devices, one row each, with all facts that differ between types.

Functions that torch offers for every accelerator (`torch.accelerator`) need no fact here. This module imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Device:
    """A type of device; the defaults are those of an unknown accelerator.

    type         as torch names it.
    code         the language in which inductor writes kernels for it: triton, or cpp. Settings of that code act there.
    approximate  quotients, roots and means are not correctly rounded, and kernels may add up in the tensors' own dtype.
    graphs       whether inductor records and replays its kernels there, where a setting of Triton's requests that.
    per_core     workers for each core.
    limited      whether a worker's address space may have a limit; an accelerator's driver reserves more than any
                 limit.
    forks        whether a process may count these devices before it forks children that use them. torch promises that
                 where NVML counts (on ROCm, and on the first releases for xpu, it does not).
    tf32         switches of torch, on by default, with which a kernel keeps 10 bits of float32 factors; off in workers.
    environment  variables of workers that keep a search for such devices from touching one.
    hidden       starts of the names of variables that change how the device runs; workers do not see them.
    memcheck     the tool that finds accesses out of bounds, with its options.
    uncached     the variable that makes torch allocate each tensor on its own, so that the tool sees its bounds.
    """

    type: str
    code: str = "triton"
    approximate: bool = True
    graphs: bool = False
    per_core: int = 1
    limited: bool = False
    forks: bool = False
    tf32: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()
    memcheck: tuple[str, ...] = ()
    uncached: str = ""


HOST = Device("cpu", code="cpp", approximate=False, limited=True, forks=True)
ROWS = (
    HOST,
    # NVIDIA's; also AMD's, in a ROCm build, under the same names. per_core: on an H200 with 16 cores, 16 processes
    # compile 21 programs a second, 32 compile 29: a worker that waits for its GPU leaves its core idle.
    Device(
        "cuda",
        graphs=True,
        per_core=2,
        forks=True,
        tf32=("backends.cudnn.allow_tf32",),
        environment=(("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),),
        hidden=("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_"),
        memcheck=("compute-sanitizer", "--tool", "memcheck"),
        uncached="PYTORCH_NO_CUDA_MEMORY_CACHING",
    ),
    # Intel's. Not tried on one; per_core as for any device for which a worker waits.
    Device("xpu", per_core=2),
)
DEVICES: dict[str, Device] = {row.type: row for row in ROWS}
_ACCELERATORS = [name for name in DEVICES if name != HOST.type]
DEVICE_NAMES = ", ".join([HOST.type, *(f"{name}, {name}:N" for name in _ACCELERATORS)])
_NAME = re.compile(rf"{HOST.type}|(?:{'|'.join(_ACCELERATORS)})(?::\d+)?")


def is_device(name: str) -> bool:
    """Whether this names a device of a known type: one of NAMES. The machine need not have it."""
    return _NAME.fullmatch(name) is not None


def device_row(device: str | torch.device) -> Device:
    """The row of a device, `cuda` or `cuda:1`. Raises KeyError for an unknown type."""
    return DEVICES[str(device).partition(":")[0]]


def accelerator(devices: Iterable[str]) -> Device | None:
    """The row of the accelerator among these devices; torch has one type of them at a time. None where all are CPUs."""
    return next((row for row in map(device_row, devices) if row is not HOST), None)


def devices_with_code(code: str) -> tuple[str, ...]:
    """The types for which inductor writes this code."""
    return tuple(row.type for row in ROWS if row.code == code)


def synchronise(device: str | torch.device) -> None:
    """Wait until the device has finished all submitted work."""
    if device_row(device) is not HOST:
        import torch

        torch.accelerator.synchronize(device)
