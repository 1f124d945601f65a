"""Faults as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fuzzer.findings.faults import Fault
from fuzzer.judgement.verdict import CLASSES, UNSUPPORTED

_LONG, _SHORT = "torch.nn.functional.", "F."
_COLORS = {"wrong": "red", "crashes": "red", "hangs": "red", "raises": "yellow"}


def by_promise(faults: Sequence[Fault]) -> tuple[list[Fault], list[Fault]]:
    """What torch promises, and what it does not."""
    return [f for f in faults if f.verdict != UNSUPPORTED], [f for f in faults if f.verdict == UNSUPPORTED]


def urgency(fault: Fault) -> tuple[int, bool, int]:
    """What a person should look at first: the worst class, what nobody has looked at, what was met most often."""
    return CLASSES.index(fault.verdict), fault.state.name != "new", -fault.occurrences


_NARROW = 100  # columns of a terminal below which times and counts are left out


def fault_table(faults: Sequence[Fault], width: int, title: str = "", chosen: str = "") -> Table:
    """One row for each fault, for a terminal of this width; the chosen one's id stands out."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("id", "class", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("title", ratio=3, min_width=24)
    table.add_column("device", no_wrap=True)
    wide = width >= _NARROW
    for name in ("first seen", "seen") if wide else ():
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lives on", ratio=1)
    table.add_column("issue", ratio=1, min_width=6)
    for f in faults:
        table.add_row(
            Text(f.id, style="reverse" if f.id == chosen else ""),
            Text(f.verdict, style=_COLORS.get(f.verdict, "")),
            f.state.name,
            Text(f.title.replace(_LONG, _SHORT)),
            " ".join(devices(f)),
            *((f.first_seen[:10], str(f.occurrences)) if wide else ()),
            Text(", ".join(releases(f))),
            Text("\n".join(short_issue(url) for url in f.state.issue.split()) or _about(f)),
        )
    return table


def devices(fault: Fault) -> list[str]:
    """The devices on which it was seen to live."""
    return sorted({place.split(" ")[1] for place in (*fault.lives_on, *fault.gone_on)})


def releases(fault: Fault) -> list[str]:
    """The releases on which it lives."""
    return sorted({place.split(" ")[0] for place in fault.lives_on})


def short_issue(url: str) -> str:
    """`pytorch#180164` for an issue or pull request on GitHub; any other text as it is."""
    parts = url.split("/")
    return f"{parts[4]}#{parts[6]}" if url.startswith("https://github.com/") and len(parts) == 7 else url


def _about(fault: Fault) -> str:
    return {"fixed": fault.state.fixed_in, "not-a-fault": fault.state.note}.get(fault.state.name, "")
