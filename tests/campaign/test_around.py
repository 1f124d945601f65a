"""Campaigns around given programs: which number has which mutant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuzzer.campaign.around import Around
from fuzzer.campaign.corpus import Corpus
from fuzzer.campaign.parents import PARENTS_FILE, Parents
from fuzzer.generation.mutate import AROUND
from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial.origin import Mutation, explore_from
from fuzzer.workers.messages import Report, Task

HERE = {"torch": "2.13.0", "backend": "eager", "device": "cpu"}
EAGER = Task(Place(Subject("eager"), Subject("eager")), seed=11, routes=("autograd", "vjp"))
TEXT = """program(1)
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
v0 = softmax(x0, dim=1)
v1 = exp(v0)
backward(v1, cotangent(f32[3, 4], seed=2))
"""
PARENTS = Parents({"a": (TEXT,), "b": (TEXT.replace("exp", "sin"), TEXT.replace("exp", "cos"))})


class Asked:
    """A pool that only notes its calls."""

    deadline = 90.0

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def submit(self, *given: Any, behind: bool) -> None:
        self.asked.append(given)


def schedule(folder: Path) -> Around:
    return Around(EAGER, Corpus(folder / "corpus", HERE).start(), PARENTS)


def test_a_number_says_its_mutant_whatever_came_before(tmp_path: Path) -> None:
    one, other = schedule(tmp_path / "a"), schedule(tmp_path / "b")
    pool: Any = Asked()
    one.submit(pool, EAGER, *range(6))
    for number in (4, 2):
        other.submit(pool, EAGER, number)
    (_, _, batch, _), *alone = pool.asked
    assert [call[2] for call in alone] == [(4, batch.origins[4]), (2, batch.origins[2])]
    assert {origin.mutator for origin in batch.origins.values()} == {AROUND}
    assert {origin.parent for origin in batch.origins.values()} <= {
        text for texts in PARENTS.causes.values() for text in texts
    }
    assert (one.corpus.folder / PARENTS_FILE).exists()


def test_the_worker_makes_the_mutant_and_says_so(tmp_path: Path) -> None:
    campaign = schedule(tmp_path)
    reports = [explore_from(EAGER, (number, campaign.mutation(number))) for number in range(6)]
    assert all(report.mutator == AROUND and "softmax" in report.text for report in reports)
    assert reports[3].text == explore_from(EAGER, (3, campaign.mutation(3))).text
    assert len({report.text for report in reports}) == 6


def test_its_progress_tells_mutants_from_fresh_programs(tmp_path: Path) -> None:
    campaign = schedule(tmp_path)
    pool: Any = Asked()
    campaign.submit(pool, EAGER, 0, 1, 2)
    for number, mutator in enumerate((AROUND, "", AROUND)):
        campaign.learn(number, Report(TEXT, mutator=mutator))
    assert campaign.progress().startswith("2 mutants around 2 cause(s), 1 fresh where none was made; ")
    assert campaign.state() == {"guidance": "around"}


def test_a_parent_of_which_nothing_comes_leaves_the_number_to_a_fresh_program() -> None:
    leaf = "x1 = leaf(i64[2], values=data([9, 9]))\n"
    refused = TEXT.replace("v0 = softmax(x0, dim=1)", f"{leaf}v0 = embedding(x0, x1)")
    report = explore_from(EAGER, (3, Mutation(AROUND, refused, refused)))
    assert report.mutator == ""
    assert "embedding(x0, x1)" not in report.text
