"""Faults of the ledger run again under a Python, which is this one or has another torch, and the outcome stored."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fuzzer.diagnosis.matrix import Asked, ask_of, release_of, together, where_live
from fuzzer.ledger.faults import GONE, OPEN, SHOWS, Fault, State, release
from fuzzer.ledger.releases import numbers
from fuzzer.ledger.store import Store, open_store
from fuzzer.trial.places import runs_here

LIVING = (*OPEN, "fixed")  # the states of faults that are worth another run


def runnable(store: Store, faults: Collection[Fault], device: str | None = None) -> Asked:
    """The variants of faults by (fault, device), for the devices of this machine; with a device all of them there."""
    variants = {fault.id: store.variants(fault.id) for fault in faults}
    return {key: own for key, own in ask_of(variants, device).items() if runs_here(key[1])}


def run_under(
    python: Path, asked: Asked, db: Path, workers: int | None, time: str, mover: str = ""
) -> list[dict[str, Any]]:
    """Run faults under a Python and store where they live: a row for each fault and device.

    time    that the ledger keeps.  mover   in whose name states move as well (`moved`); "" leaves all as they are.
    """
    torch = release_of(python)
    told = where_live(python, asked, db, workers) if torch else {}
    rows: list[dict[str, Any]] = []
    with open_store(db) as store:
        for name, device in asked:
            each, fault = told.get((name, device), {}), store.fault(name)
            outcome = together(each) if each else f"not run: {python} imports no torch"
            state = moved(fault, release(torch), device, outcome) if mover else None
            if torch:
                store.note_life(name, torch, device, outcome, time)
            if state is not None:
                store.triage(name, state, time, mover)
            rows.append({"fault": name, "title": fault.title, "torch": torch, "device": device, "outcome": outcome,
                         "variants": each, "state": str(state or fault.state),
                         "came_back": fault.state.name == "fixed" and state is not None})  # fmt: skip
    return rows


def moved(fault: Fault, release: str, device: str, outcome: str) -> State | None:
    """The new state of a fault that ran again on a release and device; None where it stays as it is.

    An open fault that is gone from a release newer than all that showed it, each on this device, is fixed there. A
    fixed fault that reproduces on that release or a later one came back: it is confirmed.
    """
    state = fault.state
    shown = [place.split(" ") for place in fault.lives_on]
    newer = all(where == device and numbers(release) > numbers(then) for then, where in shown)
    if outcome == GONE and state.name in OPEN and newer:
        return State("fixed", state.issue, state.note, release)
    if outcome == SHOWS and state.name == "fixed" and numbers(release) >= numbers(state.fixed_in):
        return State("confirmed", state.issue, f"came back on {release}", "")
    return None
