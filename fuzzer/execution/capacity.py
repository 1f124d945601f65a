"""How many workers the machine has room for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A worker that waits for its GPU leaves its core idle: on an H200 with 16 cores, 16 processes compile 21 programs a
# second, 32 compile 29. On the CPU a compile keeps its core busy.
PER_CORE = {"cpu": 1, "cuda": 2}
# Bytes. A worker begins with 0.3 GiB and grows by 1.5 MB a program, for 200 programs; a C++ compiler runs beside it.
RAM_EACH = 2**30
# Bytes of a GPU: a CUDA context with cuBLAS and what an allocator keeps; programs themselves are small.
GPU_MEMORY_EACH = 2**30
CGROUP, MEMORY = Path("/sys/fs/cgroup"), Path("/proc/meminfo")


def default_workers(devices: Sequence[str] = ("cpu",)) -> int:
    """Workers for these devices: one a core, two where one of them is a GPU; fewer where RAM or the GPUs' memory has
    room for fewer, one GiB each. At least one."""
    kind = "cuda" if any(device.startswith("cuda") for device in devices) else "cpu"
    room = [cores() * PER_CORE[kind], free_ram() // RAM_EACH]
    if kind == "cuda":
        room.append(free_gpu_memory() // GPU_MEMORY_EACH)
    return max(1, min(room))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def free_ram() -> int:
    """Bytes of memory that are free or can be made free, within the container's limit; a lot where nothing tells."""
    found = [sys.maxsize]
    if MEMORY.exists():
        found.append(int(MEMORY.read_text().partition("MemAvailable:")[2].split()[0]) * 1024)
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip().isdecimal():
        found.append(int(limit.read_text()) - int(used.read_text()))
    return max(0, min(found))


def free_gpu_memory() -> int:
    """Bytes free on the GPUs that torch sees, which workers use in turn; a lot where nvidia-smi does not tell.

    Asked of nvidia-smi, because torch would have to touch the GPU in the process that starts the workers.
    """
    import torch

    if shutil.which("nvidia-smi") is None:
        return sys.maxsize
    query = ("nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits")
    told = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False).stdout.split()
    free = [int(mebibytes) * 2**20 for mebibytes in told if mebibytes.isdecimal()]
    return min(free) * max(1, torch.cuda.device_count()) if free else sys.maxsize
