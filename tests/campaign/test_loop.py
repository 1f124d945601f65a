"""The loop of a campaign, with nothing compiled: what is stored, what is kept, what is told."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fuzzer.campaign import bounds, loop
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.schedule import BySeed
from fuzzer.campaign.state import State
from fuzzer.campaign.suspects import patience
from fuzzer.campaign.suspects import queue as triages
from fuzzer.campaign.suspects import suspect as suspects
from fuzzer.campaign.suspects.queue import Triage
from fuzzer.campaign.suspects.suspect import Suspect, TriageOutcome
from fuzzer.campaign.told.logs import HEARTBEAT_FILE, Heartbeat, last_beat
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.pairs import LEAF
from fuzzer.language.text import parse
from fuzzer.ledger import file
from fuzzer.ledger.errors import LockedStore
from fuzzer.ledger.progress import read_pairs, read_points
from fuzzer.ledger.store import CampaignRecord, open_store
from fuzzer.workers.interface import Stopped
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.trouble import TROUBLE
from fuzzer.workers.worker import INTERNAL_ERROR
from minimizer.reduce import Reduction
from tests.campaign.fakes import EAGER, OTHER, PROGRAM, SIGNATURE, TANH, FakePool, some_wrong, wrong


@pytest.mark.parametrize(("waiting", "room"), [(0, 10), (8, 10), (9, 4)])
def test_half_of_the_workers_explore_while_suspects_pile_up_and_nothing_is_new(
    tmp_path: Path, waiting: int, room: int
) -> None:
    plan = Plan(Task(place=EAGER), 8, db=tmp_path / "findings.db", folder=tmp_path)
    made = Campaign(plan, print)
    assert made._room() == 10
    made.triage = Triage(plan, "name", made.totals, print)
    made.triage.waiting = [Suspect(parse(PROGRAM), SIGNATURE)] * waiting
    assert made._room() == 10, "exploring finds what is new"
    made.schedule.plateau = lambda: True  # type: ignore[method-assign]
    assert made._room() == room


@pytest.mark.parametrize(
    ("programs", "batch", "sizes"),
    [(20, 8, [2, 2, 2, 3, 4, 4, 2, 1]), (8, 16, [2, 2, 2, 1, 1]), (1, 8, [1]), (3, 1, [1, 1, 1])],
)
def test_batches_get_smaller_so_that_no_worker_waits_for_the_last(
    plan: Plan, programs: int, batch: int, sizes: list[int]
) -> None:
    made = Campaign(replace(plan, programs=programs, batch=batch, workers=2), print)
    index, found = 0, list[int]()
    while index < programs:
        found.append(made._batch(index))
        index += found[-1]
    assert found == sizes
    made.plan = replace(made.plan, programs=None)
    assert [made._batch(n) for n in (0, 4, 8, 99)] == [min(batch, n) for n in (2, 2, 4, 49)]


def test_the_last_batches_are_so_small_that_they_end_in_time(plan: Plan) -> None:
    made = Campaign(replace(plan, minutes=1.0, programs=None, batch=32, workers=2), print)
    made.course.change(State.CHECKING)
    made.course.change(State.EXPLORING)
    made.course.since[State.EXPLORING] -= 50.0
    made.totals.drawn = 50  # each takes a worker two seconds
    assert made._batch(50) == 4
    made.course.since[State.EXPLORING] -= 15.0
    assert made._batch(50) == 1


@pytest.mark.parametrize(
    ("minutes", "grace", "seconds"), [(None, None, 60.0), (None, 5.0, 5.0), (1.0, None, 18.0), (1.0, 300.0, 310.0)]
)
def test_suspects_have_what_is_left_of_the_time_and_then_their_grace(
    plan: Plan, minutes: float | None, grace: float | None, seconds: float
) -> None:
    made = Campaign(replace(plan, minutes=minutes, grace=grace), print)
    for state in (State.CHECKING, State.EXPLORING):
        made.course.change(state)
    made.course.since[State.EXPLORING] -= 50.0
    made.triage = Triage(made.plan, "c1", made.totals, print)
    made._finish_triage(lambda campaign: None)
    assert made.triage.deadline is not None
    assert made.triage.deadline - time.monotonic() == pytest.approx(seconds, abs=2.0)


def test_the_heartbeat_goes_on_while_suspects_have_their_grace(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Campaign(plan, print)
    for state in (State.CHECKING, State.EXPLORING, State.SETTLING):
        made.course.change(state)
    made.totals.seconds, made.heartbeat = 12.0, Heartbeat(tmp_path)
    made.room = bounds.Room(tmp_path, None, "")
    made.triage = Triage(plan, "c1", made.totals, print)
    monkeypatch.setattr(made.triage, "is_alive", iter((True, True, False)).__next__)
    monkeypatch.setattr(made.triage, "join", lambda seconds: None)
    plan.folder.mkdir()
    made._finish_triage(lambda campaign: None)
    [row] = [json.loads(line) for line in (tmp_path / HEARTBEAT_FILE).read_text().splitlines()]
    assert (row["seconds"], row["state"]) == (12.0, State.SETTLING.value)
    assert row["process"]["pid"] == os.getpid()


def test_programs_whose_worker_another_ended_begin_again(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Number 2 ends every worker; a batch with number 5 ends in nobody's turn until that is alone."""
    begun: list[tuple[int, ...]] = []

    def answer(numbers: tuple[int, ...]) -> list[Report | None]:
        if 5 in numbers and len(numbers) > 1:
            return [None] * len(numbers)
        return [Report(PROGRAM) if n == 2 or 2 not in numbers else None for n in numbers]

    class Dying(FakePool):
        def submit(self, function: Any, task: Task, what: Any, programs: int = 1, **how: Any) -> Future[Any]:
            if isinstance(what, str):
                return super().submit(function, task, what)
            numbers = what.numbers if programs > 1 else (what,)
            begun.append(numbers)
            future: Future[Any] = Future()
            future.set_result(answer(numbers))
            return future

        def results(self, future: Future[Any], task: Task) -> list[Report | None]:
            return list(future.result())

    monkeypatch.setattr(loop, "Pool", lambda *_, **__: Dying(lambda task, what: Report(PROGRAM)))
    monkeypatch.setattr(loop, "_FIRST_BATCH", 8)
    made = Campaign(replace(plan, batch=8, workers=1), print)
    assert made.run().summary()["classes"] == {"agree": 8}
    again = [(0, 1, 2, 3), (0, 1, 3), (4,), (4, 5), (4, 5, 6, 7), (5,), (6, 7)]
    assert (begun[0], sorted(begun[1:])) == (tuple(range(8)), again)


def run(
    plan: Plan, answer: Callable[[Task, Any], Report], monkeypatch: pytest.MonkeyPatch
) -> tuple[Campaign, list[str]]:
    """A campaign on a fake pool, and what it said."""
    said: list[str] = []
    monkeypatch.setattr(loop, "Pool", lambda *_, **__: FakePool(answer))
    made = Campaign(plan, said.append)
    made.run()
    return made, said


def test_the_only_worker_is_triage_s_while_that_is_at_work(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engaged(FakePool):
        begun: ClassVar[list[int]] = []
        asked = 0

        def engaged(self) -> bool:
            self.asked += 1
            return len(self.begun) == 4 and self.asked < 20

        def submit(self, function: Any, task: Task, what: Any, **how: Any) -> Future[Report]:
            if self.engaged():
                raise AssertionError("exploring went on")
            self.begun.append(what)
            return super().submit(function, task, what)

    pool = Engaged(lambda task, what: Report(PROGRAM))
    monkeypatch.setattr(loop, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(loop, "Pool", lambda *_, **__: pool)
    assert Campaign(replace(plan, workers=1), print).run().summary()["classes"] == {"agree": 8}
    assert pool.begun == [*range(8)]
    assert pool.asked >= 20, "it went on once triage was done"


# ---------------------------------------------------------------- triage


def test_differences_that_are_legal_are_counted_and_agree(plan: Plan, fakes: dict[str, Any], monkeypatch: Any) -> None:
    noted = Verdict(Signature("rerun_is_identical", "agree", "backward", "no set order"), "two runs differ")
    made, _ = run(plan, lambda task, what: Report(PROGRAM, (noted,)), monkeypatch)
    summary = made.totals.summary()
    assert summary["classes"] == {"agree": 8}
    assert summary["legal_differences"] == {"rerun_is_identical/agree/backward/no set order": 8}


def test_a_suspect_that_is_not_minimal_when_the_time_is_up_is_kept_and_not_stored(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short = Reduction(parse(PROGRAM), 1, 0, (), (), False, "deadline")

    def late(program: Any, verdict: Any, cache: Any, how: Any, expired: Callable[[], bool]) -> Reduction:
        while not expired():
            time.sleep(0.01)
        return cut_short

    monkeypatch.setattr(suspects, "minimize_with", late)
    plan = replace(plan, grace=0.0)
    run(plan, some_wrong, monkeypatch)
    [left] = (plan.folder / "campaigns").glob("*/suspect-*.prog")
    assert parse(left.read_text()).nodes == parse(PROGRAM).nodes
    assert not plan.db.exists()


# ---------------------------------------------------------------- the campaign


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
    assert made.progress is not None
    assert record.totals == totals | {"progress": made.progress.rows()}
    assert record.command == "backfuzz fuzz --db ledger.db"
    [own] = (plan.folder / "campaigns").iterdir()
    assert json.loads((own / "summary.json").read_text()) == totals
    assert len((own / "trials.jsonl").read_text().splitlines()) == 4
    assert [point.programs for point in read_points(own)] == [8]
    assert read_pairs(own) == {(LEAF, "relu"): 8}


def test_a_campaign_that_is_stopped_while_it_begins_to_explore_counts_that_time(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(own: Path) -> BySeed:
        time.sleep(0.1)
        made.course.stop()
        raise Stopped("its workers were killed")

    monkeypatch.setattr(loop, "Pool", lambda *_, **__: FakePool(some_wrong))
    made = Campaign(plan, print, stopped)
    made.run()
    [own] = (plan.folder / "campaigns").iterdir()
    assert json.loads((own / "summary.json").read_text())["seconds"] >= 0.1


def test_a_campaign_that_meets_only_known_findings_leaves_the_ledger_byte_identical(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan, some_wrong, monkeypatch)
    before = plan.db.read_bytes()
    made, _ = run(replace(plan, task=replace(plan.task, seed=1)), some_wrong, monkeypatch)
    assert made.totals.summary()["findings"] == {}
    assert made.totals.summary()["known_findings"]["wrong"] >= 1
    assert plan.db.read_bytes() == before


def test_a_campaign_that_finds_nothing_leaves_the_checkouts_own_ledger_alone(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan, lambda task, what: Report(PROGRAM), monkeypatch)
    assert not plan.db.exists()


def test_any_other_ledger_learns_of_every_campaign(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = run(replace(plan, corpus=None), lambda task, what: Report(PROGRAM), monkeypatch)
    with open_store(plan.db, create=False) as store:
        [record] = store.campaigns()
        assert store.list() == []
    assert record.totals.items() >= made.totals.summary().items()
    assert datetime.fromisoformat(record.started) <= datetime.now(UTC)


def test_suspects_that_there_was_no_time_for_are_kept_as_programs(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(plan, grace=0.0)
    started, freed = threading.Event(), threading.Event()

    def slow(suspect: Suspect, *_: Any) -> TriageOutcome:
        started.set()
        assert freed.wait(30)
        return TriageOutcome(None, False, "too slow")

    def answer(task: Task, what: Any) -> Report:
        if what == 2:
            assert started.wait(30)  # the first suspect is being minimized
        if what == plan.programs - 1:  # type: ignore[operator]
            threading.Timer(0.5, freed.set).start()
        return wrong(text=PROGRAM.replace("seed=1", f"seed={what}"))

    monkeypatch.setattr(triages, "triage_suspect", slow)
    _, said = run(plan, answer, monkeypatch)
    left = sorted((plan.folder / "campaigns").glob("*/suspect-*.prog"))
    assert 1 <= len(left) <= triages.MOST_WAITING
    assert all(parse(path.read_text()).nodes == parse(PROGRAM).nodes for path in left)
    assert any(f"{len(left)} suspect(s) not minimized yet: backfuzz minimize --unless-known" in line for line in said)


def test_a_ledger_that_fails_to_the_end_is_reported_and_the_suspect_kept(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> TriageOutcome:
        raise LockedStore("ledger.db is locked by another program")

    plan = replace(plan, grace=0.5)

    def only_one_wrong(task: Task, what: Any) -> Report:
        return wrong() if what == 1 else Report(PROGRAM)

    monkeypatch.setattr(triages, "whole_core", broken)
    with pytest.raises(LockedStore, match="is locked"):
        run(plan, only_one_wrong, monkeypatch)
    [kept] = (plan.folder / "campaigns").glob("*/suspect-*.prog")
    assert kept.read_text() == f"# {SIGNATURE}\n# source drawn\n{PROGRAM}"


@pytest.mark.parametrize("broken", ["locked", "damaged", "newer"])
def test_a_ledger_that_fails_for_a_while_is_waited_for_and_loses_nothing(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """It fails from when the finding is verified until that lies in a ledger beside it."""
    monkeypatch.setattr(patience, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(file, "BUSY_SECONDS", 0.05)
    with open_store(plan.db) as store:
        store.add_campaign(CampaignRecord("c", "", 1, ""))
    whole, seen = plan.db.read_bytes(), list[Path]()
    other = sqlite3.connect(plan.db, isolation_level=None, check_same_thread=False)
    verify = suspects.verify

    def mend() -> None:
        while not (found := list(plan.campaigns.glob(f"*/{patience.BESIDE}"))):
            time.sleep(0.01)
        time.sleep(0.1)
        seen.extend(found)
        other.execute("rollback") if broken == "locked" else plan.db.write_bytes(whole)

    def verified(*given: Any) -> Any:
        if broken == "locked":
            other.execute("begin exclusive")
        elif broken == "damaged":
            plan.db.write_bytes(b"flipped" + whole[7:])
        else:
            other.execute("pragma user_version = 9999")
        threading.Thread(target=mend, daemon=True).start()
        monkeypatch.setattr(suspects, "verify", verify)
        return verify(*given)

    monkeypatch.setattr(suspects, "verify", verified)
    made, _ = run(
        plan, lambda task, what: wrong() if what == 1 or isinstance(what, str) else Report(PROGRAM), monkeypatch
    )
    assert made.totals.new.total() == 1
    with open_store(plan.db, create=False) as store:
        assert len(store.list()) == 1
    assert seen
    assert not seen[0].exists()


def test_a_campaign_pauses_while_the_disk_is_full_with_one_line_and_goes_on(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([bounds.LEAST_FREE_BYTES, *[0] * 5])
    monkeypatch.setattr(bounds, "free_bytes", lambda folder: next(looks, bounds.LEAST_FREE_BYTES))
    monkeypatch.setattr(loop, "_LOOK_SECONDS", 0.01)
    made, said = run(plan, lambda task, what: Report(PROGRAM), monkeypatch)
    assert made.totals.programs == 8
    assert len([line for line in said if "nothing new begins until that is mended" in line]) == 1
    assert said.count("that is mended: going on") == 1


def test_programs_that_ran_while_the_compiler_was_gone_run_again_once_it_is_back(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([True, *[False] * 5])
    monkeypatch.setattr(bounds.shutil, "which", lambda command: command if next(looks, True) else None)
    monkeypatch.setattr(loop, "compiler_of", lambda subject: "g++")
    monkeypatch.setattr(loop, "_LOOK_SECONDS", 0.01)
    asked: list[int] = []

    def answer(task: Task, what: Any) -> Report:
        asked.append(what)
        return Report(PROGRAM, rejected=f"{TROUBLE}: there is no g++" if asked.count(what) < 2 else "")

    made, said = run(replace(plan, programs=2), answer, monkeypatch)
    assert made.totals.summary()["classes"] == {"agree": 2}
    assert sorted(asked) == [0, 0, 1, 1]
    assert said.count("there is no g++: nothing new begins until that is mended") == 1


def test_a_program_that_fills_the_disk_itself_is_rejected_in_the_end(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Report(PROGRAM, rejected=f"{TROUBLE}: No space left on device")
    made, _ = run(plan, lambda task, what: full if what == 3 else Report(PROGRAM), monkeypatch)
    assert made.totals.summary()["classes"] == {"agree": 7, "rejected": 1}


def test_a_device_that_does_not_answer_any_more_is_told_once(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakePool, "silent_devices", lambda self: ["cuda:1"])
    _, said = run(plan, lambda task, what: Report(PROGRAM), monkeypatch)
    assert said.count("cuda:1 does not answer any more: its workers run on others") == 1


def test_a_campaign_is_named_after_the_one_before_though_the_clock_was_set_back() -> None:
    now = datetime(2026, 11, 29, 3, 0, 0, tzinfo=UTC)
    assert loop.name_by_time(now) == "20261129T030000"
    assert loop.name_by_time(now, "20261128T235959-7") == "20261129T030000"
    assert loop.name_by_time(now, "20261130T235959-7") == "20261201T000000"
    assert loop.name_by_time(now, "20261129T030000-7") == "20261129T030001", "two in one second"
    assert loop.name_by_time(now, "mine") == "20261129T030000"


@pytest.mark.parametrize("sign", ["plateau", "full"])
def test_a_campaign_until_plateau_ends_when_nothing_is_new_or_nothing_more_is_kept(
    sign: str, plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Flat(BySeed):
        seen = 0

        def learn(self, n: int, report: Report) -> None:
            self.seen += 1

    setattr(Flat, sign, lambda self: self.seen >= 5)
    monkeypatch.setattr(loop, "Pool", lambda *_, **__: FakePool(lambda task, what: Report(PROGRAM)))
    made = Campaign(
        replace(plan, programs=None, bounds=bounds.Bounds(plateau=True)), lambda line: None, lambda own: Flat()
    )
    assert 5 <= made.run().programs <= 8


def test_a_suspect_that_triage_itself_fails_on_is_told_and_kept_and_the_others_are_minimized(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(suspect: Suspect, *_: Any) -> TriageOutcome:
        if "relu" in suspect.text:
            raise KeyError("v0")
        return TriageOutcome(None, False, "did not show again")

    def two_wrong(task: Task, what: Any) -> Report:
        return {1: wrong(), 2: wrong(OTHER, TANH)}.get(what, Report(PROGRAM))

    monkeypatch.setattr(triages, "whole_core", broken)
    _, said = run(plan, two_wrong, monkeypatch)
    assert [line for line in said if f"triage itself failed on {SIGNATURE}: KeyError: 'v0' (please report it)" in line]
    assert [line for line in said if f"not a finding: {OTHER}: did not show again" in line]
    [kept] = (plan.folder / "campaigns").glob("*/suspect-*.prog")
    assert kept.read_text() == f"# {SIGNATURE}\n# source drawn\n{PROGRAM}"


def test_a_fault_of_ours_is_told_with_its_program_and_does_not_end_the_campaign(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Report(PROGRAM, rejected=f"{INTERNAL_ERROR}: KeyError('v0')", stderr="Traceback")
    made, said = run(plan, lambda task, what: failed if what == 3 else Report(PROGRAM), monkeypatch)
    assert [line for line in said if "KeyError('v0') on program 3 of seed 0" in line]
    assert made.totals.summary()["classes"] == {"agree": 7, "rejected": 1}


def test_its_last_row_says_how_many_keys_it_told_and_how_severe_its_faults_are(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan, some_wrong, monkeypatch)
    [folder] = (plan.folder / "campaigns").glob("*")
    row = last_beat(folder)
    assert row is not None
    assert (row["told"], row["severities"]) == (1, {"S1": 1})
