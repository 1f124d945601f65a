"""Guided campaigns: what is chosen, that it is logged, and that the log gives the same programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fuzzer import commands
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.execution.explore import draw_program
from fuzzer.execution.messages import Report, Task
from fuzzer.generation.knobs import Knobs
from fuzzer.guidance.arms import ARMS, CandidateSource
from fuzzer.guidance.candidates import (
    CANDIDATES,
    CandidateSpec,
    Choice,
    LoggedChoice,
    explore_logged,
)
from fuzzer.guidance.parents import CountingCorpus
from fuzzer.guidance.schedule import CREDITS_FILE, LOG_FILE, FromLog, Guided, guided, read_log
from fuzzer.judgement.trial import Place, Subject, UsageError
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.text import show
from tests.guidance.eager import EAGER, texts


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("fuzzer.campaign.loop.require_canaries", lambda *_: None)
    return Plan(EAGER, 2, programs=6, db=tmp_path / "ledger.db", folder=tmp_path / "own")


def campaign(plan: Plan, arm: str, say: Callable[[str], None] = print) -> Campaign:
    """A campaign under an arm, with a new corpus."""
    return Campaign(plan, say, lambda own: guided(plan.task, own, plan.explored, {"torch": "2.13.0"}, ARMS[arm]))


@pytest.mark.parametrize("arm", ["trace", "mutation", "price"])
def test_a_log_gives_the_very_programs_again(plan: Plan, monkeypatch: pytest.MonkeyPatch, arm: str) -> None:
    monkeypatch.setattr(CandidateSource, "_mutates", lambda self: arm == "mutation" and len(self.corpus.kept) > 1)
    found = texts(monkeypatch)
    plan = replace(plan, programs=8)
    said: list[str] = []
    campaign(plan, arm, said.append).run()
    chosen = sorted(found)
    found.clear()
    (log,) = plan.folder.glob(f"campaigns/*/{LOG_FILE}")
    rows = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert sorted(row["index"] for row in rows) == list(range(8))
    assert all(len(row["novelty"]) == CANDIDATES and row["class"] for row in rows)
    assert rows[0]["new"] > 0
    assert all(row["cpu"] > 0 for row in rows)
    credits = json.loads(log.with_name(CREDITS_FILE).read_text())
    assert sum(c["new"] > 0 for c in credits["op"].values()) > 5
    assert bool(credits["mutator"]) == (arm == "mutation")
    assert any("features, " in line and "programs kept" in line for line in said)
    assert any("knobs" in row for row in rows) == any("mutator" in row for row in rows) == (arm == "mutation")
    task, again = read_log(log, Task(place=EAGER.place, features=True))
    assert task == EAGER
    Campaign(replace(plan, task=task), print, lambda own: FromLog(again)).run()
    assert sorted(found) == [text for text in chosen if text]


def empty(folder: Path) -> CountingCorpus:
    return CountingCorpus(folder / "corpus", {"torch": "2.13.0"}).start()


class Asked:
    """A pool that only notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def submit(self, *given: Any) -> None:
        self.asked.append(given)


def test_what_ran_can_be_run_again_and_what_was_refused_is_left_out(tmp_path: Path) -> None:
    schedule, pool = Guided(EAGER, tmp_path, empty(tmp_path), ARMS["mutation"]), Asked()
    text = show(draw_program(EAGER, 4, 1))
    died = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    for n in range(4):
        schedule.submit(pool, EAGER, n)  # type: ignore[arg-type]
    turned = Knobs(nodes=0.0, family="loss")
    schedule.pending[2] = (CandidateSpec(), CandidateSpec(turned))
    schedule.pending[3] = (CandidateSpec(mutator="resize", parent=text, donor=text),)
    schedule.learn(0, Report(text, (died,)))
    schedule.learn(1, Choice("", rejected="every one", scores=(None, None)))
    schedule.learn(2, Choice(text, scores=(1.0, 2.0), candidate=1))
    schedule.learn(3, Choice(text, scores=(1.0,)))
    task, found = read_log(tmp_path / LOG_FILE, EAGER)
    assert task == EAGER
    assert found == [LoggedChoice(0, text=text), LoggedChoice(2, 1, turned), LoggedChoice(3, text=text)]
    rows = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert rows[0]["guidance"]["mutation"] == ARMS["mutation"].mutation
    assert [row.get("mutator") for row in rows[1:]] == [None, None, None, "resize"]
    again = Asked()
    FromLog(found).submit(again, EAGER, 1)  # type: ignore[arg-type]
    assert again.asked == [(explore_logged, EAGER, found[1])]


def test_a_log_keeps_settings_and_limits(tmp_path: Path) -> None:
    limits = replace(EAGER.limits, dtypes=("f32", "c64"))
    task = replace(EAGER, fixed=(("inductor.max_fusion_size", 4),), limits=limits)
    Guided(task, tmp_path, empty(tmp_path), ARMS["trace"])
    assert read_log(tmp_path / LOG_FILE, Task(place=EAGER.place, features=True)) == (task, [])


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"index": 3}\n')
    with pytest.raises(UsageError, match="not a log of choices"):
        read_log(tmp_path / "x", EAGER)
    Guided(EAGER, tmp_path, empty(tmp_path), ARMS["trace"])
    with pytest.raises(UsageError, match="drawn for cpu, not cuda"):
        read_log(tmp_path / LOG_FILE, Task(place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda"))))


def test_again_and_resume_exclude_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands.main, ["fuzz", "--resume", "--again", str(tmp_path / LOG_FILE), "--device", "cpu"]
    )
    assert done.exit_code == 2
    assert "take one of them" in done.output


def test_a_corpus_that_lacks_what_choices_brought_is_refused_in_one_line(tmp_path: Path) -> None:
    state = Guided(EAGER, tmp_path, empty(tmp_path), ARMS["trace"]).source.state()
    del state["price"]
    with pytest.raises(UsageError, match="an older backfuzz's, without 'price'; fuzz without --resume begins anew"):
        Guided(EAGER, tmp_path, empty(tmp_path), ARMS["trace"], state={"next": 3, "offers": state})
