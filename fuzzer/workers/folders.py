"""Temporary folders that their owner locks: a folder without its owner's lock is left over from a dead process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzzer.language.errors import NoMachine, UsageError

_LOCK_FILE = "lock"


def in_command(path: Path) -> bool:
    """Whether inductor's compile command can hold a path: the command is text that is split at spaces outside of
    quotes."""
    with contextlib.suppress(ValueError):  # a quote that does not end
        return shlex.split(str(path)) == [str(path)]
    return False


def check_paths(devices: list[str]) -> None:
    """Raise NoMachine where C++ is compiled for a device, and torch or temporary files lie where a compile command
    cannot hold their path."""
    import torch  # the fork server starts before it is imported

    from fuzzer.language.devices import device_row

    if all(device_row(device).code != "cpp" for device in devices):
        return
    for what, folder in (("torch lies", torch.__path__[0]), ("temporary files lie (TMPDIR)", tempfile.gettempdir())):
        if not in_command(Path(folder)):
            raise NoMachine(
                f"{what} in {folder!r}; inductor's command to compile C++ cannot hold that path: "
                "move it to one without spaces, quotes and backslashes"
            )


class Folder:
    """A new folder, locked while this process lives; those that dead processes left beside it are removed.

    parent   where it lies; None, and where a compile command cannot hold that path: where temporary files do.
    prefix   of its name.
    """

    def __init__(self, parent: Path | None, prefix: str):
        parent = parent if parent is not None and in_command(parent.resolve()) else None
        place = Path(tempfile.gettempdir() if parent is None else parent)
        remove_abandoned(place, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()  # g++ runs elsewhere
        self.lock = lock_file(self.path / _LOCK_FILE)
        _own.add(self)

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
        _own.discard(self)


_own: set[Folder] = set()


def remove_own() -> None:
    """Remove every folder of this process, which is about to end."""
    for folder in list(_own):
        folder.remove()


@contextlib.contextmanager
def alone(folder: Path, command: str) -> Iterator[None]:
    """Only one campaign at a time runs in this folder, which is made. Raises UsageError where another campaign
    has it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LOCK_FILE
    lock = lock_file(path)
    if lock is None:
        raise UsageError(
            f"another campaign runs in {folder} ({path.read_text().strip()}): end it first, or start this one in "
            "another folder"
        )
    try:
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()}: {command}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def lock_file(path: Path) -> int | None:
    """A descriptor of this file, which is made, that keeps it locked until it is closed or this process ends; None
    where another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.close(descriptor)  # whoever had it removed it meanwhile
    return lock_file(path)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove folders of this prefix whose owner is dead. One that has no lock yet has just been made."""
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another's, or gone already
            if (folder / _LOCK_FILE).exists() and (lock := lock_file(folder / _LOCK_FILE)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
