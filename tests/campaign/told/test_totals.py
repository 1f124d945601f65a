"""What a campaign counted, and its shares."""

from __future__ import annotations

from fuzzer.campaign.told.totals import CODE, NOW_SECONDS, Pace, Totals, by_stage
from fuzzer.workers.messages import Report
from tests.campaign.fakes import PROGRAM, wrong


def test_shares_are_of_what_ran_and_of_what_was_drawn() -> None:
    totals = Totals(seconds=2.0)
    silent, refused = Report(PROGRAM), Report("", rejected="torch: no")
    for report in (wrong(), Report(PROGRAM, detectable=1, elements=4, deaf=2), refused, silent):
        totals.count(report)
    summary = totals.summary()
    assert summary["programs"] == 3
    assert summary["programs_per_s"] == 1.5
    assert summary["detectable_share"] == round(2 / 3, 4)
    assert summary["detectable_elements_share"] == 0.5
    assert summary["deaf_elements_share"] == 0.25
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


def test_programs_without_a_gradient_are_told_apart_from_those_whose_gradients_show_nothing() -> None:
    totals = Totals()
    for report in (Report(PROGRAM, forward=True), Report(PROGRAM, detectable=1, elements=4), Report(PROGRAM)):
        totals.count(report)
    summary = totals.summary()
    assert (summary["without_gradient"], summary["detectable_share"]) == (1, 0.5)


def test_the_cpu_seconds_of_all_steps_are_those_of_the_workers() -> None:
    totals = Totals()
    totals.count(Report("", seconds={"generate": 0.5, "subject": 9.0, "cpu": 2.0}))
    totals.steps.update({"sorting": 3.0, "settling": 4.5})
    assert totals.cpu_by_step() == {"drawing": 0.5, "judging": 1.5, "sorting": 3.0, "settling": 4.5}
    assert sum(totals.triage()["cpu_seconds"].values()) == 2.0 + 7.5
    assert totals.triage()["first_unexplained_wrong_seconds"] is None
    totals.first_unexplained = 12.34
    assert totals.summary()["triage"]["first_unexplained_wrong_seconds"] == 12.3


def test_what_a_source_brought_is_added_up() -> None:
    totals = Totals()
    totals.brought("drawn", programs=1, cpu=1.25)
    totals.brought("around", programs=1, cpu=2.0)
    totals.brought("around", suspects=1)
    totals.brought("around", keys=1)
    totals.brought("around", faults=1)
    assert totals.summary()["sources"] == {
        "around": {"programs": 1, "cpu": 2.0, "suspects": 1, "keys": 1, "faults": 1},
        "drawn": {"programs": 1, "cpu": 1.2, "suspects": 0, "keys": 0, "faults": 0},
    }
