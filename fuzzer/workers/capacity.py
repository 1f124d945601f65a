"""How many workers fit the machine's cores and memory."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from fuzzer.language.devices import HOST, accelerator
from fuzzer.workers.accelerator import free_memory

# Bytes. A worker begins with 0.3 GiB and grows by 1.5 MB a program, for 200 programs; a C++ compiler runs beside it.
_WORKER_RAM = 2**30
LEAST_RAM = _WORKER_RAM // 2  # room for the beginning and some 140 programs, before a worker is replaced
# Bytes of a GPU: a context with its libraries and what an allocator keeps; programs themselves are small.
WORKER_GPU_MEMORY = 2**30
CGROUP = Path("/sys/fs/cgroup")


def default_workers(devices: Sequence[str] = ("cpu",)) -> int:
    """The number of workers for these devices: so many for each core (`Device.per_core`), fewer where RAM or the GPUs'
    memory has room for fewer, at one GiB each. At least one."""
    found = accelerator(devices)
    room = [cores() * (found or HOST).per_core, free_ram() // _WORKER_RAM]
    if found:
        room.append(free_memory(found.type) // WORKER_GPU_MEMORY)
    return max(1, min(room))


def most_workers() -> int:
    """The largest number of workers that is no mistake: 16 for each core, and no more than half of the descriptors
    allow, of which each worker takes three."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(16 * cores(), descriptors // 6))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def free_ram() -> int:
    """Bytes of memory that are free or can be made free, within the container's limit."""
    found = [psutil.virtual_memory().available]
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip().isdecimal():
        found.append(int(limit.read_text()) - int(used.read_text()))
    return max(0, min(found))
