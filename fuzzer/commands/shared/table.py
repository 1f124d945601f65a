"""Faults and findings as tables for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from fuzzer.judgement.verdict import UNSUPPORTED
from fuzzer.ledger.faults import Fault
from fuzzer.ledger.listing import lives, short_issue, short_side, urgency
from fuzzer.ledger.proposals import Proposal
from fuzzer.ledger.rulings import MERGE, SPLIT
from fuzzer.ledger.severity import label

Listed = TypeVar("Listed")

_COLORS = {"wrong": "red", "crashes": "red", "hangs": "red", "raises": "yellow"}
_UNBOUNDED = 200  # columns where nobody says how many there are: a table in a file
_MOST = 20  # columns of a cell beside the title, where a fault has one line
_SIDES, _COUNTS = 100, 140  # columns of a terminal below which the sides, and times and counts, are left out


class Console(RichConsole):
    """Standard output: as wide as the terminal is, or for a file wide enough; a reader that has enough ends the command
    as it does elsewhere (`exits`)."""

    def __init__(self) -> None:
        super().__init__()
        if not self.is_terminal:
            self.width = _UNBOUNDED

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def fault_table(
    faults: Sequence[Fault], width: int, title: str = "", chosen: str = "", one_line: bool = False
) -> Table:
    """One row for each fault, for a terminal of this width; the chosen one's id stands out. one_line: what does not fit
    into a line is cut."""
    sides, counts = width >= _SIDES, width >= _COUNTS
    line = "; " if one_line else "\n"
    columns = {
        "id": [Text(f.id, style="reverse" if f.id == chosen else "") for f in faults],
        "sev": [Text(label(f.severity)) for f in faults],
        "class": [Text(f.verdict, style=_COLORS.get(f.verdict, "")) for f in faults],
        "state": [Text(f.state.name) for f in faults],
        "title": [Text(f.title) for f in faults],
    }
    columns |= {"side": [Text(short_side(f)) for f in faults]} if sides else {}
    if counts:
        columns |= {"first seen": [Text(f.first_seen[:10]) for f in faults]}
        columns |= {"seen": [Text(str(f.occurrences)) for f in faults]}
    if sides or not one_line:
        columns["lives on"] = [Text(line.join(lives(f))) for f in faults]
        issues = [line.join(map(short_issue, f.state.issue.split())) or _about(f) for f in faults]
        columns |= {"issue": list(map(Text, issues))} if any(issues) or not one_line else {}
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    if one_line:
        widths = {name: min(_MOST, max([len(name), *map(len, cells)])) for name, cells in columns.items()}
        widths["title"] = max(1, width - sum(widths.values()) + widths["title"] - 2 * (len(widths) - 1))
        for name, most in widths.items():
            table.add_column(name, width=most, no_wrap=True, overflow="ellipsis")
    else:
        for name in columns:
            given: dict[str, Any] = {"title": {"ratio": 3, "min_width": 24}, "issue": {"ratio": 1, "min_width": 6}}
            table.add_column(name, justify="right" if name == "seen" else "left", **given.get(name, {"no_wrap": True}))
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def finding_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """One row for each finding, as a mapping: `id, fault, class, state, where, direction, pattern, oracle`."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    whole = [(r["id"], r["fault"], r["class"], r["state"], r["where"]) for r in rows]
    for name, *cells in zip(("id", "fault", "class", "state", "found on"), *whole, strict=True):
        table.add_column(name, no_wrap=True, min_width=max(map(len, cells), default=0))
    table.add_column("what differs", ratio=1)  # the one that gives way
    for row, (*ids, verdict, state, where) in zip(rows, whole, strict=True):
        differs = " ".join(filter(None, (row["direction"], row["pattern"], row["oracle"])))
        table.add_row(
            *ids,
            Text(verdict, style=_COLORS.get(verdict, "")),
            state,
            where,
            Text(differs, no_wrap=True, overflow="ellipsis"),
        )
    return table


def print_findings(rows: Sequence[Mapping[str, Any]]) -> None:
    """Findings as a table (`finding_table`), into a file or a pipe as a line each."""
    told = f"{len(rows)} finding(s)"
    if _is_terminal(told):
        _print_apart(rows, lambda row: str(row["class"]), lambda some, _, title: finding_table(some, title))
        Console().print(told)
        return
    _print_lines(_FINDING, [[str(row[name]) for name in _FINDING] for row in rows])


def print_faults(found: Sequence[Fault]) -> None:
    """Faults as a table, the most urgent first; into a file or a pipe as a line each."""
    there, states = sorted(found, key=urgency), [fault.state.name for fault in found]
    counts = ", ".join(f"{states.count(name)} {name}" for name in dict.fromkeys(states))
    told = f"{len(found)} fault(s){f': {counts}' if counts else ''}"
    if _is_terminal(told):
        _print_apart(there, lambda fault: fault.verdict, fault_table)
        Console().print(told)
        return
    _print_lines(_FAULT, [
        [f.id, label(f.severity), f.verdict, f.state.name, f.title, short_side(f), f.first_seen[:10],
         str(f.occurrences), "; ".join(lives(f)), f.state.issue or _about(f)]
        for f in there
    ])  # fmt: skip


def print_proposals(found: Sequence[Proposal]) -> None:
    """Merges and splits that are proposed, as a table; into a file or a pipe as a line each."""
    kinds = [one.kind for one in found]
    told = f"{len(found)} proposal(s): {kinds.count(MERGE)} merge(s), {kinds.count(SPLIT)} split(s)"
    if _is_terminal(told):
        for one in found:
            Console().print(Text(one.command), Text(f"  {one.why}", style="dim"), sep="\n", soft_wrap=True)
        Console().print(told)
        return
    _print_lines(
        ("kind", "faults", "findings", "why", "command"),
        [[one.kind, " ".join(one.faults), " ".join(one.variants), one.why, one.command] for one in found],
    )


_FAULT = ("id", "sev", "class", "state", "title", "side", "first seen", "seen", "lives on", "issue")
_FINDING = ("id", "fault", "class", "state", "where", "direction", "pattern", "oracle")


def _is_terminal(told: str) -> bool:
    """Whether standard output is a terminal; else the count goes to stderr, so that a pipe has lines of one kind."""
    terminal = Console().is_terminal
    if not terminal:
        print(told, file=sys.stderr)
    return terminal


def _print_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A line of names, and one for each row, with tabs between cells."""
    for row in (head, *rows):
        print("\t".join(" ".join(cell.split()) for cell in row))


def _print_apart(
    listed: Sequence[Listed], verdict: Callable[[Listed], str], table: Callable[[Sequence[Listed], int, str], Table]
) -> None:
    """Print a table, and another of the cases about which torch promises nothing."""
    console = Console()
    promised = [one for one in listed if verdict(one) != UNSUPPORTED]
    apart = [one for one in listed if verdict(one) == UNSUPPORTED]
    if promised:
        console.print(table(promised, console.width, ""))
    if apart:
        console.print(table(apart, console.width, f"\ntorch promises nothing here ({UNSUPPORTED})"))


def named_table(title: str, told: Mapping[str, str]) -> Table:
    """A name and a text in each row."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", overflow="fold", max_width=40)
    table.add_column(overflow="fold", ratio=1)
    for name, text in told.items():
        table.add_row(Text(name), Text(text))
    return table


def _about(fault: Fault) -> str:
    return {"fixed": fault.state.fixed_in, "not-a-fault": fault.state.note}.get(fault.state.name, "")
