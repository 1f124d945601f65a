"""Files that are kept from one process to the next, in a folder that several of them use at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fuzzer.workers.folders import Folder

_BEGUN = "begun-"  # of the folder of a file that is not whole yet; those of dead processes go with the next


def kept_folder(what: str) -> Path:
    """Where files of this kind outlive their campaign: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backfuzz" / what


def keep(made: Path, kept: Path) -> None:
    """Copy a file into the folder of `kept`, which is made, whole or not at all. Raises OSError."""
    kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = Folder(kept.parent, _BEGUN)
    try:
        shutil.copy(made, beside.path / kept.name)
        (beside.path / kept.name).replace(kept)
    finally:
        beside.remove()


def longest_unused(files: list[Path], most: int) -> list[Path]:
    """Of more than `most` files, those to remove. A use sets a file's time of change."""
    return sorted(files, key=lambda path: path.stat().st_mtime)[:-most]
