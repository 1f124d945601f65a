"""The loop and its triage, with nothing compiled: what is stored, what is kept, what is told."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer import campaign, view
from fuzzer.answers import Answers
from fuzzer.campaign import Campaign, Outcome, Plan, Suspect, Totals, Triage, triage, without_paths
from fuzzer.diagnose import Verification
from fuzzer.execution.messages import Place, Report, Subject
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import OUR_FAULT, Task, explore
from fuzzer.store import LockedStore, open_store
from fuzzer.text import parse, show
from fuzzer.verdict import Finding, Signature, Verdict
from minimizer.reduce import Reduction

SIGNATURE = Signature("gradients_agree", "wrong", "backward", "other")
OTHER = Signature("worker_survives", "crashes", "backward", "SIGSEGV")
PROGRAM = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
PLACE = {"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"}
EAGER = Place(Subject("eager", "cpu"), Subject("eager", "cpu"))


@pytest.mark.parametrize(("waiting", "room"), [(0, 10), (8, 10), (9, 4)])
def test_half_of_the_workers_explore_while_suspects_pile_up(tmp_path: Path, waiting: int, room: int) -> None:
    plan = Plan(Task(place=EAGER), 8, db=tmp_path / "findings.db", folder=tmp_path)
    made = Campaign(plan, print)
    assert made._room() == 10
    made.triage = Triage(plan, FakePool(lambda task, what: wrong()), "name", made.totals, print)  # type: ignore[arg-type]
    made.triage.waiting = [Suspect(PROGRAM, SIGNATURE)] * waiting
    assert made._room() == room


def wrong(signature: Signature = SIGNATURE, text: str = PROGRAM) -> Report:
    return Report(text, (Verdict(signature, "x0.grad[2]: compiled 0, eager 1"),), detectable=3, elements=4)


def stored(**changes: Any) -> Finding:
    return replace(Finding(SIGNATURE, "detail", PROGRAM, PROGRAM, PLACE, 3, 3, created="2026-01-01"), **changes)


class FakePool:
    """Answers every task at once with the report that `answer` gives for (task, what)."""

    workers = 1

    def __init__(self, answer: Callable[[Task, Any], Report]):
        self.answer = answer

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, function: Any, task: Task, what: Any) -> Future[Report]:
        future: Future[Report] = Future()
        future.set_result(self.answer(task, what))
        return future

    def result(self, future: Future[Report], task: Task) -> Report:
        return future.result()

    def sweep(self) -> None:
        return None


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    task = Task(place=EAGER)
    return Plan(task, 1, programs=8, db=tmp_path / "ledger.db", folder=tmp_path / "own", corpus=tmp_path / "corpus")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Minimizing, verifying and diagnosing that take no time; `reproduced` may be changed."""
    state: dict[str, Any] = {"reproduced": 3}

    def verify(text: str, task: Task, signature: Signature, *_: Any) -> Verification:
        return Verification(state["reproduced"], 3, Verdict(signature, "in /srv/someone/code.py"))

    minimal = Reduction(parse(PROGRAM), 1, 0, (), (), True, "fixpoint")
    monkeypatch.setattr(campaign, "minimize", lambda *_: minimal)
    monkeypatch.setattr(campaign, "verify", verify)
    monkeypatch.setattr(campaign, "diagnose", lambda finding, *_: finding)
    monkeypatch.setattr(campaign, "ring", lambda pool, plan, say: None)
    return state


def one(plan: Plan, report: Report | None = None, suspect: Suspect | None = None) -> Outcome:
    pool: Any = FakePool(lambda task, what: report or wrong())
    return triage(suspect or Suspect(PROGRAM, SIGNATURE), plan, Answers(pool, plan.task), PLACE, "c1")


def run(
    plan: Plan, answer: Callable[[Task, Any], Report], monkeypatch: pytest.MonkeyPatch
) -> tuple[Campaign, list[str]]:
    """A campaign on a fake pool, and what it said."""
    said: list[str] = []
    monkeypatch.setattr(campaign, "Pool", lambda *_, **__: FakePool(answer))
    made = Campaign(plan, said.append)
    made.run()
    return made, said


# ---------------------------------------------------------------- answers


def test_no_candidate_runs_twice_and_what_nobody_waited_for_is_kept(plan: Plan) -> None:
    ran: list[str] = []

    def answer(task: Task, text: str) -> Report:
        ran.append(text)
        return Report(text, (Verdict(SIGNATURE, "it is wrong"),))

    pool: Any = FakePool(answer)
    answers = Answers(pool, plan.task)
    one, other = parse(PROGRAM), parse(PROGRAM.replace("seed=1", "seed=2"))
    assert one != other
    assert next(iter(answers([one, other]))) == {SIGNATURE: math.inf}
    assert list(answers.running) == [show(other)]  # it ran, and its answer was not taken
    assert list(answers([other, one])) == [{SIGNATURE: math.inf}] * 2
    assert not answers.running
    assert sorted(ran) == sorted(map(show, (one, other)))


# ---------------------------------------------------------------- triage


def test_a_verified_suspect_becomes_a_finding_and_a_regression_program(plan: Plan, fakes: dict[str, Any]) -> None:
    outcome = one(plan)
    assert outcome.new
    with open_store(plan.db, create=False) as store:
        [found] = store.list()
    assert (found.signature, found.program, found.reproduced, found.runs) == (SIGNATURE, PROGRAM, 3, 3)
    assert found.detail == "in code.py"
    assert plan.corpus is not None
    kept = parse((plan.corpus / f"{found.id}.prog").read_text())
    assert kept.nodes == parse(PROGRAM).nodes
    assert any("expect: wrong" in line for line in kept.comment)


def test_a_reduction_that_slips_to_rounding_is_done_again_under_the_final_look(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slipped = PROGRAM.replace("seed=1", "seed=2")
    looks: list[bool] = []

    def minimize(program: Any, verdict: Any, answers: Answers, *_: Any) -> Reduction:
        looks.append(answers.task.final)
        text = PROGRAM if answers.task.final else slipped
        return Reduction(parse(text), 1, 0, (), (), True, "fixpoint")

    monkeypatch.setattr(campaign, "minimize", minimize)
    pool: Any = FakePool(lambda task, text: Report(text) if text == slipped else wrong(text=text))
    outcome = triage(Suspect(PROGRAM, SIGNATURE), plan, Answers(pool, plan.task), PLACE, "c1")
    assert looks == [False, True]
    assert outcome.finding is not None
    assert outcome.finding.program == PROGRAM

    monkeypatch.setattr(campaign, "minimize", lambda *_: Reduction(parse(slipped), 1, 0, (), (), True, "fixpoint"))
    assert triage(Suspect(PROGRAM, SIGNATURE), plan, Answers(pool, plan.task), PLACE, "c1").finding is None


def test_a_suspect_of_other_settings_is_looked_into_without_its_settings(plan: Plan, fakes: dict[str, Any]) -> None:
    text = PROGRAM.replace("route(", 'settings({"inductor.max_fusion_size": 4})\nroute(')
    assert text != PROGRAM
    outcome = one(plan, suspect=Suspect(text, replace(SIGNATURE, oracle="settings_agree")))
    assert (outcome.finding, [show(p) for p in outcome.others]) == (None, [PROGRAM])


def test_differences_that_are_legal_are_counted_and_agree(plan: Plan, fakes: dict[str, Any], monkeypatch: Any) -> None:
    noted = Verdict(Signature("rerun_is_identical", "agree", "backward", "no set order"), "two runs differ")
    made, _ = run(plan, lambda task, what: Report(PROGRAM, (noted,)), monkeypatch)
    summary = made.totals.summary()
    assert summary["classes"] == {"agree": 8}
    assert summary["legal_differences"] == {"rerun_is_identical/agree/backward/no set order": 8}


def test_a_finding_is_safe_before_it_is_diagnosed_and_is_diagnosed_once(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Finding] = []

    def look(finding: Finding, *_: Any) -> Finding:
        with open_store(plan.db, create=False) as store:
            seen.append(store.get(finding.id))
        return replace(finding, diagnosis={"ratio": "all zero"})

    monkeypatch.setattr(campaign, "diagnose", look)
    assert one(plan).new
    assert not one(plan).new
    [before] = seen
    with open_store(plan.db, create=False) as store:
        assert store.list() == [replace(before, diagnosis={"ratio": "all zero"})]
    assert before.diagnosis == {}


def test_a_known_finding_is_not_stored_twice_and_the_ledger_stays_byte_identical(
    plan: Plan, fakes: dict[str, Any]
) -> None:
    assert one(plan).new
    before = plan.db.read_bytes()
    again = one(plan)
    assert again.finding is not None
    assert not again.new
    assert plan.db.read_bytes() == before


def test_a_suspect_that_is_not_minimal_when_the_time_is_up_is_kept_and_not_stored(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short = Reduction(parse(PROGRAM), 1, 0, (), (), False, "deadline")

    def late(program: Any, verdict: Any, answers: Any, how: Any, expired: Callable[[], bool]) -> Reduction:
        while not expired():
            time.sleep(0.01)
        return cut_short

    monkeypatch.setattr(campaign, "minimize", late)
    monkeypatch.setattr(campaign, "GRACE_SECONDS", 0.0)
    run(plan, some_wrong, monkeypatch)
    [left] = (plan.folder / "campaigns").glob("*/suspect-*.prog")
    assert parse(left.read_text()).nodes == parse(PROGRAM).nodes
    assert not plan.db.exists()


def test_what_does_not_show_again_in_every_fresh_process_is_not_stored(plan: Plan, fakes: dict[str, Any]) -> None:
    fakes["reproduced"] = 2
    outcome = one(plan)
    assert outcome.finding is None
    assert outcome.note == "reproduced 2 of 3 times in fresh processes"
    assert not plan.db.exists()


def test_what_does_not_show_with_caches_off_is_not_minimized(plan: Plan, fakes: dict[str, Any]) -> None:
    assert one(plan, Report(PROGRAM)).note == "did not show again (agree)"
    assert one(plan, wrong(OTHER)).note == "did not show again (crashes)"
    assert not plan.db.exists()


def waiting(plan: Plan) -> Triage:
    return Triage(plan, FakePool(lambda task, what: wrong()), "c1", Totals(), lambda line: None)  # type: ignore[arg-type]


LONGER = PROGRAM.replace("seed=1", 'values="integers", seed=1')
TANH = PROGRAM.replace("relu", "tanh").replace("seed=1", 'values="integers", seed=1')


def test_the_worst_class_is_minimized_first_and_then_the_shortest_program(plan: Plan) -> None:
    queue = waiting(plan)
    long, short, crash = Suspect(LONGER, SIGNATURE), Suspect(PROGRAM, SIGNATURE), Suspect(PROGRAM, OTHER)
    for suspect in (long, short, crash):
        queue.offer(suspect)
    assert queue.waiting == [crash, short, long]


def test_what_no_known_finding_explains_is_minimized_first(plan: Plan) -> None:
    with open_store(plan.db) as store:
        store.add(stored())
    queue = waiting(plan)
    known, unexplained = Suspect(PROGRAM, SIGNATURE), Suspect(TANH, SIGNATURE)
    for suspect in (known, unexplained):
        queue.offer(suspect)
    assert queue.waiting == [unexplained, known]


def test_a_signature_that_led_to_known_programs_too_often_is_only_minimized_where_another_op_is_at_work(
    plan: Plan,
) -> None:
    with open_store(plan.db) as store:
        store.add(stored())
    queue = waiting(plan)
    queue.fruitless[str(SIGNATURE)] = campaign.PATIENCE
    queue.offer(Suspect(PROGRAM, SIGNATURE))
    assert queue.waiting == []
    queue.offer(Suspect(TANH, SIGNATURE))
    assert [s.text for s in queue.waiting] == [TANH]
    queue.fruitless[str(SIGNATURE)] = campaign.MOST_FRUITLESS
    queue.waiting.clear()
    queue.offer(Suspect(TANH, SIGNATURE))
    assert queue.waiting == []


def test_of_many_suspects_with_one_signature_the_shortest_wait(plan: Plan) -> None:
    queue = waiting(plan)
    short = [PROGRAM.replace("seed=1", f"seed={i}") for i in range(campaign.MOST_WAITING)]
    for text in (LONGER, *short, PROGRAM):
        queue.offer(Suspect(text, SIGNATURE))
    assert [s.text for s in queue.waiting] == short


# ---------------------------------------------------------------- the campaign


def some_wrong(task: Task, what: Any) -> Report:
    """Programs 0, 1, ...: every second is wrong; as text (triage): wrong."""
    return wrong() if isinstance(what, str) or what % 2 else Report(PROGRAM, detectable=4, elements=4)


def test_a_campaign_counts_stores_and_records(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(plan, command="backfuzz fuzz --db /srv/someone/ledger.db")
    made, said = run(plan, some_wrong, monkeypatch)
    totals = made.totals.summary()
    assert totals["programs"] == 8
    assert totals["classes"] == {"wrong": 4, "agree": 4}
    assert totals["findings"] == {"wrong": 1}
    assert any("gradients_agree/wrong" in line for line in said)
    with open_store(plan.db, create=False) as store:
        [record] = store.campaigns()
        assert len(store.list()) == 1
    assert record.totals == totals
    assert record.command == "backfuzz fuzz --db ledger.db"
    [own] = (plan.folder / "campaigns").iterdir()
    assert json.loads((own / "summary.json").read_text()) == totals
    assert len((own / "trials.jsonl").read_text().splitlines()) == 4


def test_a_campaign_that_meets_only_known_findings_leaves_the_ledger_byte_identical(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan, some_wrong, monkeypatch)
    before = plan.db.read_bytes()
    made, _ = run(replace(plan, task=replace(plan.task, seed=1)), some_wrong, monkeypatch)
    assert made.totals.summary()["findings"] == {}
    assert made.totals.summary()["known_findings"]["wrong"] >= 1
    assert plan.db.read_bytes() == before


def test_a_campaign_that_finds_nothing_makes_no_ledger(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan, lambda task, what: Report(PROGRAM), monkeypatch)
    assert not plan.db.exists()


def test_suspects_that_there_was_no_time_for_are_kept_as_programs(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "GRACE_SECONDS", 0.0)
    started, freed = threading.Event(), threading.Event()

    def slow(suspect: Suspect, *_: Any) -> Outcome:
        started.set()
        assert freed.wait(30)
        return Outcome(None, False, "too slow")

    def answer(task: Task, what: Any) -> Report:
        if what == 2:
            assert started.wait(30)  # the first suspect is being minimized
        if what == plan.programs - 1:  # type: ignore[operator]
            threading.Timer(0.5, freed.set).start()
        return wrong(text=PROGRAM.replace("seed=1", f"seed={what}"))

    monkeypatch.setattr(campaign, "triage", slow)
    _, said = run(plan, answer, monkeypatch)
    left = sorted((plan.folder / "campaigns").glob("*/suspect-*.prog"))
    assert 1 <= len(left) <= campaign.MOST_WAITING
    assert all(parse(path.read_text()).nodes == parse(PROGRAM).nodes for path in left)
    assert any(f"{len(left)} suspect(s) not minimized yet: backfuzz minimize" in line for line in said)


def test_a_ledger_that_fails_in_the_middle_is_reported_and_the_suspect_kept(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Outcome:
        raise LockedStore("ledger.db is locked by another program")

    def only_one_wrong(task: Task, what: Any) -> Report:
        return wrong() if what == 1 else Report(PROGRAM)

    monkeypatch.setattr(campaign, "triage", broken)
    with pytest.raises(LockedStore, match="is locked"):
        run(replace(plan, programs=None, minutes=1.0), only_one_wrong, monkeypatch)
    [kept] = (plan.folder / "campaigns").glob("*/suspect-*.prog")
    assert kept.read_text() == f"# {SIGNATURE}\n{PROGRAM}"


def test_a_suspect_that_triage_itself_fails_on_is_told_and_kept_and_the_others_are_minimized(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(suspect: Suspect, *_: Any) -> Outcome:
        if "relu" in suspect.text:
            raise KeyError("v0")
        return Outcome(None, False, "did not show again")

    def two_wrong(task: Task, what: Any) -> Report:
        return {1: wrong(), 2: wrong(OTHER, TANH)}.get(what, Report(PROGRAM))

    monkeypatch.setattr(campaign, "triage", broken)
    _, said = run(plan, two_wrong, monkeypatch)
    assert [line for line in said if f"triage itself failed on {SIGNATURE}: KeyError: 'v0' (please report it)" in line]
    assert [line for line in said if f"not a finding: {OTHER}: did not show again" in line]
    [kept] = (plan.folder / "campaigns").glob("*/suspect-*.prog")
    assert kept.read_text() == f"# {SIGNATURE}\n{PROGRAM}"


def test_the_same_seed_draws_the_same_programs_with_any_number_of_workers(tmp_path: Path) -> None:
    task = Task(place=EAGER, seed=3, routes=("autograd", "vjp"))
    texts = []
    for workers in (1, 2):
        with Pool(workers, ["cpu"], scratch=tmp_path) as pool:
            futures = [pool.submit(explore, task, index) for index in range(8)]
            texts.append([pool.result(future, task).text for future in futures])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 4


def test_a_fault_of_ours_is_told_with_its_program_and_does_not_end_the_campaign(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Report(PROGRAM, rejected=f"{OUR_FAULT}: KeyError('v0')", stderr="Traceback")
    made, said = run(plan, lambda task, what: failed if what == 3 else Report(PROGRAM), monkeypatch)
    assert [line for line in said if "KeyError('v0') on program 3 of seed 0" in line]
    assert made.totals.summary()["classes"] == {"agree": 7, "rejected": 1}


# ---------------------------------------------------------------- figures and words


def test_both_views_show_a_campaign_at_every_stage(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(campaign, "Pool", lambda *_, **__: FakePool(some_wrong))
    for made in (view.Lines(False), view.Live(False)):
        with made:
            made.update(Campaign(plan, made.say))
            totals = Campaign(plan, made.say).run(made.update)
        made.end(totals)
        shown = capsys.readouterr().out
        assert "8 programs" in shown
        assert "detectable 100.0% of programs" in " ".join(shown.split())
        assert "`backfuzz list` shows them all" in shown


def test_shares_are_of_what_ran_and_of_what_was_drawn() -> None:
    totals = Totals(seconds=2.0)
    silent, refused = Report(PROGRAM), Report("", rejected="torch: no")
    for report in (wrong(), Report(PROGRAM, detectable=1, elements=4), refused, silent):
        totals.count(report)
    summary = totals.summary()
    assert summary["programs"] == 3
    assert summary["programs_per_s"] == 1.5
    assert summary["detectable_share"] == round(2 / 3, 4)
    assert summary["detectable_elements_share"] == 0.5
    assert summary["rejected_share"] == 0.25


def test_the_summary_of_nothing_divides_by_nothing() -> None:
    summary = Totals().summary()
    assert (summary["programs"], summary["programs_per_s"], summary["rejected_share"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("File /srv/someone/x/torch/_inductor/ir.py, line 3", "File ir.py, line 3"),
        ("in '/opt/lib/libtorch_cpu.so'", "in 'libtorch_cpu.so'"),
        ("~/private/code.py", "code.py"),
        ("torch/_inductor/ir.py", "torch/_inductor/ir.py"),
        ("see https://pytorch.org/docs/stable/index.html", "see https://pytorch.org/docs/stable/index.html"),
        ("1/2 of the elements, and/or none", "1/2 of the elements, and/or none"),
    ],
)
def test_paths_of_the_machine_are_scrubbed_and_nothing_else(text: str, told: str) -> None:
    assert without_paths(text) == told
