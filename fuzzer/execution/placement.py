"""Which device each worker of this process has."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

from fuzzer.execution.accelerator import DeviceState, count_devices, query_devices
from fuzzer.execution.capacity import WORKER_GPU_MEMORY

_LEAST_IDLE = 0.05  # of a device that others keep busy: a worker there still gets some of it


class Placement:
    """Devices of one type as they were before this process used them, and its workers on each; for any thread."""

    def __init__(self, devices: Sequence[DeviceState]):
        self.devices, self.workers = tuple(devices), [0] * len(devices)
        self.lock = threading.Lock()

    def take(self, among: Sequence[int] = ()) -> int:
        """The device of one more worker, among these or all: of those with memory for it, the one of whose time it gets
        most. Of equal ones each has its turn."""
        with self.lock:
            numbers = among or range(len(self.devices))
            roomy = [n for n in numbers if (self.workers[n] + 1) * WORKER_GPU_MEMORY <= self.devices[n].free]
            chosen = max(roomy or numbers, key=lambda n: (self._share(n), -n))
            self.workers[chosen] += 1
            return chosen

    def give(self, number: int) -> None:
        """A worker of this device ended."""
        with self.lock:
            self.workers[number] -= 1

    def _share(self, number: int) -> float:
        return max(_LEAST_IDLE, 1 - self.devices[number].busy) / (self.workers[number] + 1)


@functools.cache
def placement(type: str) -> Placement:
    """The placement of this process' workers on devices of a type; they are asked once, where there are several."""
    there = count_devices(type)
    found = query_devices(type) if there > 1 else []
    return Placement(found if found and len(found) == there else [DeviceState()] * max(1, there))
