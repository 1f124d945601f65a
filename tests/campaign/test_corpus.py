"""The frontier and the corpus of a guided campaign: what is kept, going on, making it smaller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.corpus import INDEX_FILE, STATE_FILE, Corpus, distil, index_row, load_corpus, resume_corpus
from fuzzer.campaign.schedule import BySeedWithCorpus
from fuzzer.coverage.frontier import STALL_PROGRAMS
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.errors import UsageError
from fuzzer.language.text import identify, parse
from fuzzer.workers.messages import Report, Task
from tests.campaign.kept import HERE, shown, text

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")), seed=11, routes=("autograd", "vjp"))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus", HERE).start()


def test_a_program_is_kept_when_it_shows_something_new(corpus: Corpus) -> None:
    assert corpus.learn(shown(1, 10, 11)) == {"operand": 2}
    assert not corpus.learn(shown(2, 10))
    assert corpus.learn(shown(3, 10, 12)) == {"operand": 1}
    assert not corpus.learn(Report("", rejected="no"))
    assert {path.stem for path in corpus.folder.glob("*.prog")} == {identify(parse(text(n))) for n in (1, 3)}
    assert corpus.frontier.families == {"operand": 3}


def test_a_full_corpus_keeps_no_more_and_says_so(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", HERE, most=2).start()
    learned = [bool(corpus.learn(shown(n, n))) for n in range(1, 5)]
    assert learned == [True, True, False, False]
    assert (len(corpus.kept), len(corpus.frontier.best), corpus.frontier.programs) == (2, 2, 4)
    schedule = BySeedWithCorpus(EAGER, corpus)
    assert "no more will be: --resume with a larger --keep" in schedule.progress()
    assert schedule.full()
    corpus.frontier.programs = 100 * STALL_PROGRAMS
    assert not schedule.plateau(), "nothing new is counted any more, so nobody knows"
    assert not resume_corpus(corpus.folder, HERE, 3)[0].full


def test_of_lines_a_program_keeps_those_that_are_new_to_the_campaign(corpus: Corpus) -> None:
    """A worker tells what is new to it: of one that has just begun, almost everything."""
    first, second = (replace(shown(n, n), features={"operand": frozenset({n}), "source": lines})
                     for n, lines in ((1, frozenset(range(100, 200))), (2, frozenset(range(100, 201)))))  # fmt: skip
    assert corpus.learn(first) == {"operand": 1, "source": 100}
    assert corpus.learn(second) == {"operand": 1, "source": 1}
    assert not corpus.learn(replace(second, text=text(3)))
    assert [len(one.features["source"]) for one in load_corpus(corpus.folder).kept] == [100, 1]
    assert load_corpus(corpus.folder).frontier.families == {"operand": 2, "source": 101}


def test_lines_that_stop_coming_are_told_when_the_wait_is_longer_than_all_before(tmp_path: Path) -> None:
    schedule = BySeedWithCorpus(replace(EAGER, lines=1.0), Corpus(tmp_path / "corpus", HERE).start())
    frontier = schedule.corpus.frontier
    for _ in range(STALL_PROGRAMS // 4):
        frontier.count()
    assert "none at all: operand edge source (" in schedule.progress()
    for _ in range(2 * STALL_PROGRAMS - STALL_PROGRAMS // 4):
        frontier.count()
    schedule.corpus.learn(replace(shown(1, 5), features={"operand": frozenset({5}), "source": frozenset({1, 2, 3})}))
    assert schedule.progress().startswith("1 features, 1 programs kept, 3 lines of the compiler, ")
    for _ in range(2 * STALL_PROGRAMS):
        assert "since" not in schedule.progress()
        frontier.count()
    assert f"none new in {STALL_PROGRAMS} programs: operand, " in schedule.progress()
    frontier.count()
    assert f"3 lines of the compiler (none new since program {2 * STALL_PROGRAMS + 1})" in schedule.progress()


def test_lines_of_a_sample_are_missed_later_and_none_where_nobody_asked(tmp_path: Path) -> None:
    for share, told in ((1 / 16, False), (0.0, False), (1.0, True)):
        schedule = BySeedWithCorpus(replace(EAGER, lines=share), Corpus(tmp_path / str(share), HERE).start())
        for _ in range(STALL_PROGRAMS):
            schedule.corpus.frontier.count()
        assert (" source" in schedule.progress()) == told


def test_a_new_corpus_puts_the_old_one_aside(corpus: Corpus) -> None:
    corpus.learn(shown(1, 10))
    Corpus(corpus.folder, HERE).start()
    assert load_corpus(corpus.folder).kept == []
    assert len(load_corpus(corpus.folder.with_name("corpus-1")).kept) == 1


def test_a_corpus_is_read_as_it_was_left(corpus: Corpus) -> None:
    corpus.learn(shown(1, 10, 2**63 + 5))
    corpus.learn(shown(2, 12, seconds=0.5))
    corpus.save({"next": 7})
    found, state = resume_corpus(corpus.folder, HERE)
    assert (found.kept, list(map(index_row, found.kept))) == (corpus.kept, list(map(index_row, corpus.kept)))
    assert found.frontier.best == corpus.frontier.best
    assert (found.frontier.programs, found.frontier.last_new) == (2, {"operand": 2})
    assert state == {"next": 7}


def test_a_line_that_was_cut_off_is_left_out(corpus: Corpus) -> None:
    corpus.learn(shown(1, 10))
    with (corpus.folder / INDEX_FILE).open("a") as index:
        index.write('{"program": "abc", "no')
    assert len(load_corpus(corpus.folder).kept) == 1


@pytest.mark.parametrize("name", ["torch", "backend", "device"])
def test_another_place_is_refused_in_one_clear_line(corpus: Corpus, name: str) -> None:
    corpus.save({"next": 0})
    with pytest.raises(UsageError, match=f"was made with {name} {HERE[name]}, this is other"):
        resume_corpus(corpus.folder, {**HERE, name: "other"})


@pytest.mark.parametrize("broken", [INDEX_FILE, STATE_FILE])
def test_what_is_missing_or_damaged_is_told(corpus: Corpus, broken: str) -> None:
    corpus.save({"next": 0})
    (corpus.folder / broken).write_bytes(b"{no}")
    with pytest.raises(UsageError, match=r"is not the index|fuzz without --resume"):
        resume_corpus(corpus.folder, HERE)
    (corpus.folder / broken).unlink()
    with pytest.raises(UsageError, match=r"fuzz makes one|begins anew"):
        resume_corpus(corpus.folder, HERE)


def test_an_index_of_something_else_is_refused(corpus: Corpus) -> None:
    (corpus.folder / INDEX_FILE).write_text("[1, 2]\n")
    with pytest.raises(UsageError, match="not the index of a corpus"):
        load_corpus(corpus.folder)


def test_what_was_running_when_it_was_killed_runs_again(corpus: Corpus) -> None:
    class Asked:
        def submit(self, *given: Any, **how: Any) -> None:
            return None

    schedule = BySeedWithCorpus(EAGER, corpus, {"next": 5})
    for n in range(4):
        schedule.submit(Asked(), EAGER, n)  # type: ignore[arg-type]
    for n in (0, 1, 3):
        schedule.learn(n, shown(n, n))
    state = corpus.state()  # written with every program: nobody closes what is killed
    assert (state["next"], state["pending"]) == (9, [7])
    onward = BySeedWithCorpus(EAGER, corpus, state)
    assert [onward.number(n) for n in range(3)] == [7, 9, 10]
    assert corpus.state()["pending"] == [7], "and killed again before anything ran"


# ---------------------------------------------------------------- making it smaller


def test_cmin_overwrites_nothing_else(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        distil(corpus, tmp_path / "mine")
