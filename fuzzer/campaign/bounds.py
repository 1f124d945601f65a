"""The bounds of a campaign (time, disk, memory), and whether the machine has all that a program needs."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzer.campaign.told.logs import free_bytes
from fuzzer.judgement.trial import Subject
from fuzzer.language.devices import HOST, device_row
from fuzzer.language.errors import NoMachine
from fuzzer.workers.trouble import TROUBLE

if TYPE_CHECKING:  # it needs torch
    from fuzzer.workers.messages import Report

# Below this nothing new begins: what runs, and what the campaign itself writes, has room left.
LEAST_FREE_BYTES = 256 * 2**20
# Programs that a corpus keeps unless `fuzz --keep` says otherwise, each with its features in some 8 KiB of memory and 9
# of disk (docs/speed.md, "Flat?"). Nearly every program shows something new: in two weeks a GPU would keep millions.
MOST_KEPT = 1 << 14
# Keys of suspects that are kept, unless `fuzz --keep-keys` says otherwise, each with at most nine suspects. A compiler
# with many faults shows new keys sooner than triage decides them.
MOST_KEYS = 1 << 10
_MEASURE_SECONDS = 10.0  # between two looks at how large the folder is
_MOST_TRIES = 3  # of a program, where it is the one that fills the disk


@dataclass(frozen=True)
class Bounds:
    """What a campaign may take. None: any.

    memory    bytes of the host, of all workers together.  disk  bytes of the campaign's folder.
    deadline  seconds of one program.  plateau  whether it ends when no family of features grows any more.
    kept      programs that its corpus keeps.  keys  of suspects: so many that are decided, and so many others.
    """

    memory: int | None = None
    disk: int | None = None
    deadline: float | None = None
    plateau: bool = False
    kept: int = MOST_KEPT
    keys: int = MOST_KEYS


class Room:
    """Whether the disk has room for more programs, and whether the compiler is there.

    compiler   the command that compiles the programs' C++; "" where they need none.
    """

    def __init__(self, folder: Path, most: int | None, compiler: str = ""):
        self.folder, self.most, self.compiler = folder, most, compiler
        self.size, self.measured = 0, 0.0
        self.tries = Counter[int]()

    def without_troubled(self, numbers: Sequence[int], reports: Sequence[Report | None]) -> list[Report | None]:
        """The Reports of these programs. A program that ran while the machine lacked something has None and runs again,
        a few times at most."""
        found: list[Report | None] = []
        for number, report in zip(numbers, reports, strict=True):
            again = report is not None and report.rejected.startswith(TROUBLE) and self.tries[number] < _MOST_TRIES
            self.tries.update([number] if again else [])
            found.append(None if again else report)
        return found

    def require_compiler(self) -> None:
        """Raises NoMachine where the programs need a compiler that is not there."""
        if self.compiler and shutil.which(self.compiler) is None:
            raise NoMachine(
                f"there is no {self.compiler}, with which inductor compiles C++: install it (on Debian and Ubuntu the "
                "package g++), or name another in the variable CXX"
            )

    def lacking(self) -> str:
        """Why nothing new can begin; "" where it can."""
        if self.compiler and shutil.which(self.compiler) is None:
            return f"there is no {self.compiler}"
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


def compiler_of(subject: Subject) -> str:
    """The command that inductor calls for a subject's C++; "" where it needs none."""
    built = subject.compiler == "inductor" and device_row(subject.device) is HOST
    return os.environ.get("CXX", "g++") if built else ""


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
