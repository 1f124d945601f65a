"""Faults: what variants tie together, and what people said of them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.cause import cause_of, group
from fuzzer.ledger.diagnosed import shows_no_more
from fuzzer.ledger.faults import GONE, State, shown_on
from fuzzer.ledger.store import open_store
from tests.ledger.test_cause import found, lowering, text


def verified(finding: Finding, day: int) -> Finding:
    """Of a day, and so of an id of its own: its leaf's seed tells the day."""
    program = finding.program.replace("f32[4])\n", f"f32[4], seed={day})\n", 1)
    return replace(finding, created=f"2026-01-{day:02}", program=program)


ALONE = [verified(found(text("sin"), "aot_eager"), 1), verified(found(text("exp"), "aot_eager"), 2)]
# undecided, and holds both
BRIDGE = verified(found(text("sin", "exp"), "aot_eager"), 3)


def test_what_ties_two_faults_together_makes_them_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "findings.db") as store:
        for finding in ALONE:
            store.add(finding)
        first, second = store.faults()
        store.add(BRIDGE)
        [one] = store.faults()
        assert (one.id, one.variants, one.occurrences) == (first.id, 3, 3)
        assert f"one with {second.id}" in [what for _, what, _ in one.history]


def test_two_faults_that_people_told_apart_stay_two(tmp_path: Path) -> None:
    states = [State("confirmed"), State("known", "https://example.org/1")]
    with open_store(tmp_path / "findings.db") as store:
        for finding, state in zip(ALONE, states, strict=True):
            store.add(finding)
            store.triage(finding.id, state, "2026-02-01", "somebody")
        store.add(BRIDGE)
        assert [(f.state, f.variants) for f in store.faults()] == [(states[0], 2), (states[1], 1)]


def test_faults_that_become_one_may_have_notes_of_their_own(tmp_path: Path) -> None:
    with open_store(tmp_path / "findings.db") as store:
        for finding, note in zip(ALONE, ("the one", "the other"), strict=True):
            store.add(finding)
            store.triage(finding.id, State("fixed", note=note, fixed_in="2.15.0"), "1", "somebody")
        store.add(BRIDGE)
        [one] = store.faults()
        assert (one.state, one.variants) == (State("fixed", note="the one", fixed_in="2.15.0"), 3)
        assert any("the other" in what for _, what, _ in one.history)


def test_of_two_states_neither_loses_its_last_finding_to_the_other(tmp_path: Path) -> None:
    with open_store(tmp_path / "findings.db") as store:
        for finding, state in zip(ALONE, ("confirmed", "not-a-fault"), strict=True):
            store.add(finding)
            store.triage(finding.id, State(state, note="so"), "1", "somebody")
        same = {"diagnosis": {"bisector": lowering("mm")["bisector"]}, "stages": found(text("sin")).stages}
        for finding in store.list():
            store.set_diagnosis(replace(finding, **same))
        assert [(fault.state.name, fault.variants) for fault in store.faults()] == [
            ("confirmed", 1),
            ("not-a-fault", 1),
        ]


def test_of_faults_that_become_one_the_state_that_a_person_set_stays(tmp_path: Path) -> None:
    known = State("known", "https://example.org/1")
    with open_store(tmp_path / "findings.db") as store:
        for finding in ALONE:
            store.add(finding)
        store.triage(ALONE[1].id, known, "2026-02-01", "somebody")
        store.add(BRIDGE)
        [one] = store.faults()
        assert (one.state, one.first_seen) == (known, "2026-01-01")


def test_a_fault_is_told_by_its_simplest_finding_and_a_campaign_by_what_it_met(tmp_path: Path) -> None:
    longer = verified(found(text("sin", "sin"), "aot_eager"), 4)
    with open_store(tmp_path / "findings.db") as store:
        assert (store.representatives(), store.met_in("c1")) == ({}, {})
        for finding in (longer, replace(ALONE[0], campaign="c1"), ALONE[1]):
            store.add(finding)
        told = store.representatives()
        assert {name: finding.id for name, finding in told.items()} == {
            f.id: store.get(f.id).id for f in store.faults()
        }
        assert longer.id not in {finding.id for finding in told.values()}
        assert store.met_in("c1") == {store.fault_of(ALONE[0].id).id: (1, "2026-01-01")}


def test_a_finding_that_shows_no_more_stands_for_a_fault_only_where_no_other_does(tmp_path: Path) -> None:
    longer = verified(found(text("sin", "sin"), "aot_eager"), 4)
    with open_store(tmp_path / "findings.db") as store:
        for finding in (ALONE[0], longer):
            store.add(finding)
        assert list(store.representatives().values()) == [store.get(ALONE[0].id)]
        store.set_diagnosis(shows_no_more(ALONE[0], "2.13.0", "cpu"))
        [fault] = store.faults()
        assert (store.get(fault.id).id, store.variants(fault.id)[-1].id) == (longer.id, ALONE[0].id)


def test_the_faults_of_a_ledger_are_the_groups_of_its_causes_in_any_order(tmp_path: Path) -> None:
    findings = [*ALONE, BRIDGE, verified(found(text("sin"), **lowering("mm")), 4),
                verified(found(text("cos"), **lowering("mm")), 5), verified(found(text("sin")), 6)]  # fmt: skip
    expected = {frozenset(ids) for ids in group((f.id, cause_of(f)) for f in findings)}
    assert len(expected) == 3
    for seed in range(4):
        random.Random(seed).shuffle(findings)
        with open_store(tmp_path / f"{seed}.db") as store:
            for finding in findings:
                store.add(finding)
            joined: dict[str, set[str]] = {}
            for finding in findings:
                joined.setdefault(store.fault_of(finding.id).id, set()).add(finding.id)
        assert {frozenset(ids) for ids in joined.values()} == expected


def test_why_nobody_can_say_whether_a_fault_lives_is_kept_until_somebody_can(tmp_path: Path) -> None:
    with open_store(tmp_path / "findings.db") as store:
        store.add(ALONE[0])
        [fault] = store.faults()
        store.note_life(fault.id, "2.15.0", "cpu", "not run: no such setting", "2026-02-01")
        assert store.fault(fault.id).unsaid == ("2.15.0 cpu: not run: no such setting",)
        store.note_life(fault.id, "2.15.0", "cpu", GONE, "2026-01-31")
        store.note_life(fault.id, "2.15.0", "cpu", "not run: no such setting", "2026-03-01")
        told = store.fault(fault.id)
        assert (told.gone_on, told.unsaid) == (("2.15.0 cpu",), ())


def test_a_state_tells_what_belongs_to_it() -> None:
    assert str(State("new", note="x")) == "new"
    assert str(State("fixed", fixed_in="2.15.0")) == "fixed 2.15.0"
    assert str(State("not-a-fault", note="legal")) == "not-a-fault legal"


def test_a_finding_shows_where_it_was_found_and_where_its_diagnosis_saw_it() -> None:
    seen = replace(ALONE[0], place={"torch": "2.11.0+cu130", "device": "cuda:1"})
    assert shown_on(seen) == {"2.11.0 cuda"}
    told = replace(seen, diagnosis={"place": "torch 2.13.0+cpu, inductor@cpu against eager@cpu", "side": "both wrong"})
    assert shown_on(told) == {"2.11.0 cuda", "2.13.0 cpu"}
    assert shown_on(shows_no_more(told, "2.11.0", "cuda")) == set()
