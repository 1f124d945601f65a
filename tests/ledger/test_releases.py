"""Releases in their order, and where a fault lives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from fuzzer.diagnosis.rerun import moved
from fuzzer.ledger.faults import GONE, SHOWS, Fault, State
from fuzzer.ledger.releases import Span, numbers, span

FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu", "2.11.0 cpu"), ("2.15.0 cpu",))


def test_a_span_is_of_one_device_in_the_order_of_releases() -> None:
    assert span(FAULT, "cpu") == Span("2.11.0", "2.13.0", "2.15.0")
    assert span(FAULT, "cuda") == Span()
    early = replace(FAULT, lives_on=("2.9.1 cpu", "2.13.0 cpu"), gone_on=("2.8.0 cpu",))
    assert span(early, "cpu") == Span("2.9.1", "2.13.0", "")


def test_a_nightly_build_is_older_than_its_release_and_newer_than_the_one_before() -> None:
    ordered = ["2.9.1", "2.14.0.dev20261121+cpu", "2.14.0.dev20261122", "2.14.0a0+git12", "2.14.0rc1", "2.14", "2.14.1"]
    assert all(numbers(older) < numbers(newer) for older, newer in pairwise(ordered))
    assert numbers("2.14") == numbers("2.14.0+cu130")
    nightly = "2.14.0.dev20261122"
    fixed = replace(FAULT, state=State("fixed", fixed_in=nightly))
    assert moved(replace(FAULT, lives_on=("2.13.0 cpu",)), nightly, "cpu", GONE) == fixed.state
    came_back = moved(fixed, "2.14.0", "cpu", SHOWS)
    assert came_back is not None
    assert came_back.name == "confirmed"
