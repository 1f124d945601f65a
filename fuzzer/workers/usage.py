"""CPU seconds and peak memory of a run."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import psutil
import torch

from fuzzer.language.devices import HOST, device_row

_PROCESS = Path("/proc/self")


def cpu_seconds() -> float:
    """CPU seconds so far of this process and of its children that have ended, such as the C++ compiler."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def resident_bytes(pid: int) -> int:
    """Bytes of the host's memory that a process has; 0 where there is no such process, or this cannot be measured."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


class Peak:
    """Peak memory of a `with` block beyond what was in use before it, in `bytes`.

    Of the accelerator where the device is one, else of the process, by Linux' own files: psutil resets no mark. None
    where it cannot be measured (no Linux).
    """

    def __init__(self, device: str):
        self.device = device
        self.bytes: int | None = None

    def __enter__(self) -> Peak:
        self.start = self._reset()
        return self

    def __exit__(self, *rest: object) -> None:
        if self.start is not None:
            self.bytes = max(0, self._highest() - self.start)

    def _reset(self) -> int | None:
        if device_row(self.device) is not HOST:
            torch.accelerator.reset_peak_memory_stats(self.device)
            return torch.accelerator.memory_allocated(self.device)
        with contextlib.suppress(OSError):
            (_PROCESS / "clear_refs").write_text("5")  # the highest mark becomes what is in use now
            return self._highest()
        return None

    def _highest(self) -> int:
        if device_row(self.device) is not HOST:
            return torch.accelerator.max_memory_allocated(self.device)
        status = (_PROCESS / "status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
