"""`backfuzz replay`: what it prints and what it exits with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fuzzer.commands.replay import ask
from fuzzer.commands.shared.options import Sides
from fuzzer.judgement.verdict import Natural, Verdict
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report
from tests.commands.calls import EAGER, FINDING, PLANTED, RELU, SEED, call


def test_a_program_that_this_torch_cannot_run_is_told_and_the_others_still_run(tmp_path: Path) -> None:
    (tmp_path / "op.prog").write_text(RELU.replace("relu(", "no_such_op("))
    (tmp_path / "setting.prog").write_text(PLANTED.replace("inject_relu_bug_TESTING_ONLY", "no_such_setting"))
    (tmp_path / "route.prog").write_text(RELU.replace('"autograd"', '"no_such_route"'))
    (tmp_path / "syntax.prog").write_text(RELU.replace("relu(x0)", "relu(x0"))
    (tmp_path / "agrees.prog").write_text("# expect: agree\n" + RELU)
    (tmp_path / "wrong.prog").write_text("# expect: wrong\n" + RELU)
    done = call("replay", ".", *EAGER, "--expect", "--junit", "told.xml")
    assert done.exit_code == 2
    op, route, setting, syntax = done.stderr.splitlines()
    assert "op.prog: rejected (no op 'no_such_op'" in op
    assert "no setting" in setting
    assert "no_such_setting" in setting
    assert "no route 'no_such_route'" in route
    assert syntax.startswith("syntax.prog: unreadable (line 4, column ")
    assert done.stdout.splitlines() == [
        "agrees.prog: agree",
        "wrong.prog: agree (expected: wrong)",
        "6 programs: 2 agree, 3 rejected, 1 unreadable; 1 not as expected",
    ]
    suite = ElementTree.parse("told.xml").find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["6", "1", "4"]
    assert {p.get("name"): p.get("value") for p in suite.iter("property")}["backend"] == "aot_eager"


def test_replay_of_an_agreeing_program_exits_0() -> None:
    done = call("replay", SEED, *EAGER, "--json")
    assert done.exit_code == 0, done.output
    [row] = json.loads(done.stdout)
    assert (row["program"], row["class"], row["verdicts"]) == (str(SEED), "agree", [])
    assert row["elements"] >= row["detectable"] > 0


def test_a_program_runs_at_a_stage_and_one_that_it_cannot_run_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = ("--compare", "eager", "inductor:ir", "--device", "cpu", "--workers", "1")
    done = call("replay", SEED, *sides)
    assert (done.exit_code, done.stdout) == (0, f"{SEED}: agree\n"), done.output
    built = Report(RELU, built="route: aoti")
    monkeypatch.setattr("fuzzer.trial.verify.examine_each", lambda pool, asked: [built])
    assert call("replay", SEED, *sides).stdout == f"{SEED}: agree (built: route: aoti)\n"


def test_what_replay_exits_with_follows_from_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Report(RELU, (Verdict(FINDING.signature, "x0.grad[2]: compiled 0, eager 1"),))
    rejected = Report(RELU, rejected="no such op")
    for reports, code in (([Report(RELU)], 0), ([wrong], 1), ([Report(RELU), wrong, rejected], 2)):
        monkeypatch.setattr("fuzzer.trial.verify.examine_each", lambda pool, asked, r=tuple(reports): list(r))
        assert call("replay", *[SEED] * len(reports), *EAGER).exit_code == code


@pytest.mark.slow
def test_replay_of_a_planted_fault_exits_1(tmp_path: Path) -> None:
    (tmp_path / "planted.prog").write_text(PLANTED)
    done = call("replay", "planted.prog", "--device", "cpu", "--workers", "1")
    assert done.exit_code == 1, done.output
    assert "planted.prog: wrong" in done.stdout


def test_a_finding_replays_where_it_was_found_unless_told_otherwise() -> None:
    from fuzzer.commands.shared.reference import finding_task

    across = replace(FINDING, place={"backend": "eager", "against": "eager@cpu", "device": "cpu"})
    own = finding_task(across, Sides()).place
    assert (str(own.reference), str(own.subject)) == ("eager@cpu", "eager@cpu")
    other = finding_task(FINDING, Sides(backend="aot_eager")).place
    assert (str(other.reference), str(other.subject)) == ("eager@cpu", "aot_eager@cpu")


def test_the_natural_program_of_a_finding_is_run_where_it_is_asked_for(tmp_path: Path) -> None:
    natural = Natural(FINDING.program.replace("relu", "tanh"), FINDING.signature, "0 for 0.1")
    with open_store(tmp_path / "a.db") as store:
        store.add(replace(FINDING, natural=natural))
        store.set_natural(replace(FINDING, natural=natural))
    texts = [ask(FINDING.id, Sides(), tmp_path / "a.db", False, wanted).text for wanted in (False, True)]
    assert texts == [FINDING.program, natural.program]
