"""Where a campaign's programs come from: numbers, a corpus to go on with, a guidance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fuzzer import commands
from fuzzer.campaign.choices import LOG_FILE
from fuzzer.campaign.corpus import Corpus, load_corpus
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.mixture import Mixture
from fuzzer.campaign.plan import GUIDANCES, MIXTURE, Plan, corpus_environment
from fuzzer.campaign.schedule import BySeed, drawing_settings
from fuzzer.commands.shared.source import Chosen, find_source
from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial.tasks import explore
from fuzzer.workers.messages import Report, Task

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")), seed=11, routes=("autograd", "vjp"))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("fuzzer.campaign.loop.require_canaries", lambda *_: None)
    return Plan(EAGER, 1, programs=4, db=tmp_path / "ledger.db", folder=tmp_path / "own")


def campaign(
    plan: Plan,
    guidance: str | None = None,
    unguided: bool = False,
    resume: bool = False,
    around: tuple[str, ...] = (),
) -> Campaign:
    """The campaign that `fuzz` runs with these options."""
    source = find_source(plan, Chosen(around, (), guidance, unguided, resume))
    return Campaign(replace(plan, task=source.task), print, lambda own: source.schedule(source.task, own))


@pytest.mark.parametrize("guidance", ["cells", "mutants", MIXTURE])
def test_a_resumed_campaign_goes_on_with_the_next_programs_what_was_seen_and_its_guidance(
    plan: Plan, guidance: str
) -> None:
    campaign(plan, guidance).run()
    before = load_corpus(plan.explored)
    assert before.kept
    went = campaign(replace(plan, task=Task(place=EAGER.place), programs=3), resume=True)
    assert went.plan.task == replace(EAGER, cells=True), "seed, limits and routes are those of the corpus"
    went.run()
    assert isinstance(went.schedule, Mixture)
    assert went.schedule.guidance == guidance
    assert (went.schedule.parents is not None) is (GUIDANCES[guidance].around > 0)
    after = load_corpus(plan.explored)
    assert after.kept[: len(before.kept)] == before.kept
    assert after.state()["next"] == 7
    assert after.frontier.programs == 7
    assert f"{len(after.frontier.best)} features, {len(after.kept)} programs kept" in went.schedule.progress()


def test_resume_from_the_command_line_refuses_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["fuzz", "--resume", "--programs", "1", "--device", "cpu", "--db", str(tmp_path / "x.db")]
    done = CliRunner().invoke(commands.main, arguments)
    assert (done.exit_code, "no corpus in .backfuzz/corpus" in done.output) == (2, True)
    made = Corpus(Path(".backfuzz/corpus"), {**corpus_environment(Task()), "torch": "2.0.0"})
    made.start().save({"next": 0})
    done = CliRunner().invoke(commands.main, arguments)
    assert (done.exit_code, "was made with torch 2.0.0" in done.output) == (2, True)


@pytest.mark.parametrize(("guidance", "cells"), [(None, True), ("cells", True), ("blind", False)])
def test_programs_are_those_of_their_numbers_with_any_number_of_workers_and_features_are_kept(
    plan: Plan, guidance: str | None, cells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, learn = list[str](), Mixture.learn

    def heard(schedule: Mixture, n: int, report: Report) -> None:
        ran.append(report.text)
        learn(schedule, n, report)

    monkeypatch.setattr(Mixture, "learn", heard)
    campaign(replace(plan, workers=2, batch=3), guidance).run()
    assert not list(plan.folder.glob(f"campaigns/*/{LOG_FILE}")), "nothing is chosen, so nothing is logged"
    onward = campaign(replace(plan, programs=3), resume=True)
    assert onward.plan.task.cells is cells
    onward.run()
    assert sorted(ran) == sorted(explore(replace(EAGER, cells=cells), n).text for n in range(7))
    assert ("op" in onward.schedule.features()) is cells
    assert "programs kept" in onward.schedule.progress()


def test_a_corpus_by_cells_of_an_older_backfuzz_is_gone_on_with(plan: Plan) -> None:
    made = Corpus(plan.explored, corpus_environment(EAGER)).start()
    guided = {"candidates": 1, "credits": [], "mutation": 0.0, "priced": False, "code": False, "cells": True}
    made.save({**drawing_settings(replace(EAGER, cells=True)), "next": 3, "guidance": guided})
    assert campaign(plan, resume=True).plan.task.cells


def test_an_unguided_campaign_runs_the_programs_of_its_numbers_and_keeps_no_corpus(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, take = list[str](), Campaign._take

    def taken(self: Campaign, number: int, report: Report, log: Any) -> None:
        take(self, number, report, log)
        ran.append(report.text)

    monkeypatch.setattr(Campaign, "_take", taken)
    went = campaign(replace(plan, workers=2, programs=6), unguided=True)
    went.run()
    assert sorted(ran) == sorted(explore(EAGER, n).text for n in range(6))
    assert isinstance(went.schedule, BySeed)
    assert not plan.explored.exists()
    assert "kept" not in went.schedule.progress()


PARENT = """program(1)
route("autograd")
x0 = leaf(f32[3], seed=1)
v0 = exp(x0)
v1 = mul(v0, x0)
backward(v1, cotangent(f32[3], seed=2))
"""
MODULE = """import torch
inputs = (torch.randn(3, 4), torch.randn(4))
def step(x, y):
    for _ in range(8):
        x = x.sin() * y
    return torch.special.bessel_j0(x).exp().sum()
"""


def test_around_a_file_all_programs_hold_its_ops_and_a_resumed_campaign_goes_on_so(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "p.prog").write_text(PARENT)
    first = campaign(plan, around=(str(tmp_path / "p.prog"),))
    first.run()
    assert first.schedule.progress().startswith("4 around 1 cause(s); ")
    (tmp_path / "p.prog").unlink()
    onward = campaign(replace(plan, programs=3), resume=True)
    onward.run()
    assert onward.schedule.progress().startswith("3 around 1 cause(s); ")
    found = load_corpus(plan.explored)
    assert found.kept
    for text in map(found.text, found.kept):
        assert text.index("exp(") < text.index("mul("), text


def test_around_a_function_its_pieces_are_the_parents(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    went = campaign(plan, around=(f"{tmp_path}/steps.py:step",))
    went.run()
    assert isinstance(went.schedule, Mixture)
    assert went.schedule.parents is not None
    assert sorted(went.schedule.parents.causes) == [
        "exp sum",
        "sin mul sin mul",
        "sin mul sin mul sin mul sin mul sin mul sin mul",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--around", "nowhere.prog"],
            "nowhere.prog: No such file or directory; --around takes a .prog file, a folder",
        ),
        (["--around", "empty"], "empty: it holds no program"),
        (["--around", "bad.prog"], "bad.prog: "),
        (["--around", "no.such:f"], "no.such: no such file, and no such module (no is not installed)"),
        (["--around", "x.prog", "--resume"], "--around names programs for a new campaign"),
        (["--around", "x.prog", "--guidance", "mutants"], "with --around: around, mixture"),
        (["--around", "int.py"], "int.py: no piece of it is a program: "),
    ],
)
def test_what_is_no_parent_is_refused_in_words(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("bad.prog").write_text("program(2)")
    Path("int.py").write_text("import torch\ninputs = (torch.ones(3),)\ndef f(x): return torch.special.bessel_j0(x)")
    done = CliRunner().invoke(commands.main, ["fuzz", *arguments, "--programs", "1", "--device", "cpu"])
    assert done.exit_code == 2
    assert said in done.output
