"""Guided campaigns: what is chosen, that it is logged, and that the log gives the same programs."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fuzzer import cli
from fuzzer.campaign import Campaign, Plan
from fuzzer.corpus import Corpus
from fuzzer.execution import guide, worker
from fuzzer.execution.guide import CANDIDATES, explore_again, explore_heard, explore_rarest
from fuzzer.execution.messages import Place, Report, Subject, UsageError
from fuzzer.execution.worker import Refused, Task, draw, explore
from fuzzer.frontier import PLACES, Seen
from fuzzer.schedule import ARMS, LOG, Again, Fresh, Guidance, Guided, read_log
from fuzzer.text import parse, show
from fuzzer.verdict import Signature, Verdict

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")), seed=11, routes=("autograd", "vjp"))


def test_the_rarest_of_the_candidates_is_compiled() -> None:
    report = explore_rarest(EAGER, (3, Seen().packed()))
    assert len(report.scores) == CANDIDATES
    ran = [score for score in report.scores if score is not None]
    assert report.scores[report.candidate] == max(ran) or report.redrawn
    assert report.text == show(draw(EAGER, 3, report.candidate))
    assert report.features["operand"]
    assert report.features["edge"]


def test_what_was_met_often_is_chosen_no_more() -> None:
    fresh = explore_rarest(EAGER, (3, Seen().packed()))
    seen = Seen()
    for _ in range(50):
        seen.add(fresh.features)
    other = explore_rarest(EAGER, (3, seen.packed()))
    assert other.scores[fresh.candidate] < fresh.scores[fresh.candidate]  # type: ignore[operator]
    assert other.candidate != fresh.candidate


def test_the_choice_depends_on_the_task_and_the_counts_alone() -> None:
    seen = Seen()
    seen.counts[:] = bytes(i % 7 for i in range(PLACES))
    once, twice = (explore_rarest(EAGER, (5, seen.packed())) for _ in range(2))
    assert (once.text, once.scores, once.features) == (twice.text, twice.scores, twice.features)


def test_a_candidate_in_whose_gradients_no_fault_could_show_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    best = explore_rarest(EAGER, (3, Seen().packed())).candidate
    deaf = show(draw(EAGER, 3, best))
    monkeypatch.setattr(guide, "is_heard", lambda trial, journal: show(trial.program) != deaf)
    report = explore_rarest(EAGER, (3, Seen().packed()))
    assert report.candidate != best
    assert report.redrawn == 1
    monkeypatch.setattr(guide, "is_heard", lambda trial, journal: False)
    assert explore_rarest(EAGER, (3, Seen().packed())).candidate == best, "the rarest all the same"


def test_a_blind_campaign_can_be_watched_without_changing_its_programs() -> None:
    for n in range(6):
        watched, plain = explore_heard(EAGER, (n, Seen().packed())), explore(EAGER, n)
        assert (watched.text, watched.redrawn, watched.rejected) == (plain.text, plain.redrawn, plain.rejected)
        assert watched.features or watched.rejected
        assert watched.rejected or watched.text == show(draw(EAGER, n, watched.candidate))


def test_each_arm_has_what_stands_before_it_and_one_level_more() -> None:
    blind, *others = ARMS.values()
    assert blind == Guidance(candidates=1)
    for before, after in itertools.pairwise([blind, *others]):
        assert before.candidates <= after.candidates
        assert set(before.credits) <= set(after.credits)
        assert before.mutation <= after.mutation


def test_a_program_of_which_every_candidate_is_refused_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Refused("it raised")

    monkeypatch.setattr(guide, "begin", refuse)
    report = explore_rarest(EAGER, (3, Seen().packed()))
    assert (report.verdict, report.rejected, report.scores) == ("rejected", "it raised", (None,) * CANDIDATES)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("fuzzer.campaign.ring", lambda *_: None)
    return Plan(EAGER, 2, programs=6, db=tmp_path / "ledger.db", folder=tmp_path / "own", guidance=ARMS["trace"])


def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs of the campaigns that follow, as they are counted."""
    found: list[str] = []
    before = Campaign._take

    def take(self: Campaign, *given: Any) -> Report:
        report = before(self, *given)
        found.append(report.text)
        return report

    monkeypatch.setattr(Campaign, "_take", take)
    return found


def test_a_log_gives_the_very_programs_again(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    found = texts(monkeypatch)
    Campaign(plan, print).run()
    chosen = sorted(found)
    found.clear()
    (log,) = plan.folder.glob(f"campaigns/*/{LOG}")
    rows = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert sorted(row["index"] for row in rows) == list(range(6))
    assert all(len(row["novelty"]) == CANDIDATES and row["class"] for row in rows)
    assert rows[0]["new"] > 0
    task, again = read_log(log, Task(place=EAGER.place))
    assert task == EAGER
    Campaign(replace(plan, task=task, guidance=ARMS["blind"], again=tuple(again)), print).run()
    assert sorted(found) == chosen


def test_unguided_programs_are_those_of_their_numbers(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    found = texts(monkeypatch)
    Campaign(replace(plan, guidance=ARMS["blind"]), print).run()
    assert sorted(found) == sorted(explore(EAGER, n).text for n in range(6))
    assert not list(plan.folder.glob(f"campaigns/*/{LOG}"))


def empty(folder: Path) -> Corpus:
    return Corpus(folder / "corpus", {"torch": "2.13.0"}).start()


def test_a_program_whose_worker_died_is_logged_as_text(tmp_path: Path) -> None:
    schedule = Guided(EAGER, tmp_path, empty(tmp_path))
    text = show(draw(EAGER, 4, 1))
    died = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    schedule.learn(4, Report(text, (died,)))
    schedule.learn(5, Report("", rejected="every one", scores=(None, None)))
    _, chosen = read_log(tmp_path / LOG, EAGER)
    assert chosen == [text, (5, 0)]
    asked: list[Any] = []

    class Asked:
        def submit(self, *given: Any) -> None:
            asked.append(given)

    for n in range(2):
        Again(chosen).submit(Asked(), EAGER, n)  # type: ignore[arg-type]
    assert asked == [(worker.examine, EAGER, text), (explore_again, EAGER, (5, 0))]
    Fresh().submit(Asked(), EAGER, 9)  # type: ignore[arg-type]
    assert asked[-1] == (explore, EAGER, 9)


def test_a_log_keeps_settings_and_limits(tmp_path: Path) -> None:
    limits = replace(EAGER.limits, dtypes=("f32", "c64"))
    task = replace(EAGER, fixed=(("inductor.max_fusion_size", 4),), limits=limits)
    Guided(task, tmp_path, empty(tmp_path))
    assert read_log(tmp_path / LOG, Task(place=EAGER.place)) == (task, [])


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"index": 3}\n')
    with pytest.raises(UsageError, match="not a log of choices"):
        read_log(tmp_path / "x", EAGER)
    Guided(EAGER, tmp_path, empty(tmp_path))
    with pytest.raises(UsageError, match="drawn for cpu, not cuda"):
        read_log(tmp_path / LOG, Task(place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda"))))


def test_again_and_resume_exclude_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["fuzz", "--resume", "--again", str(tmp_path / LOG), "--device", "cpu"])
    assert done.exit_code == 2
    assert "take one of them" in done.output


def test_features_prints_words(tmp_path: Path) -> None:
    path = tmp_path / "one.prog"
    path.write_text('program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n')
    assert parse(path.read_text())
    done = CliRunner().invoke(cli.main, ["features", str(path), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "  operand   forward exp 0: f32 rank 1 contiguous\n" in done.output
    assert "  edge      saved exp > mul 1: contiguous\n" in done.output
