"""What judging costs."""

from __future__ import annotations

import json

import pytest
from benches import cost
from benches.__main__ import main
from benches.cost import CostReport, cost_summary, priced
from click.testing import CliRunner

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task

EAGER = Task(Place(Subject("eager"), Subject("eager")))
SIGMOID = """
program(1)
route("autograd")
x0 = leaf(f32[5, 7], seed=1)
v0 = sigmoid(x0)
backward(v0, cotangent(f32[5, 7], seed=3))
"""


def price(task: Task) -> CostReport:
    found = report_program(parse(SIGMOID), task, Journal(None), on_judged=priced)
    assert isinstance(found, CostReport)
    return found


def test_judging_costs_something_and_most_programs_need_the_first_look_alone() -> None:
    found = price(EAGER)
    assert found.cpu["judge"] > 0
    assert not found.beyond


def test_a_program_that_differs_needs_more_looks() -> None:
    assert price(Task(EAGER.place, canary="eager_gradient_scaled")).beyond


@pytest.mark.slow
def test_compiled_code_is_run_again_and_settings_are_counted_on_neither_side() -> None:
    found = price(Task(Place(), fixed=(), also=("settings_agree",)))
    assert found.cpu["rerun"] > 0
    assert "settings_agree" not in found.cpu  # the program has no settings


def test_the_share_is_the_oracles_of_all_that_was_drawn() -> None:
    ran = CostReport(SIGMOID, cpu={"all": 2.0, "judge": 0.2, "rerun": 0.1}, beyond=True)
    refused = CostReport("", rejected="no", cpu={"all": 1.0})
    figures = cost_summary([ran, refused, Report("", rejected="died")])
    assert (figures["programs"], figures["oracles_cpu_share"], figures["beyond_first_look_share"]) == (1, 0.1, 1.0)
    assert figures["cpu_seconds_per_program"] == {"all": 3.0, "judge": 0.2, "rerun": 0.1}


def test_the_time_of_settings_agree_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 14.0))
    monkeypatch.setattr(cost, "cpu_seconds", lambda: next(clock))
    given = CostReport(SIGMOID, cpu={"judge": 0.5, "settings_agree": 1.0})
    monkeypatch.setattr(cost.exploration, "explore", lambda task, index, on_judged: given)
    found = cost.explore_cost(EAGER, 0)
    assert isinstance(found, CostReport)
    assert found.cpu == {"all": 3.0, "judge": 0.5}


def test_the_command_counts_cpu_time() -> None:
    done = CliRunner().invoke(main, ["cost", "--programs", "4", "--workers", "1", "--backend", "eager", "--json"])
    figures = json.loads(done.output.splitlines()[-1])
    assert figures["programs"] > 0
    assert 0 < figures["oracles_cpu_share"] < 1
    assert figures["cpu_seconds_per_program"]["judge"] < figures["cpu_seconds_per_program"]["all"]
