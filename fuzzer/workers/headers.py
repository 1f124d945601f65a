"""inductor's precompiled headers, kept from one fork server to the next: only the first campaign waits for them.

A header takes 6 CPU seconds and 150 MB. inductor names it by the text of all that it includes (torch's and the
compiler's), the compiler's version and its flags: what has the same name is the same header.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from fuzzer.language.private import watch_headers
from fuzzer.workers.folders import Folder

MOST_KEPT = 4  # 600 MB: two releases of torch, each with two sets of flags
_BUILT = ".gch"  # after the header's own name
_BEGUN = "begun-"  # of the folder of a header that is not whole yet; what a dead process left is removed


def kept_folder() -> Path:
    """Where headers are kept: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backfuzz" / "headers"


def keep_headers(folder: Path) -> None:
    """Have inductor find the headers of this folder, and keep there those that it makes; in this process and all that
    are forked from it. Where the folder cannot be used, inductor makes its headers as ever."""
    own = watch_headers(lambda header: _keep(header, folder))
    if own is not None:
        with contextlib.suppress(OSError):
            _take(folder, own)


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
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / header.name).write_bytes(header.read_bytes())
        beside = Folder(folder, _BEGUN)
        try:
            whole = beside.path / built.name
            shutil.copyfile(built, whole)
            whole.replace(kept)
        finally:
            beside.remove()
        for old in sorted(folder.glob(f"*{_BUILT}"), key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
            old.with_suffix("").unlink(missing_ok=True)


def _link(file: Path, name: Path) -> None:
    """Give a file another name; a symbolic one where the two lie on different disks."""
    try:
        os.link(file, name)
    except OSError:
        name.symlink_to(file)
