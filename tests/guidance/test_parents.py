"""The counts of a campaign that chooses, and the programs that it mutates."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.campaign.corpus import STATE_FILE, load_corpus, resume_corpus
from fuzzer.guidance.parents import SEEN_FILE, SHOWN_FILE, CountingCorpus
from fuzzer.language.errors import UsageError
from fuzzer.workers.messages import Report

HERE = {"torch": "2.13.0", "backend": "inductor", "device": "cpu"}


def text(seed: int) -> str:
    return f"""program(1)
route("autograd")
x0 = leaf(f32[4], seed={seed})
v0 = exp(x0)
backward(v0, cotangent(f32[4]))
"""


def shown(seed: int, *numbers: int, seconds: float = 1.0) -> Report:
    return Report(text(seed), features={"operand": frozenset(numbers)}, seconds={"subject": seconds})


@pytest.fixture
def corpus(tmp_path: Path) -> CountingCorpus:
    return CountingCorpus(tmp_path / "corpus", HERE).start()


def test_every_program_counts_whether_it_is_kept_or_not(corpus: CountingCorpus) -> None:
    for seed, numbers in enumerate([(10, 11), (10,), (10, 12)]):
        corpus.learn(shown(seed, *numbers))
    assert (corpus.seen[10], corpus.seen[12], len(corpus.kept)) == (3, 1, 2)


def test_energy_goes_to_what_is_rare_and_turns_to_others_when_nothing_comes_of_it(corpus: CountingCorpus) -> None:
    for seed in range(6):
        corpus.learn(shown(seed, 1, 2, *([3] if seed == 4 else []), *([4] if seed < 3 else [])))
    rng = random.Random(0)
    best = {number: corpus.frontier.best[number] for number in (1, 3, 4)}
    assert [corpus.parent(rng) for _ in range(2)] == [best[3]] * 2, "shown once"
    later = [corpus.parent(rng) for _ in range(12)]
    assert {k.id for k in later} == {best[3].id, best[4].id, best[1].id}
    assert corpus.text(best[3]) == text(4)


def test_no_line_is_a_goal_of_mutation(corpus: CountingCorpus) -> None:
    for n, lines in ((1, frozenset(range(100, 200))), (2, frozenset(range(100, 201)))):
        corpus.learn(replace(shown(n, n), features={"operand": frozenset({n}), "source": lines}))
    assert list(corpus.goals) == [1, 2]
    assert list(load_corpus(corpus.folder, CountingCorpus).goals) == [1, 2]


def test_counts_are_read_as_they_were_left(corpus: CountingCorpus) -> None:
    corpus.learn(shown(1, 10, 2**63 + 5))
    corpus.learn(shown(2, 12, seconds=0.5))
    corpus.save({"next": 7})
    found, state = resume_corpus(corpus.folder, HERE, CountingCorpus)
    assert found.seen.packed() == corpus.seen.packed()
    assert found.shown.packed() == corpus.shown.packed()
    assert found.goals == corpus.goals
    assert state == {"next": 7}


@pytest.mark.parametrize("broken", [SEEN_FILE, SHOWN_FILE, STATE_FILE])
def test_counts_that_are_missing_or_broken_are_refused_in_one_line(corpus: CountingCorpus, broken: str) -> None:
    corpus.learn(shown(1, 10))
    corpus.save({"next": 1})
    (corpus.folder / broken).write_text("no such thing")
    with pytest.raises(UsageError, match="cannot be resumed"):
        resume_corpus(corpus.folder, HERE, CountingCorpus)
    (corpus.folder / broken).unlink()
    with pytest.raises(UsageError, match="cannot be resumed"):
        resume_corpus(corpus.folder, HERE, CountingCorpus)
