"""The log of a campaign's choices, which gives the same programs again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.choices import LOG_FILE, FromLog, Logged, read_log
from fuzzer.campaign.plan import MUTANTS
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.errors import UsageError
from fuzzer.trial.batch import Batch, explore_batch
from fuzzer.trial.origin import explore_from
from fuzzer.trial.tasks import explore
from fuzzer.workers.messages import Report, Task
from tests.campaign.test_mixture import TASK, Asked, schedule, shown, submitted, text


def again(logged: list[Logged], *numbers: int) -> Any:
    """The call of a worker for these programs of a log."""
    pool: Any = Asked()
    FromLog(logged).submit(pool, TASK, *numbers)
    (call,) = pool.asked
    return call


def test_a_log_names_every_program_and_runs_it_again(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1), shown(2, 2))
    submitted(campaign, *range(16))
    mutants = [n for n in range(16) if campaign.pending[n]]
    made, gave_way, died = mutants[:3]
    fresh, gone = [n for n in range(16) if not campaign.pending[n]][:2]
    chosen = campaign.pending[made]
    assert chosen is not None
    crashes = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    campaign.learn(made, shown(5, 9, 10, mutator=chosen.mutation.mutator))
    campaign.learn(gave_way, shown(6, 9))
    campaign.learn(died, Report(text(7), (crashes,)))
    campaign.learn(fresh, shown(8, 9))
    campaign.learn(gone, Report(text(9), (crashes,)))
    head, *rows = [json.loads(line) for line in (tmp_path / "log" / LOG_FILE).read_text().splitlines()]
    assert head["seed"] == TASK.seed
    assert rows[0] == {
        "number": made, "class": "agree", "stage": "", "new": 2, "cpu": 2.0, "source": MUTANTS,
        "mutator": chosen.mutation.mutator, "parent": chosen.parent, "donor": chosen.donor, "text": text(5),
    }  # fmt: skip
    assert [row.get("text") for row in rows[1:]] == [None, text(7), None, text(9)]
    assert ["mutator" in row for row in rows[1:]] == [False, True, False, False]
    task, logged = read_log(tmp_path / "log" / LOG_FILE, Task(place=TASK.place))
    assert task == TASK
    expected = [(made, text(5)), (gave_way, ""), (died, text(7)), (fresh, ""), (gone, text(9))]
    assert logged == [Logged(*row) for row in expected]
    function, _, batch, _ = again(logged, *range(5))
    texts = {number: kept for number, kept in expected if kept}
    assert (function, batch) == (explore_batch, Batch((made, gave_way, died, fresh, gone), 90.0, texts))
    assert again(logged, 0)[::2] == (explore_from, (made, text(5)))
    assert again(logged, 1)[::2] == (explore, gave_way)


def test_a_log_keeps_settings_and_limits(tmp_path: Path) -> None:
    limits = replace(TASK.limits, dtypes=("f32", "c64"))
    task = replace(TASK, fixed=(("inductor.max_fusion_size", 4),), limits=limits)
    schedule(tmp_path, task=task)
    assert read_log(tmp_path / "log" / LOG_FILE, Task(place=TASK.place)) == (task, [])


@pytest.mark.parametrize("line", ['{"number": 3}', "nonsense", '{"number": 3, "text": "no program"}'])
def test_a_log_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    schedule(tmp_path)
    log = tmp_path / "log" / LOG_FILE
    log.write_text((log.read_text() if "text" in line else "") + line + "\n")
    with pytest.raises(UsageError, match="not a log of choices"):
        read_log(log, TASK)


def test_a_log_of_another_type_of_device_is_refused(tmp_path: Path) -> None:
    schedule(tmp_path)
    with pytest.raises(UsageError, match="drawn for cpu, not cuda"):
        read_log(tmp_path / "log" / LOG_FILE, Task(Place(Subject("eager", "cuda"), Subject("inductor", "cuda"))))
