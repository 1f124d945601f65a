"""The bench that puts eager on trial: figures of some draws, and what is contradicted."""

from __future__ import annotations

import pytest
from benches import derivatives
from benches.derivatives import Tried, measure_derivatives, try_eager

from fuzzer.workers.messages import Task
from tests.benches.here import Here

TASK = Task(seed=3, cells=True)


def test_every_draw_is_counted_once_and_cells_are_those_of_what_was_asked() -> None:
    found = try_eager(TASK, range(3))
    assert isinstance(found, Tried)
    assert sum(found.became.values()) == 3
    assert found.became.get("contradicted", 0) == len(found.found)
    asked = found.became.get("no contradiction", 0) + found.became.get("contradicted", 0)
    assert bool(found.met["op"]) == bool(asked)


def test_what_is_contradicted_comes_with_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivatives, "_told", lambda trial: "x0.grad is no derivative")
    monkeypatch.setattr(derivatives, "own_rule", lambda trial: "")
    found = try_eager(TASK, range(1))
    assert isinstance(found, Tried)
    ((detail, text),) = found.found
    assert detail == "x0.grad is no derivative"
    assert text.startswith("program(1)")


def test_the_figures_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivatives, "Pool", Here)
    figures = measure_derivatives(TASK, 5, 1)
    became = ("refused", "not replayed", "not asked", "no contradiction", "contradicted")
    assert sum(figures.get(name, 0) for name in became) == figures["draws"] == 5
    assert 0 < figures["met"]["op"][0] <= figures["met"]["op"][1]
