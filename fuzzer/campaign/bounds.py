"""Within what a campaign stays: time, disk, memory; and when it has seen what it will see."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from fuzzer.campaign.heartbeat import free_bytes

# Below this nothing new begins: what runs, and what the campaign itself writes, has room left.
LEAST_FREE_BYTES = 256 * 2**20
_MEASURE_SECONDS = 10.0  # between two looks at how large the folder is


@dataclass(frozen=True)
class Bounds:
    """What a campaign may take. None: any.

    memory    bytes of the host, of all workers together.  disk  bytes of the campaign's folder.
    deadline  seconds of one program.  plateau  whether it ends when no family of features grows any more.
    """

    memory: int | None = None
    disk: int | None = None
    deadline: float | None = None
    plateau: bool = False


class Room:
    """Whether there is room on the disk to begin more programs."""

    def __init__(self, folder: Path, most: int | None):
        self.folder, self.most = folder, most
        self.size, self.measured = 0, 0.0

    def lacking(self) -> str:
        """Why nothing new can begin; "" where it can."""
        free = free_bytes(self.folder)
        if free < LEAST_FREE_BYTES:
            return f"the disk of {self.folder} has {mebibytes(free)} MiB left"
        if self.most is None:
            return ""
        if time.monotonic() - self.measured > _MEASURE_SECONDS or self.size > self.most:
            self.size, self.measured = folder_bytes(self.folder), time.monotonic()
        if self.size <= self.most:
            return ""
        return f"{self.folder} has {mebibytes(self.size)} MiB, more than --max-disk"


def folder_bytes(folder: Path) -> int:
    """Bytes that the files below a folder take; those that go meanwhile are left out."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total


def mebibytes(size: int) -> int:
    """Whole MiB of so many bytes."""
    return size // 2**20
