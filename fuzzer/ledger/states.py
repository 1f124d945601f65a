"""What a person may say of a fault's state."""

from __future__ import annotations

import re

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
