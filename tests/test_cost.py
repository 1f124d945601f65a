"""What judging costs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fuzzer.bench import cost
from fuzzer.bench.__main__ import main
from fuzzer.bench.cost import Priced, priced, summary
from fuzzer.execution.messages import Place, Report, Subject
from fuzzer.execution.worker import Journal, Task, report
from fuzzer.text import parse

EAGER = Task(Place(Subject("eager"), Subject("eager")))
SIGMOID = """
program(1)
route("autograd")
x0 = leaf(f32[5, 7], seed=1)
v0 = sigmoid(x0)
backward(v0, cotangent(f32[5, 7], seed=3))
"""


def price(task: Task) -> Priced:
    found = report(parse(SIGMOID), task, Journal(None), closer=priced)
    assert isinstance(found, Priced)
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
    ran = Priced(SIGMOID, cpu={"all": 2.0, "judge": 0.2, "rerun": 0.1}, beyond=True)
    refused = Priced("", rejected="no", cpu={"all": 1.0})
    figures = summary([ran, refused, Report("", rejected="died")])
    assert (figures["programs"], figures["oracles_cpu_share"], figures["beyond_first_look_share"]) == (1, 0.1, 1.0)
    assert figures["cpu_seconds_per_program"] == {"all": 3.0, "judge": 0.2, "rerun": 0.1}


def test_the_time_of_settings_agree_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 14.0))
    monkeypatch.setattr(cost, "cpu_seconds", lambda: next(clock))
    given = Priced(SIGMOID, cpu={"judge": 0.5, "settings_agree": 1.0})
    monkeypatch.setattr(cost.worker, "explore", lambda task, index, closer: given)
    found = cost.explore(EAGER, 0)
    assert isinstance(found, Priced)
    assert found.cpu == {"all": 3.0, "judge": 0.5}


def test_the_command_counts_cpu_time() -> None:
    done = CliRunner().invoke(main, ["cost", "--programs", "4", "--workers", "1", "--backend", "eager", "--json"])
    figures = json.loads(done.output.splitlines()[-1])
    assert figures["programs"] > 0
    assert 0 < figures["oracles_cpu_share"] < 1
    assert figures["cpu_seconds_per_program"]["judge"] < figures["cpu_seconds_per_program"]["all"]
