"""Campaigns of several sources: which number has which, and the choice of parents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.choices import LOG_FILE, Choice
from fuzzer.campaign.corpus import Corpus, resume_corpus
from fuzzer.campaign.mixture import Mixture, source_of
from fuzzer.campaign.parents import PARENTS_FILE, Parents
from fuzzer.campaign.plan import AROUND, CELLS, DRAWN, GUIDANCES, MIXTURE, MUTANTS
from fuzzer.generation import mutate
from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial.batch import explore_batch
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


PARENTS = Parents({"a": (text(1),), "b": (text(2), text(3))})


def schedule(folder: Path, *reports: Report, task: Task = TASK, guidance: str = MUTANTS) -> Mixture:
    """A campaign with a corpus of these Reports' programs."""
    corpus = Corpus(folder / "corpus", HERE).start()
    for report in reports:
        corpus.learn(report)
    return Mixture(task, folder / "log", corpus, guidance, PARENTS if GUIDANCES[guidance].around else None)


def submitted(campaign: Mixture, *numbers: int) -> Any:
    """The call of a worker for these programs."""
    pool: Any = Asked()
    campaign.submit(pool, TASK, *numbers)
    (call,) = pool.asked
    return call


def choices(campaign: Mixture, count: int = 3000) -> list[Choice]:
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
    assert len(found) == pytest.approx(3000 * GUIDANCES[MUTANTS].mutants, rel=0.1)
    counted = Counter(choice.mutation.mutator for choice in found)
    assert set(counted) == set(mutate.MUTATOR_NAMES)
    assert max(counted.values()) < 2 * min(counted.values())
    first, second = campaign.corpus.kept
    parents = Counter(choice.parent for choice in found)
    best = Counter(kept.id for kept in campaign.corpus.frontier.best.values())
    assert best == {first.id: 2, second.id: 3} or best == {first.id: 1, second.id: 4}
    assert parents[first.id] / len(found) == pytest.approx(best[first.id] / 5, abs=0.05)
    assert {choice.donor for choice in found} == {first.id, second.id}


def test_a_choice_depends_on_seed_number_and_kept_programs_alone(tmp_path: Path) -> None:
    one, same = (schedule(tmp_path / name, shown(1, 1), shown(2, 2)) for name in "ab")
    other = schedule(tmp_path / "c", shown(1, 1), shown(2, 2), task=replace(TASK, seed=12))
    assert choices(one, 50) == choices(same, 50) != choices(other, 50)


def test_mutants_are_sent_in_the_batch_of_fresh_programs(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1), shown(2, 2))
    function, task, batch, programs = submitted(campaign, *range(16))
    assert (function, programs, batch.numbers, batch.deadline) == (explore_batch, 16, tuple(range(16)), 90.0)
    assert (task.staged, task.features) == (TASK.staged, True)
    assert batch.origins == {n: choice.mutation for n in range(16) if (choice := campaign.choose(n))}
    assert {origin.parent for origin in batch.origins.values()} <= {text(1), text(2)}
    assert 0 < len(batch.origins) < 16
    alone = next(iter(batch.origins))
    assert submitted(campaign, alone)[::2] == (explore_from, (alone, batch.origins[alone]))


def test_a_program_that_runs_again_stays_as_it_was_chosen(tmp_path: Path) -> None:
    campaign = schedule(tmp_path)
    submitted(campaign, *range(16))
    campaign.corpus.learn(shown(1, 1))
    assert submitted(campaign, *range(8))[2].origins == {}
    assert submitted(campaign, *range(16, 32))[2].origins


# ---------------------------------------------------------------- around given programs, and all together


def test_around_given_programs_a_number_says_its_mutant_whatever_came_before(tmp_path: Path) -> None:
    one, other = (schedule(tmp_path / name, guidance=AROUND) for name in "ab")
    batch = submitted(one, *range(16))[2]
    other.corpus.learn(shown(1, 1))
    assert [submitted(other, number)[2] for number in (4, 2)] == [(n, batch.origins[n]) for n in (4, 2)]
    assert {origin.mutator for origin in batch.origins.values()} == {mutate.AROUND}
    assert {origin.parent for origin in batch.origins.values()} == {text(1), text(2), text(3)}
    assert Parents.read(one.corpus.folder) == PARENTS
    assert not (tmp_path / "a" / "log" / LOG_FILE).exists(), "nothing is chosen by what came back"


def test_a_mixture_takes_its_shares_of_each_source(tmp_path: Path) -> None:
    campaign, shares = schedule(tmp_path, shown(1, 1, 2), guidance=MIXTURE), GUIDANCES[MIXTURE]
    found = Counter(choice.source for choice in choices(campaign))
    assert {source: count / 3000 for source, count in found.items()} == {
        AROUND: pytest.approx(shares.around, abs=0.03),
        MUTANTS: pytest.approx(shares.mutants, abs=0.03),
    }
    assert 1 - shares.around - shares.mutants > 0.2, "enough are drawn"
    assert (tmp_path / "log" / LOG_FILE).exists()


def test_a_campaign_by_numbers_alone_chooses_nothing(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1, 2), guidance=CELLS)
    assert not choices(campaign, 200)
    assert not (tmp_path / "log").exists()
    assert not (campaign.corpus.folder / PARENTS_FILE).exists()


def test_progress_tells_the_sources_and_a_report_says_its_own(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, guidance=MIXTURE)
    submitted(campaign, *range(4))
    reports = [shown(9, 9, mutator=mutator) for mutator in (mutate.AROUND, "", "resize", mutate.AROUND)]
    for number, report in enumerate(reports):
        campaign.learn(number, report)
    assert [source_of(report) for report in reports] == [AROUND, DRAWN, MUTANTS, AROUND]
    assert campaign.progress().startswith("1 drawn, 2 around 2 cause(s), 1 mutants; ")
    assert campaign.state() == {"guidance": MIXTURE}


SOFTMAX = """program(1)
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = softmax(x0, dim=1)
v1 = exp(v0)
backward(v1, cotangent(f32[3, 4], seed=2))
"""
EAGER = Task(Place(Subject("eager"), Subject("eager")), seed=11, routes=("autograd", "vjp"))


def test_the_worker_makes_the_mutant_and_says_so() -> None:
    given = Mutation(mutate.AROUND, SOFTMAX, SOFTMAX)
    reports = [explore_from(EAGER, (number, given)) for number in range(6)]
    assert all(report.mutator == mutate.AROUND and "softmax" in report.text for report in reports)
    assert reports[3].text == explore_from(EAGER, (3, given)).text
    assert len({report.text for report in reports}) == 6


def test_a_parent_of_which_nothing_comes_leaves_the_number_to_a_program_that_is_drawn() -> None:
    leaf = "x1 = leaf(i64[2], values=data([999, 999]))\n"  # beyond every size
    refused = SOFTMAX.replace("v0 = softmax(x0, dim=1)", f"{leaf}v0 = embedding(x0, x1)")
    report = explore_from(EAGER, (3, Mutation(mutate.AROUND, refused, refused)))
    assert report.mutator == ""
    assert "embedding(x0, x1)" not in report.text


# ---------------------------------------------------------------- going on


def test_a_resumed_campaign_makes_the_choices_that_the_first_would_have_made(tmp_path: Path) -> None:
    campaign = schedule(tmp_path, shown(1, 1, 2), shown(2, 3))
    submitted(campaign, *range(4))
    campaign.learn(2, shown(3, 4))
    campaign.close()
    corpus, state = resume_corpus(tmp_path / "corpus", HERE)
    assert state["guidance"] == MUTANTS
    onward = Mixture(TASK, tmp_path / "more", corpus, MUTANTS, state=state)
    assert choices(onward, 60) == choices(campaign, 60)
    assert submitted(onward, *range(6))[2].numbers == (0, 1, 3, 4, 5, 6), "those under way come first"
