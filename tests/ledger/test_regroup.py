"""Faults that people merge and split: what becomes of states, histories and later evidence; and undo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.diagnosed import shows_no_more
from fuzzer.ledger.errors import StoreError, UnknownFinding
from fuzzer.ledger.faults import GONE, State
from fuzzer.ledger.file import connect, transaction
from fuzzer.ledger.store import Store, open_store
from fuzzer.ledger.upgrade import join_anew
from tests.ledger.test_cause import found, lowering, text
from tests.ledger.test_faults import ALONE, BRIDGE, verified

KNOWN = State("known", "https://example.org/1", "as told there")
DAY, NEXT, THEN = "2026-02-01", "2026-02-02", "2026-02-03"
ALIKE = [verified(found(text(op), **lowering("mm")), day) for day, op in enumerate(("sin", "cos", "tan"), 5)]
LATER = verified(found(text("exp"), **lowering("mm")), 9)  # of the same cause


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "findings.db") as opened:
        yield opened


def fill(store: Store, *findings: Finding) -> list[str]:
    """The ids of the findings' faults."""
    for finding in findings:
        store.add(finding)
    return [store.fault_of(finding.id).id for finding in findings]


def groups(store: Store) -> set[frozenset[str]]:
    """The faults as sets of variants."""
    return {frozenset(finding.id for finding in store.variants(fault.id)) for fault in store.faults()}


def apart(*parts: list[Finding]) -> set[frozenset[str]]:
    return {frozenset(finding.id for finding in part) for part in parts}


def contents(store: Store, *tables: str) -> dict[str, set[tuple[Any, ...]]]:
    db = connect(store.path)
    return {table: set(db.conn.execute(f"select * from {table}").fetchall()) for table in tables}


# ---------------------------------------------------------------- merge


def test_merged_faults_have_the_first_ones_id_and_lose_no_word_of_a_person(store: Store) -> None:
    first, second = fill(store, *ALONE)
    store.triage(first, State("confirmed", note="silent"), DAY, "somebody", searched="sin wrong")
    store.triage(second, KNOWN, DAY, "another", searched="exp wrong")
    one = store.merge_faults([first, ALONE[1].id[:6]], NEXT, "somebody", "one kernel")
    assert (one.id, one.variants, one.occurrences) == (first, 2, 2)
    assert one.state == State("known", KNOWN.issue, "silent; as told there")
    assert one.searched == ("exp wrong", "sin wrong") or one.searched == ("sin wrong", "exp wrong")
    assert (NEXT, f"merged with {second} ({KNOWN}): one kernel", "somebody") in one.history
    assert [fault.id for fault in store.faults()] == [first]
    with pytest.raises(UnknownFinding, match=f"{second} is part of {first} now"):
        store.fault(second)


@pytest.mark.parametrize(
    "other",
    [State("not-a-fault", note="legal"), State("known", "https://example.org/2"), State("fixed", fixed_in="2.14")],
)
def test_states_that_contradict_each_other_are_refused_until_one_is_cleared(store: Store, other: State) -> None:
    first, second = fill(store, *ALONE)
    store.triage(first, KNOWN, DAY, "somebody")
    store.triage(second, other, DAY, "somebody")
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=f"{second} is {other.name}.*`backfuzz triage {second} new`"):
        store.merge_faults([first, second], NEXT, "somebody")
    assert store.path.read_bytes() == before
    store.triage(second, State("new"), NEXT, "somebody")
    assert store.merge_faults([first, second], THEN, "somebody").state == KNOWN


def test_one_fault_is_no_merge(store: Store) -> None:
    first, _ = fill(store, *ALONE)
    with pytest.raises(StoreError, match="name two faults or more"):
        store.merge_faults([first, ALONE[0].id], NEXT, "somebody")


# ---------------------------------------------------------------- split


def test_variants_that_are_split_off_are_a_new_fault(store: Store) -> None:
    fault = fill(store, *ALIKE)[0]
    store.triage(fault, KNOWN, DAY, "somebody")
    old, made = store.split_fault(fault, [ALIKE[1].id[:7], ALIKE[2].id], NEXT, "somebody", "another kernel")
    assert groups(store) == apart(ALIKE[:1], ALIKE[1:])
    assert (old.id, old.state, old.variants, old.occurrences) == (fault, KNOWN, 1, 1)
    assert (made.id, made.state, made.first_seen) == (f"F{ALIKE[1].id[:7]}", State("new"), ALIKE[1].created)
    assert (made.occurrences, made.lives_on) == (2, ("2.13.0 cpu",))
    told = f"{ALIKE[1].id} {ALIKE[2].id}: another kernel"
    assert (NEXT, f"split: {made.id} took {told}", "somebody") in old.history
    assert (NEXT, f"split from {fault} ({KNOWN}) with {told}", "somebody") in made.history


def test_the_variant_that_named_a_fault_leaves_it_the_name(store: Store) -> None:
    fault = fill(store, *ALIKE)[0]
    assert fault == f"F{ALIKE[0].id[:7]}"
    old, made = store.split_fault(fault, [ALIKE[0].id], NEXT, "somebody")
    assert (old.id, old.first_seen) == (fault, ALIKE[1].created)
    assert made.id not in ("", fault)


@pytest.mark.parametrize(
    ("chosen", "told"), [(ALIKE, "all of the 3"), ([], "none of the 3"), (ALONE[:1], f"{ALONE[0].id} is no finding of")]
)
def test_a_split_that_is_none_is_refused(store: Store, chosen: list[Finding], told: str) -> None:
    fault = fill(store, *ALIKE, *ALONE)[0]
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=told):
        store.split_fault(fault, [finding.id for finding in chosen], NEXT, "somebody")
    assert store.path.read_bytes() == before


# ---------------------------------------------------------------- what comes later


def rejoin(store: Store) -> None:
    """As a new rule of causes does it."""
    db = connect(store.path)
    with transaction(db):
        join_anew(db)
    db.conn.close()


def diagnose(store: Store) -> None:
    """A diagnosis that finds the same cause, and one that finds another."""
    for finding in store.list():
        store.set_diagnosis(replace(finding, diagnosis={**finding.diagnosis, "side": "the compiled side is wrong"}))
    first = store.list()[0]
    store.set_diagnosis(replace(first, diagnosis=lowering_of("bmm")))


def lowering_of(node: str) -> dict[str, str]:
    return {"bisector": lowering(node)["bisector"]}


LATER_ON = {"a new rule": rejoin, "a diagnosis": diagnose}


@pytest.mark.parametrize("later", LATER_ON.values(), ids=LATER_ON)
def test_a_split_stands_whatever_evidence_says_later(store: Store, later: Any) -> None:
    fault = fill(store, *ALIKE)[0]
    store.split_fault(fault, [ALIKE[2].id], DAY, "somebody")
    later(store)
    assert groups(store) == apart(ALIKE[:2], ALIKE[2:])


@pytest.mark.parametrize("later", LATER_ON.values(), ids=LATER_ON)
def test_a_merge_stands_whatever_evidence_says_later(store: Store, later: Any) -> None:
    store.merge_faults(fill(store, *ALONE, ALIKE[0]), DAY, "somebody")
    later(store)
    assert groups(store) == apart([*ALONE, ALIKE[0]])


def test_a_new_finding_joins_one_of_two_that_are_kept_apart_and_ties_them_no_more(store: Store) -> None:
    fault = fill(store, *ALIKE)[0]
    store.split_fault(fault, [ALIKE[2].id], DAY, "somebody")
    assert store.fault_alike(LATER) == fault
    assert fill(store, LATER) == [fault]
    assert groups(store) == apart([*ALIKE[:2], LATER], ALIKE[2:])
    rejoin(store)
    assert groups(store) == apart([*ALIKE[:2], LATER], ALIKE[2:])


def test_a_new_finding_that_shares_more_with_the_part_that_was_split_off_joins_that(store: Store) -> None:
    body = verified(found(text("tan"), **lowering("mm")), 10)  # the same kernels, too
    fault = fill(store, *ALIKE)[0]
    _, made = store.split_fault(fault, [ALIKE[2].id], DAY, "somebody")
    assert fill(store, body) == [made.id]


def test_a_ruling_is_another_ledgers_too_and_is_taken_over_once(store: Store, tmp_path: Path) -> None:
    first, second = fill(store, *ALONE, *ALIKE)[:2]
    with open_store(tmp_path / "other.db") as other:
        fill(other, *ALONE, *ALIKE)
        other.merge_faults([first, second], DAY, "another")
        other.split_fault(ALIKE[0].id, [ALIKE[2].id], NEXT, "another")
        store.merge(other)
        assert groups(store) == groups(other) == apart(ALONE, ALIKE[:2], ALIKE[2:])
        before = store.path.read_bytes()
        store.merge(other)
        assert store.path.read_bytes() == before
    with open_store(tmp_path / "empty.db") as empty:
        empty.merge(store)
        assert groups(empty) == groups(store)


def test_a_newer_ruling_here_outranks_an_older_one_from_there(store: Store, tmp_path: Path) -> None:
    fill(store, *ALIKE)
    with open_store(tmp_path / "other.db") as other:
        fill(other, *ALIKE)
        other.split_fault(ALIKE[0].id, [ALIKE[2].id], DAY, "another")
        _, made = store.split_fault(ALIKE[0].id, [ALIKE[2].id], DAY, "somebody")
        store.merge_faults([ALIKE[0].id, made.id], THEN, "somebody")
        store.merge(other)
        assert groups(store) == apart(ALIKE)
        other.merge(store)
        assert groups(other) == apart(ALIKE)


def test_faults_that_are_one_elsewhere_stay_two_where_their_states_contradict(store: Store, tmp_path: Path) -> None:
    first, second = fill(store, *ALONE)
    with open_store(tmp_path / "other.db") as other:
        fill(other, *ALONE)
        other.merge_faults([first, second], NEXT, "another")
        store.triage(first, KNOWN, DAY, "somebody")
        store.triage(second, State("not-a-fault", note="legal"), DAY, "somebody")
        store.merge(other)
    assert groups(store) == apart(ALONE[:1], ALONE[1:])
    assert f"called one with {second}, whose state is another" in [what for _, what, _ in store.fault(first).history]


# ---------------------------------------------------------------- undo

STORED = ("fault", "variant", "occurrence", "life", "mark")


def test_undo_restores_merged_faults_as_they_were(store: Store) -> None:
    first, second = fill(store, *ALONE)
    store.triage(first, State("confirmed", note="silent"), DAY, "somebody")
    store.triage(second, KNOWN, DAY, "another")
    store.note_life(second, "2.15.0", "cpu", GONE, DAY)
    before, history = contents(store, *STORED), contents(store, "history")["history"]
    store.merge_faults([first, second], NEXT, "somebody")
    restored = store.undo_ruling(first, THEN, "somebody")
    assert [fault.id for fault in restored] == [first, second]
    assert contents(store, *STORED) == before
    more = contents(store, "history")["history"]
    assert history <= more
    assert (second, THEN, f"merge with {first} undone: {KNOWN}", "somebody") in more
    assert (first, NEXT, f"merged with {second} ({KNOWN})", "somebody") in more
    fill(store, replace(BRIDGE, created=THEN))  # evidence may unite them again where states allow it
    assert [fault.state.name for fault in store.faults()] == ["confirmed", "known"]


def test_undo_restores_a_fault_that_was_split(store: Store) -> None:
    fault = fill(store, *ALIKE)[0]
    store.triage(fault, KNOWN, DAY, "somebody")
    db = connect(store.path)
    db.conn.execute("update life set seen = '2026-01-01'")  # older than its findings, as older ledgers have it
    db.conn.close()
    before = contents(store, *STORED)
    _, made = store.split_fault(fault, [ALIKE[0].id, ALIKE[1].id], NEXT, "somebody")
    [restored] = store.undo_ruling(made.id, THEN, "somebody")
    assert contents(store, *STORED) == before
    assert (THEN, f"split into {made.id} undone: {KNOWN}", "somebody") in restored.history
    store.set_diagnosis(replace(ALIKE[0], diagnosis=lowering_of("bmm")))  # evidence decides again
    assert groups(store) == apart(ALIKE[:1], ALIKE[1:])


def test_findings_and_runs_since_then_survive_an_undo(store: Store) -> None:
    fault = fill(store, *ALIKE)[0]
    _, made = store.split_fault(fault, [ALIKE[2].id], DAY, "somebody")
    near = verified(found(text("tan"), **lowering("mm")), 10)
    assert fill(store, near) == [made.id]
    store.note_life(fault, "2.16.0", "cpu", GONE, NEXT)
    [one] = store.undo_ruling(fault, THEN, "somebody")
    assert groups(store) == apart([*ALIKE, near])
    assert (one.gone_on, one.occurrences) == (("2.16.0 cpu",), 4)


def test_a_state_that_was_set_after_a_merge_is_not_undone(store: Store) -> None:
    first, second = fill(store, *ALONE)
    store.merge_faults([first, second], DAY, "somebody")
    store.triage(first, KNOWN, NEXT, "somebody")
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=f"{first} became known .* set it to new first"):
        store.undo_ruling(first, THEN, "somebody")
    assert store.path.read_bytes() == before


def test_rulings_are_undone_the_newest_first(store: Store) -> None:
    fault, *_, other = fill(store, *ALIKE, ALONE[0])
    _, made = store.split_fault(fault, [ALIKE[2].id], DAY, "somebody")
    store.merge_faults([other, made.id], NEXT, "somebody")
    with pytest.raises(StoreError, match=f"first `backfuzz triage --undo {other}`"):
        store.undo_ruling(fault, THEN, "somebody")
    store.undo_ruling(other, THEN, "somebody")
    store.undo_ruling(fault, THEN, "somebody")
    assert groups(store) == apart(ALIKE, ALONE[:1])
    with pytest.raises(StoreError, match=f"{fault} was neither merged nor split"):
        store.undo_ruling(fault, THEN, "somebody")


def test_what_was_undone_can_be_done_again(store: Store) -> None:
    first, second = fill(store, *ALONE)
    for _ in range(2):
        store.merge_faults([first, second], DAY, "somebody")
        assert groups(store) == apart(ALONE)
        store.undo_ruling(first, DAY, "somebody")
        assert groups(store) == apart(ALONE[:1], ALONE[1:])


def test_an_undo_elsewhere_is_an_undo_here(store: Store, tmp_path: Path) -> None:
    first, second = fill(store, *ALONE)
    store.merge_faults([first, second], DAY, "somebody")
    with open_store(tmp_path / "other.db") as other, open_store(tmp_path / "third.db") as third:
        for one in (other, third):
            one.merge(store)
        store.undo_ruling(first, NEXT, "somebody")
        for one in (other, third):
            one.merge(store)
            assert groups(one) == apart(ALONE[:1], ALONE[1:])
        other.merge(third)
        assert groups(other) == apart(ALONE[:1], ALONE[1:])


def test_a_finding_that_shows_no_more_stays_where_a_person_put_it(store: Store) -> None:
    fault = fill(store, *ALIKE)[0]
    store.split_fault(fault, [ALIKE[2].id], DAY, "somebody")
    store.set_diagnosis(shows_no_more(ALIKE[2], "2.13.0", "cpu"))
    assert groups(store) == apart(ALIKE[:2], ALIKE[2:])
