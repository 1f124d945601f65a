"""Campaigns side by side: who is charged, to which fault a wrong trial is due, what rows tell."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from benches import faults, rows
from benches.__main__ import main
from benches.curves import picture
from benches.faults import (
    ARMS,
    SLICE_SCATTER,
    Plan,
    built_once_more,
    measure_faults,
    of_rare,
    of_slice_scatter,
)
from benches.race import CPU, Check, Judge, Lane, Race, Run
from benches.rare import ALL
from click.testing import CliRunner

from fuzzer.campaign.plan import STAGED
from fuzzer.coverage.frontier import Frontier
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.workers.messages import Report, Task

WRONG = Verdict(Signature("gradients_agree", "wrong", "backward", "other"), "")


def reported(fired: tuple[str, ...] = (), wrong: bool = True, cpu: float = 2.0, **more: Any) -> Report:
    return Report("program", (WRONG,) if wrong else (), fired=fired, seconds={CPU: cpu}, **more)


class Pool:
    """Answers with the next Report, in order, or one for each of several; looks are answered by the task that they run
    under."""

    def __init__(self, reports: list[Report | None], looks: dict[str, bool], workers: int = 1):
        self.reports, self.looks, self.workers = reports, looks, workers
        self.answers: dict[Future[Any], list[Report | None]] = {}

    def submit(self, function: Any, task: Task, what: Any, programs: int = 1) -> Future[Any]:
        future: Future[Any] = Future()
        fault = task.canary.rpartition(":")[2]
        looked = [reported(wrong=self.looks[fault])] if what == "program" else []
        self.answers[future] = [*looked] or [self.reports.pop(0) for _ in range(programs)]
        future.set_result(None)
        return future

    def result(self, future: Future[Any], task: Task) -> Report | None:
        return self.answers[future][0]

    def results(self, future: Future[Any], task: Task) -> list[Report | None]:
        return self.answers[future]


class Schedule:
    """A schedule that learns, without a corpus."""

    def __init__(self) -> None:
        self.learned: list[Report] = []
        self.asked: list[tuple[int, ...]] = []
        self.corpus = type("Corpus", (), {"frontier": Frontier()})()

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        self.asked.append(numbers)
        return pool.submit(None, task, numbers, len(numbers))

    def learn(self, n: int, report: Report) -> None:
        self.learned.append(report)

    def close(self) -> None: ...


def raced(
    reports: Sequence[Report | None],
    judge: Judge,
    looks: dict[str, bool] | None = None,
    check: Check | None = None,
    **run: Any,
) -> tuple[Run, list[dict[str, Any]]]:
    """A race of one campaign with these Reports."""
    written: list[dict[str, Any]] = []
    schedule: Any = Schedule()
    given = Run("blind", 1, Task(canary=ALL), schedule, **{"budget": 2.0 * len(reports), **run})
    pool: Any = Pool(list(reports), looks or {})
    Race([Lane(pool, [given])], judge, written.append, 4.0, check).go(math.inf)
    return given, written


def test_a_campaign_ends_when_its_cpu_seconds_are_spent() -> None:
    run, written = raced([reported(wrong=False) for _ in range(9)], of_rare(Task()), budget=7.0)
    assert (run.programs, run.spent) == (4, 8.0)
    assert [row["row"] for row in written] == ["at", "at", "end"]


def test_a_campaign_ends_when_it_found_what_it_was_to_find() -> None:
    run, written = raced(
        [reported(wrong=False), reported(("a",)), reported(wrong=False)], of_rare(Task()), wanted=frozenset("a")
    )
    assert run.programs == 2
    assert [(row["fault"], row["cpu"]) for row in written if row["row"] == "found"] == [("a", 4.0)]


def test_what_acted_alone_did_it_and_counts_once() -> None:
    run, written = raced([reported(("a",)), reported(("a",))], of_rare(Task()))
    assert run.found == {"a"}
    assert [row["row"] for row in written if row["row"] != "at"] == ["found", "end"]


def test_of_several_that_acted_those_did_it_that_do_it_alone_and_looks_are_free() -> None:
    run, _ = raced([reported(("a", "b"))], of_rare(Task()), {"a": True, "b": False})
    assert run.found == {"a"}
    assert run.spent == 2.0


def test_what_acted_and_did_no_harm_is_not_found() -> None:
    run, written = raced([reported(("a",), wrong=False)], of_rare(Task()))
    assert not run.found
    assert "unexplained" not in {row["row"] for row in written}


@pytest.mark.parametrize(("still_wrong", "found"), [(False, {SLICE_SCATTER}), (True, set())])
def test_slice_scatter_did_what_goes_with_the_meta_kernel_of_a_later_torch(
    still_wrong: bool, found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "has_slice_scatter", lambda: True)
    for judge in (of_rare(Task(canary=ALL)), of_slice_scatter(Task())):
        run, written = raced([reported()], judge, {"slice_scatter_since_2_12": still_wrong})
        assert run.found == found
        assert ("unexplained" in {row["row"] for row in written}) == still_wrong


def test_what_nothing_planted_explains_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "has_slice_scatter", lambda: False)
    _, written = raced([reported()], of_rare(Task()))
    (row,) = [row for row in written if row["row"] == "unexplained"]
    assert (row["text"], row["signature"]) == ("program", str(WRONG.signature))


def test_a_death_is_charged_by_the_clock() -> None:
    run, _ = raced([Report(""), reported(wrong=False)], of_rare(Task()), budget=1.0)
    assert 2.0 < run.spent < 3.0


# ---------------------------------------------------------------- batches


def test_a_batch_is_charged_whole_before_what_it_found_is_looked_at() -> None:
    told = [reported(("a",)), reported(wrong=False), reported(), reported()]
    run, written = raced(told, of_rare(Task()), batch=2, budget=4.0)
    assert (run.programs, run.spent) == (2, 4.0)
    assert [(row["cpu"], row["programs"]) for row in written if row["row"] in ("at", "found")] == [(4.0, 2)] * 2


def test_who_died_with_a_batch_runs_again_and_the_batch_is_charged_by_the_clock() -> None:
    clean = reported(wrong=False)
    run, _ = raced([None, Report("died"), None, *[clean] * 9], of_rare(Task()), batch=3, budget=1.0)
    schedule: Any = run.schedule
    assert schedule.asked == [(0, 1, 2), (0, 2)]
    assert run.programs == 3
    assert 4.0 <= run.spent < 5.0


@pytest.mark.parametrize(("shows", "rows"), [(True, ["found", "checked"]), (False, ["found", "lost"])])
def test_a_fault_is_built_once_more_at_the_campaigns_cost_and_sought_again_if_it_did_not_show(
    shows: bool, rows: list[str]
) -> None:
    told = [reported(("a",), stage="ir")]
    run, written = raced(told, of_rare(Task()), {"all": shows}, built_once_more)
    assert [row["row"] for row in written if row["row"] not in ("at", "end")] == rows
    assert run.spent == 4.0
    assert run.found == ({"a"} if shows else set())


def test_what_shows_with_nothing_planted_is_real_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "has_slice_scatter", lambda: False)
    run, written = raced([reported(), reported()], of_rare(Task()), {"": True}, built_once_more)
    assert sorted(row["row"] for row in written if row["row"] not in ("at", "end")) == ["real", *["unexplained"] * 2]
    assert run.spent == 6.0


def test_a_suspect_is_checked_where_it_is_built_by_itself_and_under_the_final_look() -> None:
    task = Task(canary=ALL, staged=0.75, final=False, features=True)
    checked = built_once_more(task, "a")
    assert checked == Task(canary=ALL, fresh=True)
    assert built_once_more(task, "").canary == ""


def test_what_raises_is_the_faults_if_it_agrees_without_it() -> None:
    raises = Verdict(Signature("compile_does_not_raise", "raises", "forward", "CppCompileError"), "")
    one = Report("program", (raises,), fired=("a",), seconds={CPU: 2.0})
    (look,) = of_rare(Task(canary=ALL))(one, set())[1]
    assert (look.fault, look.task.canary, look.expected) == ("a", "", "agree")


def test_all_arms_but_one_are_as_shipped_but_for_their_guidance() -> None:
    assert list(ARMS) == ["blind-full", "blind-staged", "cells", "around", "mutants", "mixture"]
    assert {(arm.staged, arm.alone) for arm in list(ARMS.values())[1:]} == {(STAGED, False)}


# ---------------------------------------------------------------- rows


def lines(*given: dict[str, Any]) -> str:
    return "".join(json.dumps({"wall": 1.0, "seed": 1, "programs": 3} | row) + "\n" for row in given)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        lines(
            {"row": "plan", "arms": ["blind", "cells"], "place": {"torch": "x"}, "workers": 2, "ops": 0},
            {"row": "at", "arm": "blind", "cpu": 5.0, "features": 10},
            {"row": "end", "arm": "blind", "cpu": 10.0, "features": 20},
            {"row": "at", "arm": "cells", "cpu": 5.0, "features": 20},
            {"row": "found", "arm": "cells", "cpu": 6.0, "fault": "a"},
            {"row": "found", "arm": "cells", "cpu": 11.0, "fault": "b"},
            {"row": "end", "arm": "cells", "cpu": 12.0, "features": 30},
        )
    )
    return path


def test_what_did_not_show_again_was_not_found_and_signatures_of_no_planted_fault_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        lines(
            {"row": "plan", "arms": ["blind", "mutants"], "place": {}, "workers": 1, "ops": 0, "in_code": ["b"]},
            {"row": "found", "arm": "blind", "cpu": 2.0, "fault": "a"},
            {"row": "lost", "arm": "blind", "cpu": 2.0, "fault": "a"},
            {"row": "end", "arm": "blind", "cpu": 10.0, "features": 5, "built": 3},
            {"row": "found", "arm": "mutants", "cpu": 4.0, "fault": "b"},
            {"row": "real", "arm": "mutants", "cpu": 5.0, "fault": "", "signature": "s"},
            {"row": "real", "arm": "mutants", "cpu": 6.0, "fault": "", "signature": "s"},
            {"row": "end", "arm": "mutants", "cpu": 10.0, "features": 5, "built": 2},
        )
    )
    blind, mutants = rows.report([path])["arms"]
    assert (blind["faults"]["median"], mutants["faults"]["median"], mutants["in_code"]["median"]) == (0, 1, 1)
    assert (mutants["real"]["median"], mutants["built"], mutants["faults"]["of_blind"]) == (1, 2, None)
    (alone,) = rows.report([path], ["mutants"])["arms"]
    assert alone["faults"]["of_blind"] == 1.0


def test_arms_are_compared_at_the_cpu_time_that_all_had(file: Path) -> None:
    figures = rows.report([file])
    blind, cells = figures["arms"]
    assert figures["cpu_seconds"] == 10.0
    assert (blind["faults"]["median"], cells["faults"]["median"]) == (0, 1)  # b came too late
    assert (blind["features"]["median"], cells["features"]["median"]) == (20, 20)
    assert (blind["blinds_features_at"], cells["blinds_features_at"]) == (1.0, 0.5)
    assert figures["faults"] == {
        "a": {"blind": {"found": 0, "of": 1, "median": None}, "cells": {"found": 1, "of": 1, "median": 6.0}}
    }


def test_the_table_and_the_picture_hold_every_arm(file: Path) -> None:
    text = "\n".join(rows.table(rows.report([file, file])))
    assert "| cells | 2 | 3 | 1 | 0 | 1 (1-1) |" in text
    assert "| a | 0/2, - | 2/2, 6 |" in text
    svg = picture(rows.read_rows([file])[1], 10.0)
    assert len(re.findall(r'<g id="curves-(?:faults|features)-', svg)) == 4
    assert svg.count(">cells</text>") == 2


def test_the_clock_is_read_where_the_fault_was_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    plan = {"row": "plan", "arms": ["cells"], "place": {}, "workers": 16, "ops": 42}
    found = {"row": "found", "arm": "cells", "fault": SLICE_SCATTER, "cpu": 30.0, "wall": 7.5}
    late = {"row": "end", "arm": "cells", "seed": 2, "cpu": 30.0, "features": 1}
    path.write_text(lines(plan, found, late))
    assert rows.clock([path])["cells"] == {"seconds": [7.5], "median": None, "programs": [3], "in_vain": [1.0]}
    path.write_text(lines(plan, found, late, found | {"seed": 3, "wall": 9.5}))
    assert rows.clock([path])["cells"]["median"] == 9.5, "who found nothing counts as later than all others"


def test_the_commands_tell_what_is_in_a_file_of_rows(file: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["faults", "--report", "--rows", str(file), "--svg", str(tmp_path / "curves.svg")])
    assert "| cells | 1 |" in told.output
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")
    told = CliRunner().invoke(main, ["time-to-fault", "--report", "--rows", str(file), "--json"])
    assert json.loads(told.output)["blind"]["in_vain"] == [1.0]


@pytest.mark.slow
def test_live_campaigns_write_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    measure_faults(
        Task(ops=("tanh", "sum")),
        Plan(("blind-staged", "mutants"), 1, lanes=2, seconds=2.0, warm=1, first=7, batch=4),
        path,
    )
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert told[0]["row"] == "plan"
    assert {(row["arm"], row["seed"]) for row in told if row["row"] == "end"} == {("blind-staged", 7), ("mutants", 7)}
    assert all(row["features"] > 100 for row in told if row["row"] == "end")
    assert rows.report([path])["campaigns"] == 2
