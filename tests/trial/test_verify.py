"""Programs run again: which verdict is the same finding, and how often it showed in fresh processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.text import parse
from fuzzer.trial import verify as verification
from fuzzer.trial.verify import RUNS, examine_all, matching, verify
from fuzzer.workers.messages import Report, Task

WRONG = Signature("gradients_agree", "wrong", "backward", "scattered")
SHOWN = Report("", (Verdict(Signature("rerun_is_identical", "nondeterministic", "", "other"), ""), Verdict(WRONG, "a")))

PROGRAM = parse("""program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4]))
""")


class Pool:
    """Gives its reports in the order in which they are asked for, and remembers what was asked."""

    def __init__(self, reports: Iterator[Report]):
        self.reports, self.tasks = reports, list[Task]()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, function: Any, task: Task, text: str, seconds: float | None) -> Future[Report]:
        self.tasks.append(task)
        return Future()

    def result(self, future: Future[Report], task: Task) -> Report:
        return next(self.reports)


def test_of_several_verdicts_the_one_that_is_the_same_finding_counts() -> None:
    found = matching(SHOWN, WRONG)
    assert found is not None
    assert (found.signature, found.detail) == (WRONG, "a")
    assert matching(SHOWN, Signature("outputs_agree", "wrong", "forward", "scattered")) is None
    assert matching(Report(""), WRONG) is None


def test_reports_come_in_the_order_of_what_was_asked() -> None:
    reports = [Report("a"), Report("b"), Report("c")]
    asked = [(Task(seed=n), PROGRAM) for n in range(len(reports))]
    assert examine_all(Pool(iter(reports)), asked) == reports  # type: ignore[arg-type]


def test_a_finding_counts_as_often_as_it_showed_in_fresh_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[tuple[Any, ...]] = []
    pool = Pool(iter([Report(""), SHOWN, SHOWN]))

    def made(*given: Any, **named: Any) -> Pool:
        opened.append((*given, named))
        return pool

    monkeypatch.setattr(verification, "Pool", made)
    found = verify(PROGRAM, Task(seed=5), WRONG, 8, ["cpu"], tmp_path)
    assert (found.reproduced, found.runs) == (2, RUNS)
    assert found.verdict == SHOWN.verdicts[1]
    assert opened == [(RUNS, ["cpu"], {"scratch": tmp_path, "fresh": True})]
    assert all(task.fresh and task.seed == 5 for task in pool.tasks), "without inductor's caches"
