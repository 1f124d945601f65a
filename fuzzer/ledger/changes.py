"""The faults of a ledger that changed between two readings: new ones, ones with another state, ones that came back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fuzzer.ledger.faults import OPEN, Fault, State
from fuzzer.ledger.listing import lives, urgency
from fuzzer.ledger.severity import label


@dataclass(frozen=True)
class Changes:
    """The differences between two readings of a ledger; of each kind the most urgent fault first.

    came_back   was fixed, and is open.  moved   each fault with its state before.
    new         was not in the first reading.
    """

    came_back: tuple[Fault, ...] = ()
    moved: tuple[tuple[State, Fault], ...] = ()
    new: tuple[Fault, ...] = ()

    @property
    def bad(self) -> bool:
        """Whether a person should look: a fault is new or came back."""
        return bool(self.came_back or self.new)


def changes(before: Sequence[Fault], after: Sequence[Fault]) -> Changes:
    """The differences of the second reading from the first. Faults that were united with another are not reported."""
    known = {fault.id: fault.state for fault in before}
    there = sorted(after, key=urgency)
    came_back = [f for f in there if f.state.name in OPEN and f.id in known and known[f.id].name == "fixed"]
    moved = [(known[f.id], f) for f in there if f.id in known and known[f.id] != f.state and f not in came_back]
    return Changes(tuple(came_back), tuple(moved), tuple(f for f in there if f.id not in known))


def change_lines(told: Changes) -> Iterator[str]:
    """Changes for people: a heading for each kind that occurs, and a line for each fault."""
    if told.came_back:
        yield "came back:"
        yield from (f"  {_line(fault)}" for fault in told.came_back)
    if told.new:
        yield "new:"
        yield from (f"  {_line(fault)}" for fault in told.new)
    if told.moved:
        yield "moved:"
        yield from (f"  {_line(fault)}: {before} -> {fault.state}" for before, fault in told.moved)
    if not (told.came_back or told.new or told.moved):
        yield "no fault is new, came back or moved"


def _line(fault: Fault) -> str:
    where = "; ".join(lives(fault))
    return f"{fault.id}  {label(fault.severity)}  {fault.verdict}  {fault.title}{f' ({where})' if where else ''}"


def encode_changes(told: Changes) -> dict[str, Any]:
    """Changes as JSON: the faults' ids, and for moved faults both states."""
    moved = [{"fault": fault.id, "from": str(before), "to": str(fault.state)} for before, fault in told.moved]
    return {"came_back": [f.id for f in told.came_back], "new": [f.id for f in told.new], "moved": moved}
