"""Which suspect is looked into first, and which are left."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.bounds import Bounds
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects import queue as triages
from fuzzer.campaign.suspects.interestingness import CandidateCache
from fuzzer.campaign.suspects.queue import Triage
from fuzzer.campaign.suspects.recognition import Met
from fuzzer.campaign.suspects.sort import BEFORE, STAGE
from fuzzer.campaign.suspects.suspect import Step, Suspect, TriageOutcome
from fuzzer.campaign.told.totals import Totals
from fuzzer.judgement.verdict import UNSUPPORTED, Comparison, Finding, Verdict
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report, Task
from minimizer.reduce import Reduction
from tests.campaign.fakes import OTHER, PLACE, PROGRAM, SIGNATURE, TANH, FakePool, waiting
from tests.campaign.suspects.test_core import CORE
from tests.commands.calls import FINDING

SUSPECT = Suspect(parse(PROGRAM), SIGNATURE, "ir", CORE)


def stored(**changes: Any) -> Finding:
    return replace(Finding(SIGNATURE, "detail", PROGRAM, PROGRAM, PLACE, 3, 3, created="2026-01-01"), **changes)


LONGER = PROGRAM.replace("seed=1", 'values="integers", seed=1')


def test_what_is_to_be_sorted_comes_before_what_is_minimized_and_the_shortest_program_first(plan: Plan) -> None:
    queue = waiting(plan)
    long, short, crash = (
        Suspect(parse(LONGER), SIGNATURE),
        Suspect(parse(PROGRAM), SIGNATURE),
        Suspect(parse(PROGRAM), OTHER),
    )
    for suspect in (crash, long, short):
        queue.enqueue(suspect)
    assert queue.waiting == [short, long, crash]
    assert [s.step for s in queue.waiting] == [Step.SORT, Step.SORT, Step.WHOLE]


def test_what_no_known_finding_explains_is_minimized_first(plan: Plan) -> None:
    with open_store(plan.db) as store:
        store.add(stored())
    queue = waiting(plan)
    known, unexplained = Suspect(parse(PROGRAM), SIGNATURE), Suspect(parse(TANH), SIGNATURE)
    for suspect in (known, unexplained):
        queue.enqueue(suspect)
    assert queue.waiting == [unexplained, known]


def test_a_signature_that_led_to_known_programs_too_often_is_only_minimized_where_another_op_is_at_work(
    plan: Plan,
) -> None:
    with open_store(plan.db) as store:
        store.add(stored(signature=OTHER))
    queue = waiting(plan)
    queue.fruitless[str(OTHER)] = triages.MOST_FRUITLESS_COVERED
    queue.enqueue(Suspect(parse(PROGRAM), OTHER))
    assert queue.waiting == []
    queue.enqueue(Suspect(parse(TANH), OTHER))
    assert [s.text for s in queue.waiting] == [TANH]
    queue.fruitless[str(OTHER)] = triages.MOST_FRUITLESS_WHOLE
    queue.waiting.clear()
    queue.enqueue(Suspect(parse(TANH), OTHER))
    assert queue.waiting == []


def test_of_many_suspects_with_one_signature_the_shortest_wait(plan: Plan) -> None:
    queue = waiting(plan)
    short = [PROGRAM.replace("seed=1", f"seed={i + 1}") for i in range(triages.MOST_WAITING)]
    for text in (LONGER, *short, PROGRAM):
        queue.enqueue(Suspect(parse(text), OTHER))
    assert [s.text for s in queue.waiting] == short


def test_what_is_unsupported_is_not_minimized_and_tried_without_its_settings(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, offered = waiting(plan), list[Program]()
    monkeypatch.setattr(queue, "_offer_slip", lambda suspect, program, backend: offered.append(program))
    monkeypatch.setattr(triages, "triage_suspect", lambda *_: pytest.fail("it was minimized"))
    unsupported = replace(SIGNATURE, verdict=UNSUPPORTED)
    knob = PROGRAM.replace('route("', 'settings({"inductor.unroll_reductions_threshold": 1})\nroute("')
    for text in (knob, PROGRAM):
        queue._one(Suspect(parse(text), unsupported, step=Step.WHOLE))
    assert [show(program) for program in offered] == [PROGRAM]
    assert queue.fruitless[str(unsupported)] == 2


def test_only_a_fault_that_was_not_known_or_told_before_is_new(plan: Plan) -> None:
    first, again, other = stored(), stored(program=LONGER), stored(program=TANH)
    queue = waiting(plan)
    told = []
    for finding in (first, again, other):
        with open_store(plan.db) as store:
            assert store.add(finding)
        told.append(queue._count(TriageOutcome(finding, True, ""), SUSPECT).partition(":")[0])
    with open_store(plan.db) as store:
        fault = store.fault_of(first.id).id
    assert told == ["a new fault, S1", f"a new variant of {fault}", "a new fault, S1"]
    elsewhere = TriageOutcome(stored(program=TANH), True, "", fault="F1234567 of other.db")
    assert queue._count(elsewhere, SUSPECT).startswith("a new variant of F1234567 of other.db: ")
    assert (queue.totals.new, queue.totals.variants) == ({"wrong": 2}, {"wrong": 2})
    assert waiting(plan)._count(TriageOutcome(again, True, ""), SUSPECT).startswith("a new variant of ")


def test_what_suspects_become_is_counted_for_the_source_of_their_programs(plan: Plan) -> None:
    queue = waiting(plan)
    queue.enqueue(replace(SUSPECT, source="around"))
    queue.enqueue(triages.slip(replace(SUSPECT, source="drawn"), parse(TANH), OTHER))
    for suspect in list(queue.waiting):
        queue._gather(replace(suspect, core=CORE))
    finding = stored()
    with open_store(plan.db) as store:
        assert store.add(finding)
    queue._count(TriageOutcome(finding, True, ""), replace(SUSPECT, source="around"))
    brought = queue.totals.summary()["sources"]
    assert {name: (of["suspects"], of["keys"], of["faults"]) for name, of in brought.items()} == {
        "around": (1, 1, 1),
        "drawn": (0, 0, 0),  # a slip is no suspect of its own
    }


def test_what_is_recognised_is_counted_by_fault_with_its_experiments(plan: Plan) -> None:
    queue, reduction = waiting(plan), Reduction(parse(PROGRAM), 1, 0, (), (), True, "fixpoint")
    for experiments in (1, 2):
        line = queue._count(TriageOutcome(stored(), False, "", fault="F1234567", experiments=experiments), SUSPECT)
        assert line == f"recognised as F1234567 in {experiments} experiment(s), not minimized: {CORE.key}"
    known = TriageOutcome(stored(), False, "known", reduction=reduction)
    assert queue._count(known, SUSPECT).startswith("known: wrong ")
    nothing = TriageOutcome(None, False, "why", reduction=reduction)
    assert queue._count(nothing, SUSPECT) == f"not a finding: {CORE.key}: why"
    summary = queue.totals.summary()
    assert summary["recognised"] == {"F1234567": {"keys": 2, "experiments": 3}}
    assert (summary["minimized"], summary["known_findings"], summary["findings"]) == (2, {"wrong": 3}, {})


def test_triage_waits_once_it_had_a_quarter_of_the_cpu_while_exploring_finds_what_is_new(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent, flat = [0.0], [False]
    monkeypatch.setattr(triages, "spent_seconds", lambda: spent[0])
    triage = waiting(plan)
    triage.plateau = lambda: flat[0]
    triage.totals.phases["cpu"] = 300.0
    for total, waits in ((300.0, False), (359.0, False), (399.0, False), (401.0, True)):
        spent[0] = total
        assert triage._has_had_its_share() is waits
    flat[0] = True
    assert not triage._has_had_its_share()
    flat[0], triage.closing = False, True
    assert not triage._has_had_its_share()


def test_a_new_fault_is_announced_to_a_command(plan: Plan, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()
    names = " ".join(f"$BACKFUZZ_{name}" for name in ("CLASS", "FINDING", "SEVERITY", "DEVICE", "TITLE"))
    triage = waiting(replace(plan, on_finding=f'(echo "{names}"; cat) > {out}; exit 3'))
    triage.say = said.append
    with open_store(plan.db) as store:
        store.add(FINDING)
    triage._announce(FINDING)
    until = time.monotonic() + 20
    while not said and time.monotonic() < until:
        time.sleep(0.02)
    first, second = out.read_text().splitlines()[:2]
    assert first.startswith(f"wrong {FINDING.id} S1 {FINDING.place['device']} wrong gradient of ")
    assert second.startswith(f"wrong {FINDING.id}: gradients_agree/wrong")
    assert said[0].endswith("exit status 3")


def test_what_came_of_a_suspect_while_the_machine_lacked_something_is_not_believed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(range(100))
    monkeypatch.setattr(triages, "troubles", lambda: next(counts))  # more after each suspect than before it
    monkeypatch.setattr(triages, "whole_core", lambda *_: TriageOutcome(None, False, "did not show again"))
    triage, suspect = waiting(plan), Suspect(parse(PROGRAM), OTHER, step=Step.WHOLE)
    triage.cache = CandidateCache(triage.pool, plan.task)
    triage.enqueue(suspect)
    for _ in range(3):
        triage.waiting.remove(suspect)
        triage._one(suspect)
        assert triage.waiting == [suspect]
    triage.waiting.remove(suspect)
    triage._one(suspect)
    assert (triage.waiting, triage.failed) == ([], [suspect])
    assert triage.shelf.suspects() == [suspect], "it is left there"
    assert not triage.fruitless


def test_triage_waits_while_the_machine_lacks_something_and_while_the_disk_is_full(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triages, "RETRY_SECONDS", 0.01)
    tried: list[bool] = []

    def full_once(suspect: Suspect, *_: Any) -> TriageOutcome:
        tried.append(triage.held)
        if len(tried) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return TriageOutcome(None, False, "did not show again")

    monkeypatch.setattr(triages, "whole_core", full_once)
    triage = waiting(plan)
    triage.held = True
    triage.enqueue(Suspect(parse(PROGRAM), OTHER))
    triage.start(triage.pool)
    time.sleep(0.1)
    assert tried == []
    triage.held = False
    triage.finish(30)
    triage.join()
    assert (tried, triage.failed) == ([False, False], [])


# ---------------------------------------------------------------- clusters


WRONG = Verdict(SIGNATURE, "x0.grad[2]: compiled 0, eager 1", (Comparison("x0.grad", (2,), 1.0, 0.0, 1.0, 0.5, 1, 4),))


def sorting(text: str, core: str = PROGRAM, **changes: Any) -> Report:
    """The Report of a sorted suspect with this core."""
    told = Report(core, (WRONG,), notes={STAGE: "aot_eager", BEFORE: f"numbers of {len(text)}"})
    return replace(told, **changes)


def at_work(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, shows: Callable[[Task, Any], Report]
) -> tuple[Triage, list[str]]:
    """Triage on a pool that answers so, and what it says; every experiment fails to explain, nothing is minimized."""
    said = list[str]()
    made = Triage(plan, "c1", Totals(), said.append)
    made.pool = FakePool(shows)  # type: ignore[assignment]
    made.cache = CandidateCache(made.pool, plan.task)
    monkeypatch.setattr(triages, "met_as_core", lambda *_: None)
    monkeypatch.setattr(triages, "triage_suspect", lambda *_: pytest.fail("it was minimized"))
    return made, said


def take(triage: Triage) -> Suspect:
    """The suspect whose turn it is, once it has taken its step."""
    triage.waiting.sort(key=triage.turn)
    suspect = triage.waiting.pop(0)
    triage._one(suspect)
    return suspect


def test_an_unexplained_suspect_is_sorted_built_once_and_told_before_it_is_minimized(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []

    def shows(task: Task, what: Any) -> Report:
        asked.append((task.place.subject.backend, what[:2] if isinstance(what, tuple) else what))
        return sorting(what[0]) if isinstance(what, tuple) else Report(what, (WRONG,))

    triage, said = at_work(replace(plan, task=Task()), monkeypatch, shows)
    for text in (LONGER, TANH):
        triage.enqueue(Suspect(parse(text), SIGNATURE, "ir"))
    steps = [take(triage).step for _ in range(4)]
    assert steps == [Step.SORT, Step.EXPLAIN, Step.CONFIRM, Step.SORT]
    assert asked == [("inductor", (LONGER, SIGNATURE)), ("inductor", PROGRAM), ("inductor", (TANH, SIGNATURE))]
    assert said == ["unconfirmed: wrong gradient of x0 through relu: compiled 0, eager 1, floor 0.5"]
    assert triage.totals.summary()["unconfirmed"] == [said[0].removeprefix("unconfirmed: ")]
    assert not plan.db.exists(), "it is no report"
    [(step, core)] = [(s.step, s.core) for s in triage.waiting]
    assert step is Step.SETTLE
    assert core is not None
    assert (core.before, len(triage.clusters)) == (f"numbers of {len(LONGER)}", 1)
    told = triage.totals.triage()
    assert (told["keys"], told["joined"], told["unexplained"], told["unsettled"]) == (1, 1, 1, 1)
    assert [s.core for s in triage.shelf.suspects()] == [core, core]


def test_what_cannot_be_sorted_is_built_and_is_its_own_core(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not show again while it was sorted, or its worker died: then what ended that is a suspect of its own."""
    died = Report(PROGRAM, (Verdict(OTHER, "SIGSEGV"),))

    def shows(task: Task, what: Any) -> Report:
        if isinstance(what, tuple):
            return Report(TANH) if what[0] == TANH else died
        return Report(what, (WRONG,)) if what == LONGER else Report(what)

    triage, said = at_work(plan, monkeypatch, shows)
    for text in (TANH, LONGER):
        triage.enqueue(Suspect(parse(text), SIGNATURE))
        take(triage)
    assert [(s.text, s.signature, s.step, s.slip) for s in sorted(triage.waiting, key=triage.turn)] == [
        (TANH, SIGNATURE, Step.WHOLE, False),
        (LONGER, SIGNATURE, Step.WHOLE, False),
        (PROGRAM, OTHER, Step.WHOLE, True),
    ]
    triage.count_open()
    assert triage.totals.triage()["suspects_without_a_key"] == 2
    assert said == []
    steps = [take(triage).step for _ in range(4)]
    assert steps == [Step.WHOLE, Step.WHOLE, Step.EXPLAIN, Step.CONFIRM]
    assert said == [
        f"not a finding: {SIGNATURE}: did not show again (agree)",
        "unconfirmed: wrong gradient of x0 through relu: compiled 0, eager 1, floor 0.5",
    ]
    [(step, core)] = [(s.step, s.core) for s in triage.waiting if s.core is not None]
    assert step is Step.SETTLE
    assert core is not None
    assert (show(core.program), core.stage, core.shown, core.builds) == (LONGER, "eager", 1, 1)
    triage.count_open()
    told = triage.totals.triage()
    assert (told["suspects_without_a_key"], told["keys_without_a_verdict"]) == (0, 0)
    assert told["set_aside"] == {"did not show again": 1}


def test_another_of_a_key_is_looked_into_where_code_does_not_show_the_first(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shows(task: Task, what: Any) -> Report:
        return sorting(what[0]) if isinstance(what, tuple) else Report(what)

    triage, said = at_work(replace(plan, task=Task()), monkeypatch, shows)
    for text in (TANH, LONGER, PROGRAM):
        triage.enqueue(Suspect(parse(text), SIGNATURE, "ir"))
    steps = [take(triage).step for _ in range(6)]
    assert steps == [Step.SORT, Step.EXPLAIN, Step.CONFIRM, Step.SORT, Step.CONFIRM, Step.SORT]
    assert triage.waiting == []
    assert len([line for line in said if "seen there, not when built (agree)" in line]) == 2
    assert triage.leave() == 0, "after two of them the rest is given up"


def test_one_that_joined_a_decided_cluster_is_held_against_its_fault_when_nothing_else_waits(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    triage, said = at_work(plan, monkeypatch, lambda task, what: sorting(what[0]))
    with open_store(plan.db) as store:
        store.add(stored())
        fault = store.fault_of(stored().id).id
    met = Met(fault, stored(), 1)
    monkeypatch.setattr(triages, "met_as_core", lambda core, *_: next(known))
    known = iter([met, None, None])
    for text in (PROGRAM, TANH, LONGER):
        triage.enqueue(Suspect(parse(text), SIGNATURE))
        take(triage)
        if text == PROGRAM:
            take(triage)
    assert said == [f"recognised as {fault} in 1 experiment(s), not minimized: {next(iter(triage.clusters.found))[0]}"]
    assert triage.waiting == []
    answers = iter([False, True])
    monkeypatch.setattr(triages, "explains", lambda told, *_: next(answers) if told == fault else None)
    [doubtful] = triage._doubtful()
    assert (doubtful.text, doubtful.step) == (TANH, Step.DOUBT), "it has the least in common with the first"
    assert triage._doubtful() == [], "once"
    triage._one(doubtful)
    assert [(s.text, s.step, s.apart) for s in triage.waiting] == [(TANH, Step.EXPLAIN, True)]
    assert len(triage.clusters) == 2
    assert TANH in {s.text for s in triage.shelf.suspects()}
    [second] = triage._doubtful()
    assert second.text == LONGER, "since the first was not explained"
    triage._one(second)
    assert triage._doubtful() == []
    assert triage.totals.joined == Counter(wrong=1)
    assert triage.leave() == 1, "the one that was told apart"


def test_doubts_come_before_growing(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    triage, _ = at_work(plan, monkeypatch, lambda task, what: sorting(what[0]))
    for text in (PROGRAM, TANH):
        triage._sort(Suspect(parse(text), SIGNATURE))
    triage.waiting.clear()
    [cluster] = triage.clusters
    cluster.fault = "F1"
    triage.waiting.append(replace(cluster.first, step=Step.GROW, finding=stored()))
    triage.closing = True
    taken = [triage._next() for _ in range(2)]
    assert [s.step for s in taken if s is not None] == [Step.DOUBT, Step.GROW]


def test_of_suspects_that_are_built_as_a_whole_one_of_a_signature_is_built_at_a_time(plan: Plan) -> None:
    triage = waiting(plan)
    for text in (PROGRAM, TANH):
        triage.enqueue(Suspect(parse(text), OTHER))
    triage.enqueue(Suspect(parse(PROGRAM), replace(OTHER, pattern="SIGKILL")))
    taken = [triage._next() for _ in range(2)]
    assert len({s.signature for s in taken if s is not None}) == 2
    [left] = triage.waiting
    assert left.signature == OTHER


# ---------------------------------------------------------------- bounds


def bounded(plan: Plan, monkeypatch: pytest.MonkeyPatch, keys: int) -> tuple[Triage, list[str]]:
    """Triage that keeps so many keys; each op is a key, and code shows all."""

    def shows(task: Task, what: Any) -> Report:
        return sorting(what[0], core=what[0]) if isinstance(what, tuple) else Report(what, (WRONG,))

    return at_work(replace(plan, task=Task(), bounds=Bounds(keys=keys)), monkeypatch, shows)


def with_op(op: str) -> Suspect:
    return Suspect(parse(PROGRAM.replace("relu", op)), SIGNATURE, "ir")


def test_of_more_keys_than_are_kept_the_least_urgent_is_dropped_with_all_its_suspects(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    triage, said = bounded(plan, monkeypatch, keys=2)
    for op in ("tanh", "sigmoid"):
        triage.enqueue(with_op(op))
        steps = [take(triage).step for _ in range(3)]
        assert steps == [Step.SORT, Step.EXPLAIN, Step.CONFIRM]
    triage.enqueue(replace(with_op("sigmoid"), program=parse(LONGER.replace("relu", "sigmoid"))))
    take(triage)
    assert (len(triage.shelf.suspects()), len(triage.totals.unconfirmed)) == (3, 2)
    triage.enqueue(with_op("relu"))
    assert triage.totals.dropped == 0
    take(triage)
    assert {s.text for s in triage.shelf.suspects()} == {with_op(op).text for op in ("tanh", "relu")}
    assert [c.first.text for c in triage.clusters] == [with_op(op).text for op in ("tanh", "relu")]
    assert [line for line in triage.totals.unconfirmed.values() if "sigmoid" in line] == []
    assert [line for line in said if not line.startswith("unconfirmed")] == [
        "more than 2 suspects wait: the least urgent are dropped from now on (--keep-keys)"
    ]
    assert triage.totals.summary()["triage"]["dropped"] == 2


def test_of_more_suspects_without_a_key_than_are_kept_the_longest_is_dropped(plan: Plan) -> None:
    triage = waiting(replace(plan, bounds=Bounds(keys=2)))
    for op in ("relu", "sigmoid", "tanh"):
        triage.enqueue(with_op(op))
    assert {s.text for s in triage.waiting} == {with_op(op).text for op in ("relu", "tanh")}
    assert {s.text for s in triage.shelf.suspects()} == {s.text for s in triage.waiting}


def test_decided_keys_that_were_not_met_for_longest_are_forgotten_with_the_doubts_about_them(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    triage, _ = bounded(plan, monkeypatch, keys=1)
    with open_store(plan.db) as store:
        store.add(stored())
    monkeypatch.setattr(triages, "met_as_core", lambda *_: Met("F1", stored(), 1))
    triage.enqueue(with_op("tanh"))
    steps = [take(triage).step, take(triage).step]
    assert steps == [Step.SORT, Step.EXPLAIN]
    triage.enqueue(replace(with_op("tanh"), program=parse(LONGER.replace("relu", "tanh"))))
    take(triage)
    triage.waiting += triage._doubtful()
    assert len(triage.shelf.suspects()) == 1, "it is to be held against the fault"
    triage.enqueue(with_op("relu"))
    take(triage)
    take(triage)
    assert triage.totals.forgotten == 0
    triage.enqueue(with_op("sigmoid"))
    assert triage.totals.triage()["forgotten_keys"] == 1
    assert [c.first.text for c in triage.clusters] == [with_op("relu").text]
    assert [(s.text, s.step) for s in triage.waiting] == [(with_op("sigmoid").text, Step.SORT)]
    assert [s.text for s in triage.shelf.suspects()] == [with_op("sigmoid").text]


def test_a_doubt_about_a_key_that_is_forgotten_meanwhile_ends(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    triage, _ = bounded(plan, monkeypatch, keys=1)
    monkeypatch.setattr(triages, "explains", lambda *_: pytest.fail("it was held against a fault"))
    triage._one(replace(SUSPECT, step=Step.DOUBT))
    assert len(triage.clusters) == 0


def test_one_that_gave_way_in_its_cluster_while_it_is_held_against_the_fault_is_told_apart_and_shelved(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    triage, _ = bounded(plan, monkeypatch, keys=9)
    monkeypatch.setattr(triages, "explains", lambda *_: False)
    cluster = triage.clusters.of(SUSPECT)
    other = replace(SUSPECT, program=parse(TANH))
    cluster.fault, cluster.over, cluster.doubted = "F1", True, True
    triage._one(replace(other, step=Step.DOUBT))
    assert [(s.text, s.step, s.apart) for s in triage.waiting] == [(TANH, Step.EXPLAIN, True)]
    assert [s.text for s in triage.shelf.suspects()] == [TANH]
    assert not cluster.doubted
