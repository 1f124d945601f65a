"""What a campaign was asked to do, and the place where it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from fuzzer.campaign.plan import Plan, corpus_environment, environment_of
from fuzzer.judgement.trial import Place, Subject
from fuzzer.workers.messages import Task

TASK = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu", 8)))


def test_a_plan_says_what_goes_where_and_names_regressions_only_where_they_go_somewhere() -> None:
    plan = Plan(TASK, 2, db=Path("mine.db"), folder=Path("here"))
    assert plan.devices == ["cpu", "cpu"]
    assert plan.explored == Path("here/corpus")
    assert plan.writes == "a new finding goes to mine.db; everything else to here"
    tracked = replace(plan, corpus=Path("kept"))
    assert tracked.writes == (
        "a new finding goes to mine.db, its program to kept (git tracks both); everything else to here"
    )


def test_the_facts_of_a_place_are_both_sides_and_the_versions_that_ran() -> None:
    found = environment_of(TASK)
    assert (found["backend"], found["against"], found["device"]) == ("inductor", "eager", "cpu")
    assert (found["torch"], found["threads"]) == (torch.__version__, "8")
    assert "gpu" not in found
    assert all(found.values()), "what is not there is left out"
    apart = environment_of(replace(TASK, place=Place(Subject("eager", "cuda:1"), Subject("inductor", "cpu"))))
    assert apart["against"] == "eager@cuda:1"
    assert "threads" not in apart


def test_features_depend_on_torch_backend_and_device() -> None:
    assert corpus_environment(TASK) == {"torch": torch.__version__, "backend": "inductor", "device": "cpu"}
