"""A campaign's state: which change follows which, that a stop is for good, and that a pause ends where it began."""

from __future__ import annotations

import pytest

from fuzzer.campaign.state import CHANGES, Course, State


def at(*states: State) -> Course:
    made = Course()
    for state in states:
        made.change(state)
    return made


EXPLORING = (State.CHECKING, State.EXPLORING)


def test_a_campaign_goes_through_its_states_in_order_and_knows_since_when() -> None:
    made = Course()
    assert (made.state, made.seconds(State.EXPLORING)) == (State.STARTING, 0.0)
    for state in (*EXPLORING, State.SETTLING):
        made.change(state)
        assert made.state is state
    assert not made.wait(0.0)
    made.end()
    assert (made.state, made.wait(0.0), made.stopped) == (State.ENDED, True, False)
    assert list(made.since) == [State.STARTING, *EXPLORING, State.SETTLING, State.ENDED]
    assert sorted(made.since.values()) == list(made.since.values())
    assert made.seconds(State.EXPLORING) >= made.seconds(State.SETTLING) > 0


def test_every_state_has_its_changes_and_no_other_is_made() -> None:
    assert set(CHANGES) == set(State)
    with pytest.raises(AssertionError, match="from starting to exploring"):
        at(State.EXPLORING)
    with pytest.raises(AssertionError, match="from ending: triage to exploring"):
        at(*EXPLORING, State.SETTLING, State.EXPLORING)


def test_a_stop_is_for_good_whatever_the_main_thread_changes_to_meanwhile() -> None:
    made = at(State.CHECKING)
    made.stop()
    since = made.since[State.STOPPING]
    made.change(State.EXPLORING)
    made.pause("there is no g++")
    made.stop()
    assert (made.state, made.stopped, made.since[State.STOPPING]) == (State.STOPPING, True, since)
    assert State.EXPLORING not in made.since
    made.end()
    assert (made.state, made.stopped) == (State.ENDED, True)


@pytest.mark.parametrize("before", [EXPLORING, (*EXPLORING, State.SETTLING)], ids=["exploring", "settling"])
def test_a_pause_ends_where_it_began(before: tuple[State, ...]) -> None:
    made = at(*before)
    made.pause("there is no g++")
    made.pause("there is no g++")
    assert (made.state, made.lacks) == (State.PAUSED, "there is no g++")
    made.pause("")
    assert (made.state, made.lacks) == (before[-1], "")


def test_what_lacks_before_it_explores_is_no_pause() -> None:
    made = at(State.CHECKING)
    made.pause("there is no g++")
    assert (made.state, made.lacks) == (State.CHECKING, "there is no g++")
