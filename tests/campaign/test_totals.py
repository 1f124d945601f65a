"""What a campaign counted, and its shares."""

from __future__ import annotations

from fuzzer.campaign.totals import Totals
from fuzzer.execution.messages import Report
from tests.campaign.fakes import PROGRAM, wrong


def test_shares_are_of_what_ran_and_of_what_was_drawn() -> None:
    totals = Totals(seconds=2.0)
    silent, refused = Report(PROGRAM), Report("", rejected="torch: no")
    for report in (wrong(), Report(PROGRAM, detectable=1, elements=4), refused, silent):
        totals.count(report)
    summary = totals.summary()
    assert summary["programs"] == 3
    assert summary["programs_per_s"] == 1.5
    assert summary["detectable_share"] == round(2 / 3, 4)
    assert summary["detectable_elements_share"] == 0.5
    assert summary["rejected_share"] == 0.25


def test_programs_that_a_stage_could_not_run_are_counted_by_why() -> None:
    totals = Totals()
    for built in ("route: aoti", "", "route: aoti", "operation: rand"):
        totals.count(Report(PROGRAM, built=built))
    assert totals.summary()["built"] == {"route: aoti": 2, "operation: rand": 1}


def test_programs_judged_at_a_stage_are_counted() -> None:
    totals = Totals()
    for stage in ("ir", "", "ir"):
        totals.count(Report(PROGRAM, stage=stage))
    assert totals.summary()["stages"] == {"ir": 2}


def test_the_summary_of_nothing_divides_by_nothing() -> None:
    summary = Totals().summary()
    assert (summary["programs"], summary["programs_per_s"], summary["rejected_share"]) == (0, 0.0, 0.0)
