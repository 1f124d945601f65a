"""Choosing programs by what was seen so far. The one door: only the command line and the benches go in.

`ARMS` are the kinds of guidance, by their `NAMES`; `guided` makes the schedule of a campaign under one, `read_log`
reads what an earlier one chose and `FromLog` runs that. `CODE` is the arm that chooses what is built, of `CHOSEN_FROM`
programs or more, and leaves the share `UNBUILT`. The shipped campaign draws by numbers alone and uses none of it
(docs/guidance.md). What needs torch is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fuzzer.guidance.names import CHOSEN_FROM, CODE, NAMES, UNBUILT

if TYPE_CHECKING:
    from fuzzer.guidance.arms import ARMS, Guidance
    from fuzzer.guidance.schedule import FromLog, guided, read_log, restore_guidance

__all__ = [
    "ARMS",
    "CHOSEN_FROM",
    "CODE",
    "NAMES",
    "UNBUILT",
    "FromLog",
    "Guidance",
    "guided",
    "read_log",
    "restore_guidance",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "arms" if name in ("ARMS", "Guidance") else "schedule"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
