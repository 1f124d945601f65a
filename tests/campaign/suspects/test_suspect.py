"""One suspect: verified, minimized, stored and diagnosed, or dropped with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects import recognition
from fuzzer.campaign.suspects import suspect as suspects
from fuzzer.campaign.suspects.core import Core
from fuzzer.campaign.suspects.interestingness import CandidateCache
from fuzzer.campaign.suspects.suspect import Suspect, grow_stored, triage_suspect, whole_core
from fuzzer.judgement.verdict import Finding, Signature, Verdict
from fuzzer.language.text import parse, show
from fuzzer.ledger.store import open_store
from fuzzer.workers.messages import Report, Task
from minimizer.reduce import Reduction
from tests.campaign.fakes import OTHER, PLACE, PROGRAM, SIGNATURE, FakePool, as_natural, one, wrong


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

    def minimize(program: Any, verdict: Any, cache: CandidateCache, *_: Any) -> Reduction:
        looks.append(cache.task.final)
        text = PROGRAM if cache.task.final else slipped
        return Reduction(parse(text), 1, 0, (), (), True, "fixpoint")

    monkeypatch.setattr(suspects, "minimize_with", minimize)
    pool: Any = FakePool(lambda task, text: Report(text) if text == slipped else wrong(text=text))
    outcome = triage_suspect(Suspect(parse(PROGRAM), SIGNATURE), plan, CandidateCache(pool, plan.task), PLACE, "c1")
    assert looks == [False, True]
    assert outcome.finding is not None
    assert outcome.finding.program == PROGRAM

    monkeypatch.setattr(suspects, "minimize_with", lambda *_: Reduction(parse(slipped), 1, 0, (), (), True, "fixpoint"))
    assert (
        triage_suspect(Suspect(parse(PROGRAM), SIGNATURE), plan, CandidateCache(pool, plan.task), PLACE, "c1").finding
        is None
    )


def test_a_suspect_of_other_settings_is_looked_into_without_its_settings(plan: Plan, fakes: dict[str, Any]) -> None:
    text = PROGRAM.replace("route(", 'settings({"inductor.max_fusion_size": 4})\nroute(')
    assert text != PROGRAM
    outcome = one(plan, suspect=Suspect(parse(text), replace(SIGNATURE, oracle="settings_agree")))
    assert (outcome.finding, [show(p) for p in outcome.others]) == (None, [PROGRAM])


def test_a_finding_is_safe_before_it_is_diagnosed_and_is_diagnosed_once(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Finding] = []

    def look(finding: Finding, *_: Any) -> Finding:
        with open_store(plan.db, create=False) as store:
            seen.append(store.get(finding.id))
        return replace(finding, diagnosis={"ratio": "all zero"})

    monkeypatch.setattr(suspects, "diagnose", look)
    assert one(plan).new
    assert not one(plan).new
    [before] = seen
    with open_store(plan.db, create=False) as store:
        assert store.list() == [replace(before, diagnosis={"ratio": "all zero"})]
    assert before.diagnosis == {}


def test_a_stored_finding_is_grown_where_torch_promises_something(plan: Plan, fakes: dict[str, Any]) -> None:
    found, pool = one(plan).finding, FakePool(lambda task, what: wrong())
    assert found is not None
    assert found.natural is None
    unsupported = replace(found, unsupported="setting inductor.fallback_random")
    assert grow_stored(unsupported, plan, pool) == unsupported  # type: ignore[arg-type]
    assert grow_stored(found, plan, pool) == as_natural(found)  # type: ignore[arg-type]
    with open_store(plan.db, create=False) as store:
        assert store.list() == [as_natural(found)]


def test_from_a_core_the_search_begins_at_its_stage_and_the_whole_is_not_built(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(parse(PROGRAM), Verdict(SIGNATURE, "x0.grad[2]: compiled 0, eager 1"), "aot_eager", "as it was")
    suspect = Suspect(parse(PROGRAM.replace("seed=1", "seed=5")), SIGNATURE, "ir", core)
    looks, built = list[str](), list[str]()

    def minimize(program: Any, verdict: Any, cache: CandidateCache, *_: Any) -> Reduction:
        looks.append(cache.task.place.subject.backend)
        assert (program, verdict) == (core.program, core.verdict)
        return Reduction(program, 1, 0, (), (), True, "fixpoint")

    def shows(task: Task, text: str) -> Report:
        built.append(text)
        return wrong(text=text) if len(built) > 1 else Report(text)

    monkeypatch.setattr(suspects, "minimize_with", minimize)
    monkeypatch.setattr(suspects, "met_as_core", lambda *_: None)
    pool: Any = FakePool(shows)
    outcome = triage_suspect(suspect, plan, CandidateCache(pool, plan.task), PLACE, "c1")
    assert outcome.finding is not None
    assert (outcome.finding.original, outcome.finding.before) == (suspect.text, "as it was")
    assert looks == ["aot_eager", "eager"], "what the stage alone shows is minimized again where it is built"
    assert built == [PROGRAM, PROGRAM]


def test_a_core_that_shows_nothing_when_it_is_built_is_no_reason_to_drop_the_whole(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(parse(PROGRAM), Verdict(SIGNATURE, "x0.grad[2]: compiled 0, eager 1"), "aot_eager")
    whole = parse(PROGRAM.replace("seed=1", "seed=5"))
    monkeypatch.setattr(
        suspects, "minimize_with", lambda program, *_: Reduction(program, 1, 0, (), (), True, "fixpoint")
    )
    monkeypatch.setattr(suspects, "met_as_core", lambda *_: None)
    pool: Any = FakePool(lambda task, text: wrong(text=text) if text == show(whole) else Report(text))
    outcome = triage_suspect(Suspect(whole, SIGNATURE, core=core), plan, CandidateCache(pool, plan.task), PLACE, "c1")
    assert outcome.finding is not None
    assert outcome.finding.program == show(whole)


@pytest.mark.parametrize(
    ("verdict", "answers", "shown"),
    [
        ("wrong", [True], (1, 1)),
        ("wrong", [False, True, True], (2, 3)),
        ("wrong", [False, False, False], None),
        ("crashes", [True, True, False], (2, 3)),
        ("hangs", [True], (1, 1)),
        ("hangs", [False], None),
    ],
)
def test_a_whole_suspect_is_built_as_often_as_it_takes_to_know_whether_it_shows(
    plan: Plan, verdict: str, answers: list[bool], shown: tuple[int, int] | None
) -> None:
    signature, told = replace(SIGNATURE, verdict=verdict), list(answers)
    pool: Any = FakePool(lambda task, text: wrong(signature) if told.pop(0) else Report(text))
    core = whole_core(Suspect(parse(PROGRAM), signature), plan, pool)
    assert not told
    assert (core.shown, core.builds) == shown if isinstance(core, Core) else shown is None


def test_a_known_finding_is_not_stored_twice_and_the_ledger_stays_byte_identical(
    plan: Plan, fakes: dict[str, Any]
) -> None:
    assert one(plan).new
    before = plan.db.read_bytes()
    again = one(plan)
    assert again.finding is not None
    assert not again.new
    assert plan.db.read_bytes() == before


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


def test_what_a_stage_alone_shows_is_no_finding(plan: Plan, fakes: dict[str, Any]) -> None:
    staged = Suspect(parse(PROGRAM), SIGNATURE, "ir")
    outcome = one(plan, Report(PROGRAM), staged)
    assert outcome.finding is None
    assert outcome.note == "seen at ir, not when built (agree)"
    assert outcome.others == ()


def test_what_a_stage_shows_and_code_shows_otherwise_is_looked_into_as_code_shows_it(
    plan: Plan, fakes: dict[str, Any]
) -> None:
    outcome = one(plan, wrong(OTHER), Suspect(parse(PROGRAM), SIGNATURE, "ir"))
    assert outcome.finding is None
    assert outcome.others == (parse(PROGRAM),)


def test_a_suspect_that_shows_a_fault_of_the_ledger_is_not_minimized(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = one(plan).finding
    assert stored is not None
    with open_store(plan.db) as store:
        fault = store.fault_of(stored.id)
    before = plan.db.read_bytes()
    monkeypatch.setattr(recognition, "fault_shown", lambda *_: (fault.id, 1))
    monkeypatch.setattr(suspects, "minimize_with", lambda *_: pytest.fail("it was minimized"))
    outcome = one(plan, suspect=Suspect(parse(PROGRAM.replace("seed=1", "seed=5")), SIGNATURE))
    assert outcome.finding is not None
    assert (outcome.finding.id, outcome.new, outcome.note) == (stored.id, False, f"shows the fault {fault.id}")
    assert (outcome.fault, outcome.experiments) == (fault.id, 1)
    assert plan.db.read_bytes() == before
    pool: Any = FakePool(lambda task, what: wrong())
    suspect, cache = Suspect(parse(PROGRAM), SIGNATURE), CandidateCache(pool, plan.task)
    monkeypatch.setattr(suspects, "minimize_with", lambda *_: Reduction(parse(PROGRAM), 1, 0, (), (), True, "fixpoint"))
    assert triage_suspect(suspect, plan, cache, PLACE, recognised=False).note == "known", "it was asked for by name"


def test_a_core_is_met_as_known_at_its_stage_and_not_built(
    plan: Plan, fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = one(plan).finding
    assert stored is not None
    asked: list[Task] = []

    def shown(text: str, signature: Signature, known: Any, task: Task, pool: Any) -> tuple[str | None, int]:
        asked.append(task)
        with open_store(plan.db) as store:
            return store.fault_of(stored.id).id, 1

    monkeypatch.setattr(recognition, "fault_shown", shown)
    monkeypatch.setattr(suspects, "examine_all", lambda *_: pytest.fail("it was built"))
    core = Core(parse(PROGRAM), Verdict(SIGNATURE, "x0.grad[2]: compiled 0, eager 1"), "inductor:ir")
    outcome = one(plan, suspect=Suspect(parse(PROGRAM.replace("seed=1", "seed=5")), SIGNATURE, "ir", core))
    assert outcome.fault
    assert [task.place.subject.stage for task in asked] == ["ir"]


def test_what_another_ledger_holds_is_known_and_not_stored(plan: Plan, fakes: dict[str, Any], tmp_path: Path) -> None:
    other = replace(plan, db=tmp_path / "other.db", corpus=None)
    stored = one(other).finding
    assert stored is not None
    with open_store(other.db) as store:
        fault = store.fault_of(stored.id).id
    beside = replace(plan, known=(other.db,))
    outcome = one(beside)
    assert (outcome.new, outcome.fault) == (False, f"{fault} of other.db")
    assert not plan.db.exists()
