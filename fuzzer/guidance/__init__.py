"""Choosing programs by what was seen so far. The one door: only the command line and the benches go in.

`ARMS` are the kinds of guidance, `guided` makes the schedule of a campaign under one, `read_log` reads what an earlier
one chose and `FromLog` runs that. `CODE` is the arm that chooses what is built, of `CHOSEN_FROM` programs or more, and
leaves the share `UNBUILT`; `CELLS` is the one whose programs are asked for cells. The shipped campaign draws blindly
and uses none of it (docs/guidance.md).
"""

from __future__ import annotations

from fuzzer.guidance.arms import ARMS, CELLS, CODE, Guidance
from fuzzer.guidance.rarest import CHOSEN_FROM, UNBUILT
from fuzzer.guidance.schedule import FromLog, guided, read_log, restore_guidance

__all__ = [
    "ARMS",
    "CELLS",
    "CHOSEN_FROM",
    "CODE",
    "UNBUILT",
    "FromLog",
    "Guidance",
    "guided",
    "read_log",
    "restore_guidance",
]
