"""How faults are listed: their order, those without torch's promise apart, and short forms of their fields."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fuzzer.judgement.verdict import UNASKED, UNSUPPORTED
from fuzzer.ledger.cause import KERNELS
from fuzzer.ledger.faults import OPEN, STATES, Fault
from fuzzer.ledger.releases import numbers


def by_promise(faults: Sequence[Fault]) -> tuple[list[Fault], list[Fault]]:
    """The faults that break a promise of torch, and those that break none."""
    return [f for f in faults if f.verdict != UNSUPPORTED], [f for f in faults if f.verdict == UNSUPPORTED]


def urgency(fault: Fault) -> tuple[bool, int, int, int]:
    """The sort key of a fault, the most urgent first: open ones, the most severe, those nobody has judged and then
    those nobody has reported, the most frequent."""
    state = fault.state.name
    return state not in OPEN, fault.severity, STATES.index(state), -fault.occurrences


def to_post(faults: Sequence[Fault]) -> list[Fault]:
    """The faults that a person could report now, the most severe first: confirmed, promised, without an issue, alive on
    the newest release that the ledger knows."""
    tried = [place.split(" ")[0] for f in faults for place in (*f.lives_on, *f.gone_on)]
    newest = max(tried, key=numbers, default="")
    found = [
        f
        for f in by_promise(faults)[0]
        if f.state.name == "confirmed" and not f.state.issue and any(p.startswith(f"{newest} ") for p in f.lives_on)
    ]
    return sorted(found, key=urgency)


def devices(fault: Fault) -> list[str]:
    """The devices on which a fault lived at some time."""
    return sorted({place.split(" ")[1] for place in (*fault.lives_on, *fault.gone_on)})


def lives(fault: Fault) -> list[str]:
    """Where a fault lives and where it is gone, a line for each device: "cpu 2.11 2.13, not 2.15"."""
    lines = []
    for device in devices(fault):
        shows, gone = (
            " ".join(place.split(" ")[0].removesuffix(".0") for place in places if place.endswith(f" {device}"))
            for places in (fault.lives_on, fault.gone_on)
        )
        lines.append(
            " ".join([device, *([shows] if shows else [])]) + (f"{',' if shows else ''} not {gone}" if gone else "")
        )
    return lines


def short_side(fault: Fault) -> str:
    """The side at fault in a word, or why it is undecided; where eager was compared with eager, eager."""
    if fault.stage == KERNELS and (fault.side == UNASKED or fault.side.startswith(("compiled ", "eager "))):
        return "eager"
    return re.sub(" (wrong|differs|raises|dies|hangs)$", "", fault.side)


def short_issue(url: str) -> str:
    """`pytorch#180164` for an issue or pull request on GitHub; any other text as it is."""
    parts = url.split("/")
    return f"{parts[4]}#{parts[6]}" if url.startswith("https://github.com/") and len(parts) == 7 else url
