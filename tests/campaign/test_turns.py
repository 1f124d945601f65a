"""Who runs next: exploring and triage share the workers; their rules in a campaign are in test_loop and test_queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.campaign.suspects.suspect import Step, Suspect
from fuzzer.campaign.turns import batches, dear_lanes, had_its_share, in_flight, lanes, turn
from fuzzer.judgement.verdict import Signature
from fuzzer.language.text import parse
from tests.campaign.fakes import OTHER, PROGRAM, SIGNATURE


@pytest.mark.parametrize(
    ("suspects", "flat", "engaged", "most"),
    [(0, True, False, 10), (9, False, False, 10), (9, True, False, 4), (9, True, True, 4), (0, False, True, 7)],
)
def test_exploring_gives_way_to_triage_that_is_at_work_and_to_many_suspects_on_a_plateau(
    suspects: int, flat: bool, engaged: bool, most: int
) -> None:
    assert batches(8, suspects, lambda: flat, engaged) == most


def test_one_worker_is_all_triages_while_that_is_at_work() -> None:
    assert batches(1, 0, lambda: False, True) == 0
    assert [in_flight(n) for n in (1, 2, 8)] == [2, 3, 10]
    assert [lanes(n) for n in (1, 8, 99)] == [1, 8, 64]
    assert [dear_lanes(n) for n in (1, 4, 8, 64)] == [1, 1, 2, 4]


def test_triage_has_a_quarter_of_the_cpu_and_a_minute_anyway() -> None:
    assert not had_its_share(59.0, 0.0, lambda: False)
    assert had_its_share(101.0, 300.0, lambda: False)
    assert not had_its_share(99.0, 300.0, lambda: False)
    assert not had_its_share(101.0, 300.0, lambda: True)


def test_the_cheap_comes_before_the_dear_and_a_silent_gradient_first() -> None:
    raises = Signature("compile_does_not_raise", "raises", "backward", "KeyError")
    silent, loud, crash = (Suspect(parse(PROGRAM), signature) for signature in (SIGNATURE, raises, OTHER))
    order = [
        replace(silent, step=Step.CONFIRM),
        silent,
        loud,
        replace(loud, step=Step.EXPLAIN),
        replace(crash, step=Step.WHOLE),
        replace(silent, step=Step.SETTLE),
        replace(loud, step=Step.SETTLE),
        replace(silent, slip=True),
        replace(silent, step=Step.DOUBT),
        replace(silent, step=Step.GROW),
    ]
    backwards = order[::-1]
    assert sorted(backwards, key=lambda s: turn(s, {}, False)) == order


def test_classes_take_turns_while_they_are_sorted() -> None:
    raises = Signature("compile_does_not_raise", "raises", "backward", "KeyError")
    silent, loud = Suspect(parse(PROGRAM), SIGNATURE), Suspect(parse(PROGRAM), raises)
    assert turn(silent, {}, False) < turn(loud, {}, False)
    assert turn(loud, {"wrong": 1}, False) < turn(silent, {"wrong": 1}, False)
    assert turn(silent, {"wrong": 1, "raises": 1}, False) < turn(loud, {"wrong": 1, "raises": 1}, False)
