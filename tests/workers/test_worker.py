"""The worker's end of the pool: whatever a task does becomes a Report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuzzer.language.text import ParseError
from fuzzer.workers import worker
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.worker import INTERNAL_ERROR, run_task

TEXT = "program(1)\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker's folder, with a program in its journal."""
    monkeypatch.setattr(worker, "journal", lambda: log)
    log = Journal(tmp_path / "journal")
    log.begin(TEXT)
    return tmp_path


def raising(error: Exception) -> Any:
    def function(task: Task, what: Any) -> Report:
        raise error

    return function


def test_a_report_says_what_it_cost(own: Path) -> None:
    found = run_task(lambda task, what: Report(f"{task.seed} {what}"), Task(seed=3), "asked")
    assert found.text == "3 asked"
    assert found.seconds["cpu"] >= 0


def test_a_fault_of_ours_is_told_with_the_program_that_ran(own: Path) -> None:
    found = run_task(raising(KeyError("no such thing")), Task(), None)
    assert found.rejected == f"{INTERNAL_ERROR}: KeyError('no such thing')"
    assert found.text == TEXT
    assert "in function" in found.stderr


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory\nmore")])
def test_exhausted_memory_is_no_fault_of_ours(own: Path, error: Exception) -> None:
    found = run_task(raising(error), Task(), None)
    assert found.rejected.startswith("the worker ran out of memory")
    assert "\n" not in found.rejected


def test_a_text_that_is_no_program_is_the_callers_matter(own: Path) -> None:
    with pytest.raises(ParseError):
        run_task(raising(ParseError(1, 1, "no program")), Task(), None)


def test_memory_is_given_back_every_so_many_tasks(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(worker.gc, "collect", lambda: collected.append(1))
    for _ in range(200):
        run_task(lambda task, what: Report(""), Task(), None)
    assert 2 <= len(collected) <= 20, "now and then: a collection costs a tenth of a compile"
