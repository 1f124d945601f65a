"""What a state's details may be."""

from __future__ import annotations

import pytest

from fuzzer.ledger.faults import State
from fuzzer.ledger.states import mistake


@pytest.mark.parametrize("issue", ["https://github.com/pytorch/pytorch/issues/1", "#1", "pytorch#1", "a/b#12 #3", ""])
def test_an_issue_is_a_url_or_a_trackers_number(issue: str) -> None:
    assert mistake(State("known", issue)) == ""


@pytest.mark.parametrize("state", [State("known", "soon"), State("known", "#1 and"), State("fixed", fixed_in="next")])
def test_anything_else_is_told(state: State) -> None:
    assert repr((state.issue.split() or [state.fixed_in])[-1]) in mistake(state)


@pytest.mark.parametrize("release", ["2.15.0", "2.16", "2.14.0.dev20261122", ""])
def test_a_release_has_a_number(release: str) -> None:
    assert mistake(State("fixed", fixed_in=release)) == ""
