"""What the command line says of guidance is what there is."""

from __future__ import annotations

from fuzzer import guidance
from fuzzer.guidance.names import NAMES


def test_the_names_are_those_of_the_arms_in_their_order() -> None:
    assert tuple(guidance.ARMS) == NAMES


def test_the_door_gives_all_that_it_names() -> None:
    assert all(hasattr(guidance, name) for name in guidance.__all__)
    assert not hasattr(guidance, "bandit_of_another")
