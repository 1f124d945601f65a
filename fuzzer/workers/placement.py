"""The accelerator of each worker, and which accelerators still answer."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from fuzzer.workers.accelerator import DeviceState, count_devices, query_devices
from fuzzer.workers.capacity import WORKER_GPU_MEMORY

_LEAST_IDLE = 0.05  # of a device that others keep busy: a worker there still gets some of it


class Placement:
    """The devices of one type as they were before this process used them, and its workers on each. Any thread may call
    it."""

    def __init__(self, devices: Sequence[DeviceState]):
        self.devices, self.workers = tuple(devices), [0] * len(devices)
        self.lock = threading.Lock()

    def take(self, among: Sequence[int] = ()) -> int:
        """The device of one more worker, among these or all: of the devices with enough memory, the one that gives a
        worker most of its time. Equal ones take turns."""
        with self.lock:
            numbers = among or range(len(self.devices))
            roomy = [n for n in numbers if (self.workers[n] + 1) * WORKER_GPU_MEMORY <= self.devices[n].free]
            chosen = max(roomy or numbers, key=lambda n: (self._share(n), -n))
            self.workers[chosen] += 1
            return chosen

    def give(self, number: int) -> None:
        """Note that a worker of this device ended."""
        with self.lock:
            self.workers[number] -= 1

    def _share(self, number: int) -> float:
        return max(_LEAST_IDLE, 1 - self.devices[number].busy) / (self.workers[number] + 1)


@functools.cache
def placement(type: str) -> Placement:
    """The placement of this process' workers on devices of a type. Where there are several, the devices are queried
    once."""
    there = count_devices(type)
    found = query_devices(type) if there > 1 else []
    return Placement(found if found and len(found) == there else [DeviceState()] * max(1, there))


# Lives of workers in a row, on one device, that ended by themselves before a second task. A program that takes its
# worker with it may end one so; then the device is asked, which takes seconds, and so this need not be rare.
_SHORT_LIVES = 4
ASK_SECONDS = 60.0  # importing torch from a cold disk takes 20
_ASK = """
import sys, torch
device = torch.device(sys.argv[1], int(sys.argv[2]))
print((torch.ones(65536, device=device) + 1).sum().item())
"""


def answers(type: str, index: int) -> bool:
    """Whether a new process can compute on this device, and soon enough; also where no process can be started, which
    says nothing about the device."""
    command = (sys.executable, "-P", "-c", _ASK, type, str(index))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    except OSError:
        return True
    return done.stdout.strip() == "131072.0"


class Answering:
    """The devices of a type on which workers may be.

    among   their indices; none for the CPU.  silent   those that do not answer any more.
    """

    def __init__(self, type: str, among: Sequence[int], ask: Callable[[str, int], bool] = answers):
        self.type, self.among, self.ask = type, among, ask
        self.silent: list[int] = []
        self.short = Counter[int]()  # lives in a row
        self.lock = threading.Lock()

    def left(self) -> Sequence[int]:
        """The devices on which a worker may begin: those that answer, all where none does."""
        return [index for index in self.among if index not in self.silent] or self.among

    def lived(self, index: int, tasks: int) -> str:
        """A worker on this device ended by itself after so many tasks, 0 where it did not start. Why there is no use in
        starting others; "" where there is."""
        if not self.among:
            return ""
        with self.lock:  # the others wait for what is found out
            self.short[index] = 0 if tasks > 1 else self.short[index] + 1
            if self.short[index] >= _SHORT_LIVES and index not in self.silent:
                self.short[index] = 0
                if not self.ask(self.type, index):
                    self.silent.append(index)
            if set(self.silent) < set(self.among):
                return ""
        return f"no {self.type.upper()} device answers any more"
