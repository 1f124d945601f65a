"""What a person may say of a fault's state, and the state of faults that become one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.faults import State
from fuzzer.ledger.releases import numbers

# A URL, or an issue of a tracker as GitHub writes it: #1, pytorch#1, pytorch/pytorch#1.
_ISSUE = r"https?://\S+|([\w.-]+(/[\w.-]+)?)?#\d+"


def mistake(state: State) -> str:
    """Which detail of a state is not what it should be, and what to write; "" where all are."""
    for issue in state.issue.split():
        if not re.fullmatch(_ISSUE, issue):
            return f"{issue!r} is no issue: write its URL, or a tracker's #number"
    if state.fixed_in and not numbers(state.fixed_in):
        return f"{state.fixed_in!r} is no release: write a version of torch, such as 2.15.0"
    return ""


# States that do not contradict each other, the one that says most last.
_CHAINS = (("new", "confirmed", "known"), ("new", "confirmed", "reported"), ("new", "fixed"), ("new", "not-a-fault"))


def combined(said: Mapping[str, State]) -> State:
    """The state of one fault made of several, given by their ids: the one that says most, with the notes of all. `new`
    says nothing, `confirmed` less than `known` and `reported`.

    Raises StoreError for states, issues or releases that contradict each other.
    """
    states = list(said.values())
    chain = next((chain for chain in _CHAINS if all(state.name in chain for state in states)), None)
    issues = max((state.issue for state in states), key=lambda text: len(text.split()))
    releases = {state.fixed_in for state in states} - {""}
    agree = all(set(state.issue.split()) <= set(issues.split()) for state in states)
    if chain is None or not agree or len(releases) > 1:
        told = ", ".join(
            f"{name} is {state.name} {state.issue or state.fixed_in}".strip() for name, state in said.items()
        )
        raise StoreError(
            f"{told}: one fault cannot be all of it; give them one state first, "
            f"or clear one: `backfuzz triage {list(said)[-1]} new`"
        )
    name = max((state.name for state in states), key=chain.index)
    notes = dict.fromkeys(state.note for state in states if state.note)
    return State(name, issues, "; ".join(notes), next(iter(releases), ""))
