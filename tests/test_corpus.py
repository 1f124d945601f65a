"""The frontier and the corpus of a guided campaign: what is kept, going on, making it smaller."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fuzzer import cli
from fuzzer.campaign import Campaign, Plan, resume, shown_at
from fuzzer.corpus import INDEX, SEEN, SHOWN, STATE, Corpus, load, reduce, resumed
from fuzzer.execution.guide import CANDIDATES
from fuzzer.execution.messages import Place, Report, Subject, UsageError
from fuzzer.execution.worker import Task, explore
from fuzzer.frontier import STILL, Frontier, Kept, covering
from fuzzer.guidance import ARMS, SHIPPED
from fuzzer.schedule import LOG, Fresh, Guided, drawn_from
from fuzzer.text import identify, parse
from fuzzer.view import status

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")), seed=11, routes=("autograd", "vjp"))
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


def kept(name: str, nodes: int, seconds: float, *numbers: int) -> Kept:
    return Kept(nodes, seconds, name, {"operand": frozenset(numbers)})


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "corpus", HERE).start()


def test_a_program_is_kept_when_it_shows_something_new(corpus: Corpus) -> None:
    assert corpus.learn(shown(1, 10, 11)) == {"operand": 2}
    assert not corpus.learn(shown(2, 10))
    assert corpus.learn(shown(3, 10, 12)) == {"operand": 1}
    assert not corpus.learn(Report("", rejected="no"))
    assert {path.stem for path in corpus.folder.glob("*.prog")} == {identify(parse(text(n))) for n in (1, 3)}
    assert corpus.seen[10] == 3
    assert corpus.frontier.families == {"operand": 3}


def test_the_frontier_names_the_smallest_then_the_fastest() -> None:
    frontier = Frontier()
    for one in (kept("a", 3, 1.0, 1, 2), kept("b", 2, 9.0, 1), kept("c", 2, 3.0, 1, 3), kept("d", 4, 0.1, 2)):
        frontier.add(one)
    assert {number: best.id for number, best in frontier.best.items()} == {1: "c", 2: "a", 3: "c"}


def test_energy_goes_to_what_is_rare_and_turns_to_others_when_nothing_comes_of_it(corpus: Corpus) -> None:
    for seed in range(6):
        corpus.learn(shown(seed, 1, 2, *([3] if seed == 4 else []), *([4] if seed < 3 else [])))
    rng = random.Random(0)
    best = {number: corpus.frontier.best[number] for number in (1, 3, 4)}
    assert [corpus.parent(rng) for _ in range(2)] == [best[3]] * 2, "shown once"
    later = [corpus.parent(rng) for _ in range(12)]
    assert {k.id for k in later} == {best[3].id, best[4].id, best[1].id}
    assert corpus.text(best[3]) == text(4)


def test_a_family_that_stands_still_or_sees_nothing_is_told() -> None:
    frontier = Frontier()
    frontier.add(kept("a", 1, 1.0, 1))
    assert not frontier.silent(["line"])
    for _ in range(STILL):
        frontier.count()
    assert frontier.still(["operand", "line"]) == ["operand"]
    assert frontier.silent(["operand", "line"]) == ["line"]


def test_of_lines_a_program_keeps_those_that_are_new_to_the_campaign(corpus: Corpus) -> None:
    """A worker tells what is new to it: of one that has just begun, almost everything."""
    first, second = (replace(shown(n, n), features={"operand": frozenset({n}), "source": lines})
                     for n, lines in ((1, frozenset(range(100, 200))), (2, frozenset(range(100, 201)))))  # fmt: skip
    assert corpus.learn(first) == {"operand": 1, "source": 100}
    assert corpus.learn(second) == {"operand": 1, "source": 1}
    assert not corpus.learn(replace(second, text=text(3)))
    assert list(corpus.frontier.found) == [1, 2], "no line is a goal of mutation"
    assert [len(one.features["source"]) for one in load(corpus.folder).kept] == [100, 1]
    assert load(corpus.folder).frontier.families == {"operand": 2, "source": 101}


def test_lines_that_stop_coming_are_told_when_the_wait_is_longer_than_all_before(tmp_path: Path) -> None:
    schedule = Guided(replace(EAGER, lines=1.0), tmp_path, Corpus(tmp_path / "corpus", HERE).start())
    frontier = schedule.corpus.frontier
    for _ in range(STILL // 4):
        frontier.count()
    assert "none at all: operand edge source (" in schedule.told()
    for _ in range(2 * STILL - STILL // 4):
        frontier.count()
    schedule.corpus.learn(replace(shown(1, 5), features={"operand": frozenset({5}), "source": frozenset({1, 2, 3})}))
    assert schedule.told().startswith("1 features, 1 programs kept, 3 lines of the compiler, ")
    for _ in range(2 * STILL):
        assert "since" not in schedule.told()
        frontier.count()
    assert f"none new in {STILL} programs: operand, " in schedule.told()
    frontier.count()
    assert f"3 lines of the compiler (none new since program {2 * STILL + 1})" in schedule.told()


def test_lines_of_a_sample_are_missed_later_and_none_where_nobody_asked(tmp_path: Path) -> None:
    for share, told in ((1 / 16, False), (0.0, False), (1.0, True)):
        schedule = Guided(replace(EAGER, lines=share), tmp_path, Corpus(tmp_path / str(share), HERE).start())
        for _ in range(STILL):
            schedule.corpus.frontier.count()
        assert (" source" in schedule.told()) == told


def test_a_new_corpus_puts_the_old_one_aside(corpus: Corpus) -> None:
    corpus.learn(shown(1, 10))
    Corpus(corpus.folder, HERE).start()
    assert load(corpus.folder).kept == []
    assert len(load(corpus.folder.with_name("corpus-1")).kept) == 1


def test_a_corpus_is_read_as_it_was_left(corpus: Corpus) -> None:
    corpus.learn(shown(1, 10, 2**63 + 5))
    corpus.learn(shown(2, 12, seconds=0.5))
    corpus.save({"next": 7})
    found, state = resumed(corpus.folder, HERE)
    assert (found.kept, [k.features for k in found.kept]) == (corpus.kept, [k.features for k in corpus.kept])
    assert found.frontier.best == corpus.frontier.best
    assert (found.frontier.programs, found.frontier.moved) == (2, {"operand": 2})
    assert found.seen.packed() == corpus.seen.packed()
    assert found.shown.packed() == corpus.shown.packed()
    assert found.frontier.found == corpus.frontier.found
    assert state == {"next": 7}


def test_a_line_that_was_cut_off_is_left_out(corpus: Corpus) -> None:
    corpus.learn(shown(1, 10))
    with (corpus.folder / INDEX).open("a") as index:
        index.write('{"program": "abc", "no')
    assert len(load(corpus.folder).kept) == 1


@pytest.mark.parametrize("name", ["torch", "backend", "device"])
def test_another_place_is_refused_in_one_clear_line(corpus: Corpus, name: str) -> None:
    corpus.save({"next": 0})
    with pytest.raises(UsageError, match=f"was made with {name} {HERE[name]}, this is other"):
        resumed(corpus.folder, {**HERE, name: "other"})


@pytest.mark.parametrize("broken", [INDEX, STATE, SEEN, SHOWN])
def test_what_is_missing_or_damaged_is_told(corpus: Corpus, broken: str) -> None:
    corpus.save({"next": 0})
    (corpus.folder / broken).write_bytes(b"{no}")
    with pytest.raises(UsageError, match=r"is not the index|fuzz without --resume"):
        resumed(corpus.folder, HERE)
    (corpus.folder / broken).unlink()
    with pytest.raises(UsageError, match=r"fuzz makes one|begins anew"):
        resumed(corpus.folder, HERE)


def test_an_index_of_something_else_is_refused(corpus: Corpus) -> None:
    (corpus.folder / INDEX).write_text("[1, 2]\n")
    with pytest.raises(UsageError, match="not the index of a corpus"):
        load(corpus.folder)


# ---------------------------------------------------------------- going on


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("fuzzer.campaign.ring", lambda *_: None)
    return Plan(EAGER, 1, programs=4, db=tmp_path / "ledger.db", folder=tmp_path / "own", guidance=ARMS["trace"])


def indices(folder: Path) -> list[int]:
    logs = sorted(folder.glob(f"campaigns/*/{LOG}"), key=lambda path: path.stat().st_mtime)
    return [json.loads(line)["index"] for line in logs[-1].read_text().splitlines()[1:]]


def test_a_resumed_campaign_goes_on_with_the_next_programs_and_what_was_seen(plan: Plan) -> None:
    Campaign(plan, print).run()
    before = load(plan.explored)
    assert before.kept
    later = resume(replace(plan, task=Task(place=EAGER.place), guidance=None, programs=3))
    assert later.task == EAGER, "seed, limits and routes are those of the corpus"
    went = Campaign(later, print)
    went.run()
    assert sorted(indices(plan.folder)) == [4, 5, 6]
    after = load(plan.explored)
    assert after.kept[: len(before.kept)] == before.kept
    assert after.state()["next"] == 7
    assert after.frontier.programs == 7
    nodes = after.state()["offers"]["ops"]
    assert sum(credit["tries"] for credit in nodes.values()) >= 7 * CANDIDATES, "credits go on, too"
    assert f"{len(after.frontier.best)} features, {len(after.kept)} programs kept" in status(went)


def test_what_was_running_when_it_was_killed_runs_again(corpus: Corpus, tmp_path: Path) -> None:
    class Asked:
        def submit(self, *given: Any) -> None:
            return None

    started = Guided(EAGER, tmp_path, corpus)
    schedule = Guided(EAGER, tmp_path, corpus, state={"next": 5, "offers": started.offers.state()})
    for n in range(4):
        schedule.submit(Asked(), EAGER, n)  # type: ignore[arg-type]
    for n in (0, 1, 3):
        schedule.learn(n, shown(n, n))
    schedule.close()
    assert corpus.state()["next"] == 7


def test_a_corpus_of_an_older_version_is_refused_in_one_clear_line(plan: Plan) -> None:
    made = Corpus(plan.explored, shown_at(EAGER)).start()
    made.save({**drawn_from(EAGER), "next": 3})
    with pytest.raises(UsageError, match="an older backfuzz's"):
        resume(plan)


def test_resume_from_the_command_line_refuses_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["fuzz", "--resume", "--programs", "1", "--device", "cpu", "--db", str(tmp_path / "x.db")]
    done = CliRunner().invoke(cli.main, arguments)
    assert (done.exit_code, "no corpus in .backfuzz/corpus" in done.output) == (2, True)
    made = Corpus(Path(".backfuzz/corpus"), {**shown_at(Task()), "torch": "2.0.0"})
    made.start().save({"next": 0})
    done = CliRunner().invoke(cli.main, arguments)
    assert (done.exit_code, "was made with torch 2.0.0" in done.output) == (2, True)


def test_by_default_programs_are_those_of_their_numbers_and_features_are_kept(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, learn = list[str](), Guided.learn

    def heard(schedule: Guided, n: int, report: Report) -> None:
        ran.append(report.text)
        learn(schedule, n, report)

    monkeypatch.setattr(Guided, "learn", heard)
    shipped = Campaign(replace(plan, workers=2, guidance=ARMS[SHIPPED]), print)
    shipped.run()
    onward = Campaign(resume(replace(plan, programs=3)), print)
    onward.run()
    assert sorted(ran) == sorted(explore(EAGER, n).text for n in range(7))
    assert "programs kept" in status(onward)


def test_an_unguided_campaign_keeps_no_corpus(plan: Plan) -> None:
    went = Campaign(replace(plan, guidance=None), print)
    went.run()
    assert isinstance(went.schedule, Fresh)
    assert not plan.explored.exists()
    assert "kept" not in status(went)


# ---------------------------------------------------------------- making it smaller


def test_few_programs_show_every_feature() -> None:
    drawn = random.Random(5)
    programs = [
        kept(f"p{n}", drawn.randint(1, 6), 1.0, *drawn.sample(range(60), drawn.randint(1, 12))) for n in range(80)
    ]
    chosen = covering(programs)
    whole = frozenset().union(*(p.features["operand"] for p in programs))
    assert frozenset().union(*(p.features["operand"] for p in chosen)) == whole
    assert len(chosen) < 20
    for one in chosen:
        left = (p.features["operand"] for p in chosen[: chosen.index(one)])
        assert one.features["operand"] - frozenset().union(*left), "each brings something"


def test_of_equals_the_smaller_program_is_taken() -> None:
    assert [k.id for k in covering([kept("a", 5, 1.0, 1, 2), kept("b", 2, 9.0, 1, 2), kept("c", 2, 1.0, 1, 2)])] == [
        "c"
    ]
    assert covering([]) == []


def test_cmin_keeps_every_feature_and_can_be_resumed(corpus: Corpus) -> None:
    for seed, numbers in enumerate([(1,), (2,), (1, 2, 3), (4,), (3, 4, 5)]):
        corpus.learn(shown(seed, *numbers))
    corpus.save({"next": 5})
    arguments = ["cmin", "--corpus", str(corpus.folder)]
    done = CliRunner().invoke(cli.main, [*arguments, "--out", str(corpus.folder.with_name("small")), "--json"])
    assert json.loads(done.output) == {"programs": 5, "kept": 2, "features": 5}
    assert len(load(corpus.folder).kept) == 5, "the corpus itself is as it was"
    done = CliRunner().invoke(cli.main, arguments)
    assert "2 of 5 programs show all 5 features" in done.output
    found, state = resumed(corpus.folder, HERE)
    assert found.frontier.best.keys() == corpus.frontier.best.keys()
    assert len(list(corpus.folder.glob("*.prog"))) == 2
    assert state == {"next": 5}


def test_cmin_overwrites_nothing_else(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        reduce(corpus, tmp_path / "mine")
