"""Campaigns that mutate kept programs: the choice of parents, and the log, which gives the same programs again."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.corpus import Corpus, resume_corpus
from fuzzer.campaign.mutants import LOG_FILE, SHARE, ByMutation, Choice, FromLog, Logged, read_log
from fuzzer.campaign.plan import MUTANTS
from fuzzer.generation.mutate import MUTATOR_NAMES
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.errors import UsageError
from fuzzer.trial.batch import Batch, explore_batch
from fuzzer.trial.origin import Mutation, explore_from
from fuzzer.trial.tasks import explore
from fuzzer.workers.messages import Report, Task

HERE = {"torch": "2.13.0", "backend": "inductor", "device": "cpu"}
TASK = Task(Place(Subject("eager"), Subject("inductor")), seed=11, routes=("autograd", "vjp"), staged=0.75, cells=True)


def text(seed: int, more: str = "") -> str:
    return f"""program(1)
route("autograd")
x0 = leaf(f32[4], seed={seed})
v0 = exp(x0)
{more}backward(v0, cotangent(f32[4]))
"""


def shown(seed: int, *numbers: int, mutator: str = "") -> Report:
    return Report(
        text(seed), features={"operand": frozenset(numbers)}, seconds={"subject": 1.0, "cpu": 2.0}, mutator=mutator
    )


class Asked:
    """A pool that only notes its calls."""

    deadline = 90.0

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def submit(self, *given: Any, behind: bool) -> None:
        assert behind, "what triage asks for goes first"
        self.asked.append(given)


def schedule(folder: Path, *reports: Report, task: Task = TASK) -> ByMutation:
    """A campaign with a corpus of these Reports' programs."""
    corpus = Corpus(folder / "corpus", HERE).start()
    for report in reports:
        corpus.learn(report)
    return ByMutation(task, folder / "log", corpus)


def submitted(campaign: ByMutation | FromLog, *numbers: int) -> Any:
    """The call of a worker for these programs."""
    pool: Any = Asked()
    campaign.submit(pool, TASK, *numbers)
    (call,) = pool.asked
    return call


def choices(campaign: ByMutation, count: int = 3000) -> list[Choice]:
    return [choice for number in range(count) if (choice := campaign.choose(number))]


# ---------------------------------------------------------------- choosing


def test_without_kept_programs_all_are_fresh(tmp_path: Path) -> None:
    campaign = schedule(tmp_path)
    assert not choices(campaign, 100)
    assert submitted(campaign, 7)[::2] == (explore, 7)
    batch = submitted(campaign, 8, 9)[2]
    assert (batch.numbers, batch.origins) == ((8, 9), {})


def test_a_share_are_mutants_by_any_mutator_of_the_best_program_of_any_feature(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1, 2), shown(2, 2, 3, 4, 5))
    found = choices(campaign)
    assert len(found) == pytest.approx(3000 * SHARE, rel=0.1)
    counted = Counter(choice.mutator for choice in found)
    assert set(counted) == set(MUTATOR_NAMES)
    assert max(counted.values()) < 2 * min(counted.values())
    first, second = campaign.corpus.kept
    parents = Counter(choice.parent.id for choice in found)
    best = Counter(kept.id for kept in campaign.corpus.frontier.best.values())
    assert best == {first.id: 2, second.id: 3} or best == {first.id: 1, second.id: 4}
    assert parents[first.id] / len(found) == pytest.approx(best[first.id] / 5, abs=0.05)
    assert {choice.donor.id for choice in found} == {first.id, second.id}


def test_a_choice_depends_on_seed_number_and_kept_programs_alone(tmp_path: Path) -> None:
    one, same = (schedule(tmp_path / name, shown(1, 1), shown(2, 2)) for name in "ab")
    other = schedule(tmp_path / "c", shown(1, 1), shown(2, 2), task=replace(TASK, seed=12))
    assert choices(one, 50) == choices(same, 50) != choices(other, 50)


def test_mutants_are_sent_in_the_batch_of_fresh_programs(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1), shown(2, 2))
    function, task, batch, programs = submitted(campaign, *range(16))
    assert (function, programs, batch.numbers, batch.deadline) == (explore_batch, 16, tuple(range(16)), 90.0)
    assert (task.staged, task.features) == (TASK.staged, True)
    assert batch.origins == {
        n: Mutation(choice.mutator, campaign.corpus.text(choice.parent), campaign.corpus.text(choice.donor))
        for n in range(16)
        if (choice := campaign.choose(n))
    }
    assert 0 < len(batch.origins) < 16
    alone = next(iter(batch.origins))
    assert submitted(campaign, alone)[::2] == (explore_from, (alone, batch.origins[alone]))


def test_a_program_that_runs_again_stays_as_it_was_chosen(tmp_path: Path) -> None:
    campaign = schedule(tmp_path)
    submitted(campaign, *range(16))
    campaign.corpus.learn(shown(1, 1))
    assert submitted(campaign, *range(8))[2].origins == {}
    assert submitted(campaign, *range(16, 32))[2].origins


# ---------------------------------------------------------------- the log


def test_a_log_names_every_program_and_runs_it_again(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1), shown(2, 2))
    submitted(campaign, *range(16))
    mutants = [n for n in range(16) if campaign.pending[n]]
    made, gave_way, died = mutants[:3]
    fresh, gone = [n for n in range(16) if not campaign.pending[n]][:2]
    chosen = campaign.pending[made]
    crashes = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    campaign.learn(made, shown(5, 9, 10, mutator=chosen.mutator))
    campaign.learn(gave_way, shown(6, 9))
    campaign.learn(died, Report(text(7), (crashes,)))
    campaign.learn(fresh, shown(8, 9))
    campaign.learn(gone, Report(text(9), (crashes,)))
    head, *rows = [json.loads(line) for line in (tmp_path / "log" / LOG_FILE).read_text().splitlines()]
    assert head["seed"] == TASK.seed
    assert rows[0] == {
        "number": made, "class": "agree", "stage": "", "new": 2, "cpu": 2.0, "mutator": chosen.mutator,
        "parent": chosen.parent.id, "donor": chosen.donor.id, "text": text(5),
    }  # fmt: skip
    assert [row.get("text") for row in rows[1:]] == [None, text(7), None, text(9)]
    assert ["mutator" in row for row in rows[1:]] == [False, True, False, False]
    task, logged = read_log(tmp_path / "log" / LOG_FILE, Task(place=TASK.place))
    assert task == TASK
    expected = [(made, text(5)), (gave_way, ""), (died, text(7)), (fresh, ""), (gone, text(9))]
    assert logged == [Logged(*row) for row in expected]
    function, _, batch, _ = submitted(FromLog(logged), *range(5))
    texts = {number: kept for number, kept in expected if kept}
    assert (function, batch) == (explore_batch, Batch((made, gave_way, died, fresh, gone), 90.0, texts))
    assert submitted(FromLog(logged), 0)[::2] == (explore_from, (made, text(5)))
    assert submitted(FromLog(logged), 1)[::2] == (explore, gave_way)


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


# ---------------------------------------------------------------- going on


def test_a_resumed_campaign_makes_the_choices_that_the_first_would_have_made(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1, 2), shown(2, 3))
    submitted(campaign, *range(4))
    campaign.learn(2, shown(3, 4))
    campaign.close()
    corpus, state = resume_corpus(tmp_path / "corpus", HERE)
    assert state["guidance"] == MUTANTS
    onward = ByMutation(TASK, tmp_path / "more", corpus, state)
    assert choices(onward, 60) == choices(campaign, 60)
    assert submitted(onward, *range(6))[2].numbers == (0, 1, 3, 4, 5, 6), "those under way come first"
