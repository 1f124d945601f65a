"""How fast a campaign is now."""

from __future__ import annotations

from fuzzer.campaign.pace import CODE, NOW_SECONDS, Pace, by_stage
from fuzzer.campaign.totals import Totals


def test_the_rate_of_now_forgets_what_is_long_ago() -> None:
    pace, totals = Pace(), Totals()
    for second in range(400):
        totals.drawn += 10 if second < 200 else 1
        pace.look(float(second), totals)
    assert pace.now() == {CODE: 1.0}
    assert pace.moments[-1].seconds - pace.moments[0].seconds <= NOW_SECONDS + 1


def test_programs_are_counted_at_the_stage_that_judged_them() -> None:
    pace, totals = Pace(), Totals(drawn=30)
    totals.classes["rejected"], totals.stages["inductor:ir"] = 2, 20
    assert by_stage(totals) == {"inductor:ir": 20, CODE: 8}
    pace.look(10.0, totals)
    assert pace.now() == {"inductor:ir": 2.0, CODE: 0.8}


def test_it_is_noted_when_the_last_new_fault_came() -> None:
    pace, totals = Pace(), Totals()
    pace.look(0.1, totals)
    assert pace.last_new is None
    totals.new["wrong"] += 1
    pace.look(0.2, totals)
    pace.look(5.0, totals)
    assert pace.last_new == 0.2


def test_before_anything_ran_the_rate_is_nought() -> None:
    pace = Pace()
    pace.look(0.0, Totals())
    assert pace.now() == {CODE: 0.0}
