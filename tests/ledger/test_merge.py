"""Two ledgers become one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fuzzer.judgement.verdict import Natural
from fuzzer.ledger.diagnosed import DIAGNOSER, EARLIER, VERSION
from fuzzer.ledger.faults import GONE, State
from fuzzer.ledger.merge import Merged
from fuzzer.ledger.store import CampaignRecord, Store, open_store
from tests.ledger.test_cause import found, lowering, text
from tests.ledger.test_faults import ALONE, BRIDGE, verified
from tests.ledger.varied import SHAPES, scope

KNOWN = State("known", "https://example.org/1")
HERE = verified(found(text("sin"), **lowering("mm")), 4)
THERE = verified(found(text("cos"), **lowering("mm")), 5)  # the same fault
OTHER = verified(found(text("tan"), **lowering("bmm")), 6)


def ledger(path: Path, *findings: object) -> Store:
    opened = open_store(path)
    for finding in findings:
        opened.add(finding)  # type: ignore[arg-type]
    return opened


def test_findings_join_the_faults_that_they_share_a_cause_with(tmp_path: Path) -> None:
    with ledger(tmp_path / "a.db", HERE) as ours, ledger(tmp_path / "b.db", THERE, OTHER) as theirs:
        theirs.triage(OTHER.id, KNOWN, "2026-02-01", "somebody")
        theirs.note_life(theirs.fault_of(THERE.id).id, "2.15.0", "cpu", GONE, "2026-03-01")
        theirs.add_campaign(CampaignRecord("c9", "backfuzz fuzz", 1, "2026-01-01"))
        assert ours.merge(theirs) == Merged(1, 2, 2, 1)
        one, other = ours.faults()
        assert (one.variants, one.occurrences, one.gone_on) == (2, 2, ("2.15.0 cpu",))
        assert (other.state, other.history[-1][2]) == (KNOWN, "somebody")
        assert [c.id for c in ours.campaigns()] == ["c9"]


def test_a_natural_program_that_only_the_other_has_is_taken_over(tmp_path: Path) -> None:
    mine, grown = (replace(HERE, natural=n) for n in (None, Natural(text("sin"), HERE.signature, "it shows")))
    with ledger(tmp_path / "a.db", mine) as ours, ledger(tmp_path / "b.db", grown) as theirs:
        ours.merge(theirs)
        theirs.merge(ledger(tmp_path / "c.db", mine))
        assert ours.list() == theirs.list() == [grown]


def test_of_two_diagnoses_that_of_the_newer_version_holds_and_keeps_what_the_older_said(tmp_path: Path) -> None:
    said = {**HERE.diagnosis, "side": "the compiled side is wrong"}
    newer, older = replace(HERE, diagnosis={**said, VERSION: str(DIAGNOSER)}), HERE
    assert older.diagnosis
    with ledger(tmp_path / "a.db", older) as ours, ledger(tmp_path / "b.db", newer) as theirs:
        theirs.merge(ours)
        assert theirs.list() == [newer]
        ours.merge(theirs)
        [taken] = ours.list()
        assert taken.diagnosis == newer.diagnosis
        assert all(f"{name}: {line}" in taken.attachments[EARLIER] for name, line in older.diagnosis.items())
        ours.merge(theirs)
        assert ours.list() == [taken]


def test_the_newer_scope_of_a_release_holds(tmp_path: Path) -> None:
    old, new = (scope(*SHAPES, finding=HERE.id, created=created) for created in ("2026-01-01", "2026-01-02"))
    other = scope(*SHAPES, finding=HERE.id, torch="2.13.0")
    with ledger(tmp_path / "a.db", HERE) as ours, ledger(tmp_path / "b.db", HERE) as theirs:
        ours.set_scope(old)
        for told in (new, other):
            theirs.set_scope(told)
        ours.merge(theirs)
        assert ours.scopes(HERE.id) == (new, other)
        theirs.set_scope(old)
        ours.merge(theirs)
        assert ours.scopes(HERE.id) == (new, other)


def test_merging_again_changes_not_a_byte(tmp_path: Path) -> None:
    with ledger(tmp_path / "a.db", HERE, ALONE[0]) as ours, ledger(tmp_path / "b.db", THERE, OTHER, BRIDGE) as theirs:
        theirs.add(THERE)
        theirs.triage(OTHER.id, KNOWN, "2026-02-01", "somebody")
        before = (tmp_path / "b.db").read_bytes()
        ours.merge(theirs)
        after = (tmp_path / "a.db").read_bytes()
        assert ours.merge(theirs) == Merged(0, 0, 0, 0)
        assert ours.merge(ours) == Merged(0, 0, 0, 0)
        assert (tmp_path / "a.db").read_bytes() == after
        assert (tmp_path / "b.db").read_bytes() == before


def test_what_is_in_both_is_counted_once_and_a_state_that_was_set_here_stays(tmp_path: Path) -> None:
    with ledger(tmp_path / "a.db", HERE) as ours, ledger(tmp_path / "b.db", HERE, HERE) as theirs:
        for store, state in ((ours, State("confirmed")), (theirs, KNOWN)):
            store.triage(HERE.id, state, "2026-02-01", "somebody")
        assert ours.merge(theirs) == Merged(0, 0, 0, 0)
        [fault] = ours.faults()
        assert (fault.state, fault.occurrences) == (State("confirmed"), 2)
        assert f"new -> {KNOWN}" in [what for _, what, _ in fault.history]


def test_either_way_round_the_faults_are_the_same(tmp_path: Path) -> None:
    sides = [(HERE, ALONE[0], ALONE[1]), (THERE, BRIDGE, replace(OTHER, note="x"))]
    told = []
    for i, (first, second) in enumerate((sides, sides[::-1])):
        with ledger(tmp_path / f"{i}a.db", *first) as ours, ledger(tmp_path / f"{i}b.db", *second) as theirs:
            ours.merge(theirs)
            told.append([(f.title, f.variants, f.occurrences, f.first_seen) for f in ours.faults()])
    assert told[0] == told[1]
    assert len(told[0]) == 3
