"""How faults are listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.ledger.faults import Fault, State
from fuzzer.ledger.listing import by_promise, devices, lives, short_issue, short_side, to_post, urgency

LIVES = ("2.13.0 cpu", "2.13.0 cuda", "2.11.0 cuda")
FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), LIVES, ("2.15.0 cpu",))
APART = Fault("F2", "t", "unsupported", "", "", "", "2026", 1, 1, State("new"))


def test_a_fault_tells_its_devices_and_the_releases_on_which_it_lives() -> None:
    assert devices(FAULT) == ["cpu", "cuda"]
    assert lives(FAULT) == ["cpu 2.13, not 2.15", "cuda 2.13 2.11"]
    assert lives(replace(FAULT, lives_on=())) == ["cpu not 2.15"]


@pytest.mark.parametrize(
    ("fault", "side"),
    [
        (replace(FAULT, side="compiled wrong"), "compiled"),
        (replace(FAULT, side="compiled differs"), "compiled"),
        (replace(FAULT, side="neither wrong"), "neither"),
        (replace(FAULT, stage="eager", side="not diagnosed"), "eager"),
        (replace(FAULT, stage="eager", side="compiled wrong"), "eager"),  # another device's
        (replace(FAULT, stage="eager", side="compiled raises"), "eager"),
        (replace(FAULT, stage="eager", side="undecided"), "undecided"),
        (replace(FAULT, side="compiled raises"), "compiled"),
        (replace(APART, side="not diagnosed"), "not diagnosed"),
    ],
)
def test_a_fault_tells_who_is_wrong_or_that_nobody_asked(fault: Fault, side: str) -> None:
    assert short_side(fault) == side


def test_the_most_urgent_comes_first() -> None:
    often = replace(FAULT, id="F3", occurrences=9)
    known = replace(FAULT, id="F4", occurrences=99, state=State("known"))
    rare = replace(FAULT, id="F2", severity=22, occurrences=999)
    legal = replace(FAULT, id="F5", state=State("not-a-fault"))
    assert [f.id for f in sorted((legal, rare, known, FAULT, often), key=urgency)] == ["F3", "F1", "F4", "F2", "F5"]


def test_to_post_are_confirmed_ones_without_an_issue_that_the_newest_release_has() -> None:
    found = replace(FAULT, state=State("confirmed"), lives_on=("2.13.0 cpu", "2.15.0 cpu"), gone_on=())
    worse = replace(found, id="F2", severity=11)
    found = replace(found, severity=23)
    told = replace(found, id="F3", state=State("confirmed", issue="https://github.com/pytorch/pytorch/issues/1"))
    older = replace(found, id="F4", lives_on=("2.13.0 cpu",))
    apart = replace(found, id="F5", verdict="unsupported")
    assert [f.id for f in to_post([found, told, older, apart, replace(found, id="F6", state=State("new")), worse])] == [
        "F2", "F1",
    ]  # fmt: skip
    assert to_post([]) == []


def test_what_is_not_promised_comes_apart() -> None:
    assert by_promise([APART, FAULT]) == ([FAULT], [APART])


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("https://github.com/pytorch/pytorch/issues/180164", "pytorch#180164"),
        ("https://github.com/pytorch/pytorch/pull/7", "pytorch#7"),
        ("https://example.org/x", "https://example.org/x"),
    ],
)
def test_an_issue_is_short(url: str, short: str) -> None:
    assert short_issue(url) == short
