"""The files of a campaign: lines and files, each whole or not at all; where the disk is full, once there is room.

A campaign looks for room before it begins more programs (`Room`). Here the disk was filled since then, maybe by others.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fuzzer.workers.trouble import FULL

RETRY_SECONDS = 0.5


def now() -> str:
    """The time, in UTC, as every row of a log bears it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is made."""
    content = (line + "\n").encode()
    _once_there_is_room(lambda: _append(path, content), path)


def replace_file(path: Path, content: bytes) -> None:
    """Put a new file in the place of the old one, if there is one."""
    fresh = path.with_name(f"{path.name}.new")

    def write() -> None:
        fresh.write_bytes(content)
        fresh.replace(path)

    _once_there_is_room(write, path)


def _append(path: Path, content: bytes) -> None:
    with path.open("ab", buffering=0) as out:
        before, left = out.tell(), content
        try:
            while left:
                left = left[out.write(left) :]
        except OSError:
            os.ftruncate(out.fileno(), before)  # no half of a line in the middle
            raise


def _once_there_is_room(write: Callable[[], None], path: Path) -> None:
    """Do this again and again while the disk has no room, and say so once. Stopping the campaign ends that."""
    told = False
    while True:
        try:
            write()
            return
        except OSError as error:
            if error.errno not in FULL:
                raise
        if not told:
            told = True
            print(f"backfuzz: the disk of {path.parent} is full: waiting for room", file=sys.stderr, flush=True)
        time.sleep(RETRY_SECONDS)
