"""inductor's precompiled headers, kept from one fork server to the next: only the first campaign waits for them.

A header takes 6 CPU seconds and 150 MB. inductor names it by the text of all that it includes (torch's and the
compiler's), the compiler's version and its flags: what has the same name is the same header.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fuzzer.language.private import move_headers, watch_headers
from fuzzer.workers.kept import keep, longest_unused

MOST_KEPT = 4  # 600 MB: two releases of torch, each with two sets of flags
_BUILT = ".gch"  # after the header's own name


def keep_headers(folder: Path) -> None:
    """Have inductor find the headers of this folder, and keep there those that it makes; in this process and all that
    are forked from it. Where the folder cannot be used, inductor makes its headers as ever."""
    own = watch_headers(lambda header: _keep(header, folder))
    if own is not None:
        with contextlib.suppress(OSError):
            _take(folder, own)


def headers_apart(folder: Path) -> None:
    """Have inductor make its headers in this folder, in this process. The first process that calls this puts those
    into the folder that were made before; another process may use the same folder."""
    before = move_headers(folder)
    if before is not None and not folder.exists():
        _take(before, folder)


def _take(folder: Path, own: Path) -> None:
    """Put the headers of a folder where inductor looks for its own."""
    own.mkdir(parents=True, exist_ok=True)
    for built in folder.glob(f"*{_BUILT}"):
        header = built.with_suffix("")
        (own / header.name).write_bytes(header.read_bytes())
        _link(built, own / built.name)


def _keep(header: Path, folder: Path) -> None:
    """Put a header that inductor uses into a folder, whole or not at all, unless it is there. Those that were not used
    for longest are removed."""
    kept, built = folder / f"{header.name}{_BUILT}", header.with_name(f"{header.name}{_BUILT}")
    with contextlib.suppress(OSError):
        if kept.exists():
            os.utime(kept)
            return
        keep(header, folder / header.name)
        keep(built, kept)
        for old in longest_unused(list(folder.glob(f"*{_BUILT}")), MOST_KEPT):
            old.unlink(missing_ok=True)
            old.with_suffix("").unlink(missing_ok=True)


def _link(file: Path, name: Path) -> None:
    """Give a file another name; a symbolic one where the two lie on different disks."""
    try:
        os.link(file, name)
    except OSError:
        name.symlink_to(file)
