"""Faults as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fuzzer.findings.faults import Fault
from fuzzer.findings.listing import lives, short_issue, short_side, short_title

_COLORS = {"wrong": "red", "crashes": "red", "hangs": "red", "raises": "yellow"}
_SIDES, _COUNTS = 100, 140  # columns of a terminal below which the sides, and times and counts, are left out


def fault_table(faults: Sequence[Fault], width: int, title: str = "", chosen: str = "") -> Table:
    """One row for each fault, for a terminal of this width; the chosen one's id stands out."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("id", "class", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("title", ratio=3, min_width=24)
    sides, counts = width >= _SIDES, width >= _COUNTS
    if sides:
        table.add_column("side", no_wrap=True)
    for name in ("first seen", "seen") if counts else ():
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lives on", no_wrap=True)
    table.add_column("issue", ratio=1, min_width=6)
    for f in faults:
        table.add_row(
            Text(f.id, style="reverse" if f.id == chosen else ""),
            Text(f.verdict, style=_COLORS.get(f.verdict, "")),
            f.state.name,
            Text(short_title(f)),
            *([short_side(f)] if sides else []),
            *((f.first_seen[:10], str(f.occurrences)) if counts else ()),
            Text("\n".join(lives(f))),
            Text("\n".join(short_issue(url) for url in f.state.issue.split()) or _about(f)),
        )
    return table


def _about(fault: Fault) -> str:
    return {"fixed": fault.state.fixed_in, "not-a-fault": fault.state.note}.get(fault.state.name, "")
