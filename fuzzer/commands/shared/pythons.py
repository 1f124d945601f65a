"""The Pythons that a command line names, each with a torch, and the outcome of faults that ran again with one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fuzzer.language.errors import UsageError
from fuzzer.ledger.faults import GONE, SHOWS


def find_pythons(releases: Sequence[str], pythons: Sequence[Path]) -> list[Path]:
    """The Pythons of these releases, and these; all that there are, this one last, if none is named. Raises
    UsageError."""
    from fuzzer.diagnosis.matrix import every_python, find_python

    if not releases and not pythons:
        return [*every_python(), Path(sys.executable)]
    found = [(release, find_python(release)) for release in releases]
    for release, python in found:
        if python is None:
            raise UsageError(f"no environment of torch {release}: `scripts/fuzz --torch {release}` makes one")
    return [*(python for _, python in found if python is not None), *pythons]


def outcomes(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of the faults that ran again with a torch reproduce, in words."""
    found = [row["outcome"] for row in rows]
    lives, gone = found.count(SHOWS), found.count(GONE)
    return f"{lives} reproduce, {gone} are gone, {len(rows) - lives - gone} are unknown"
