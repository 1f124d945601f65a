"""Things that the machine lacks while a program runs: room on the disk, descriptors, a compiler. No program is to
blame."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

# What a Report begins with of a program that could not run for that: it says nothing of the program, which runs again.
TROUBLE = "the machine fails"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ERRORS = FULL | {errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EIO}
_COMPILERS = re.compile(r"(.*-)?(g\+\+|c\+\+|clang\+\+|gcc|cc|clang|ld)(-[\d.]+)?")
# As compilers say it, and what calls them: inductor, Triton.
_SAID = re.compile(
    r"No space left on device|Disk quota exceeded|Killed signal terminated program \w+|"
    r"cannot execute \W?cc1plus|No working C\+\+ compiler found|Failed to find C compiler"
)


def trouble(error: BaseException) -> str:
    """The thing that the machine lacked, where this exception, or one that caused it, says so; "" for any other."""
    return next(filter(None, map(_lacking, _origins(error))), "")


def _origins(error: BaseException | None) -> Iterator[BaseException]:
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__


def _lacking(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _ERRORS:
        return os.strerror(error.errno or 0)
    if isinstance(error, FileNotFoundError | PermissionError):
        name = Path(os.fsdecode(error.filename)).name if isinstance(error.filename, str | bytes) else ""
        return f"there is no {name}" if _COMPILERS.fullmatch(name) else ""
    said = _SAID.search(str(error)) if isinstance(error, RuntimeError) else None
    return said[0] if said else ""
