"""Campaigns of kin: the order in which they run, and what they tell."""

from __future__ import annotations

from typing import Any

from fuzzer.campaign.by_kin import ByKin, in_turns
from fuzzer.campaign.mixture import source_of
from fuzzer.campaign.plan import KIN
from fuzzer.generation.kin import Kin, kin_of
from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial.origin import explore_from
from fuzzer.workers.messages import Report, Task
from tests.campaign.test_mixture import Asked
from tests.generation.test_kin import AMAX, SPLIT

EAGER = Task(Place(Subject("eager"), Subject("eager")), seed=11)


def test_all_kin_have_their_turn_first_as_the_parent_is() -> None:
    found = in_turns([SPLIT, AMAX])
    assert sorted(found) == sorted([*kin_of(SPLIT), *kin_of(AMAX)])
    plain = sum(not (kin.dtype or kin.route) for kin in found)
    assert not any(kin.dtype or kin.route for kin in found[:plain])
    assert [kin.parent for kin in found[:4]] == [SPLIT, AMAX] * 2


def test_a_number_is_its_kin_and_refusals_are_counted() -> None:
    campaign, pool = ByKin([Kin(SPLIT, 0, "chunk"), Kin(AMAX, 0, "amin"), Kin(SPLIT, 0, "no")]), Asked()
    given: Any = pool
    campaign.submit(given, EAGER, 0, 1)
    (_, _, batch, _) = pool.asked[0]
    assert batch.origins == {0: campaign.kin[0], 1: campaign.kin[1]}
    for number, report in enumerate((Report(SPLIT), Report(AMAX), Report("", rejected="no"))):
        campaign.learn(number, report)
    assert campaign.progress() == "2 kin ran and 1 were refused, of 3"


def test_the_worker_makes_it_and_says_so() -> None:
    report = explore_from(EAGER, (0, Kin(AMAX, 0, "amin")))
    assert "amin(" in report.text
    assert source_of(report) == KIN
    barred = AMAX.replace("v1 = mul(x0, v0)", "with checkpoint():\n    v1 = mul(x0, v0)")
    assert (
        "no amin in place of amax: a program with regions" in explore_from(EAGER, (0, Kin(barred, 0, "amin"))).rejected
    )
