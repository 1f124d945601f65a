"""What a state's details may be."""

from __future__ import annotations

import pytest

from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.faults import State
from fuzzer.ledger.states import combined, mistake


@pytest.mark.parametrize("issue", ["https://github.com/pytorch/pytorch/issues/1", "#1", "pytorch#1", "a/b#12 #3", ""])
def test_an_issue_is_a_url_or_a_trackers_number(issue: str) -> None:
    assert mistake(State("known", issue)) == ""


@pytest.mark.parametrize("state", [State("known", "soon"), State("known", "#1 and"), State("fixed", fixed_in="next")])
def test_anything_else_is_told(state: State) -> None:
    assert repr((state.issue.split() or [state.fixed_in])[-1]) in mistake(state)


@pytest.mark.parametrize("release", ["2.15.0", "2.16", "2.14.0.dev20261122", ""])
def test_a_release_has_a_number(release: str) -> None:
    assert mistake(State("fixed", fixed_in=release)) == ""


CONFIRMED, KNOWN = State("confirmed", note="silent"), State("known", "#1", "as told")


def test_the_state_of_faults_that_become_one_is_the_one_that_says_most_with_the_notes_of_all() -> None:
    assert combined({"F1": State("new"), "F2": KNOWN, "F3": CONFIRMED}) == State("known", "#1", "as told; silent")
    assert combined({"F1": State("known", "#1 #2"), "F2": KNOWN}) == State("known", "#1 #2", "as told")
    assert combined({"F1": State("new"), "F2": State("fixed", fixed_in="2.14")}) == State("fixed", fixed_in="2.14")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KNOWN, State("known", "#2")),
        (KNOWN, State("reported", "#1")),
        (CONFIRMED, State("not-a-fault", note="legal")),
        (State("fixed", fixed_in="2.14"), State("fixed", fixed_in="2.15")),
    ],
)
def test_states_that_contradict_each_other_have_none_in_common(one: State, other: State) -> None:
    with pytest.raises(StoreError, match=f"F1 is {one.name}.*F2 is {other.name}.*`backfuzz triage F2 new`"):
        combined({"F1": one, "F2": other})
