"""What people ruled on variants, and which of two words holds."""

from __future__ import annotations

from pathlib import Path

from sqlite_utils import Database

from fuzzer.ledger.file import connect, transaction
from fuzzer.ledger.rulings import MERGE, SPLIT, Ruling, all_rulings, kept_apart, mark_undone, record, standing, word_on
from fuzzer.ledger.store import open_store
from tests.ledger.test_faults import ALONE

APART = Ruling(SPLIT, "F1", (("a",), ("b", "c")), "2026-02-01", "somebody", "two kernels")
ONE = Ruling(MERGE, "F1", (("a", "b"),), "2026-02-02", "somebody")


def ledger(path: Path, *rulings: Ruling) -> Database:
    with open_store(path) as store:
        for finding in ALONE:
            store.add(finding)
    db = connect(path)
    with transaction(db):
        for ruling in rulings:
            record(db, ruling)
    return db


def test_of_two_rulings_on_a_pair_the_newer_holds_and_one_that_is_undone_does_not(tmp_path: Path) -> None:
    db = ledger(tmp_path / "findings.db", ONE, APART)
    assert all_rulings(db) == standing(db) == [APART, ONE]
    assert word_on(db, "a") == ({"b"}, {"c"})
    assert word_on(db, "c") == ({"b"}, {"a"})
    mark_undone(db, ONE, "2026-02-03")
    assert standing(db) == [APART]
    assert word_on(db, "a") == (set(), {"b", "c"})
    assert word_on(db, "d") == (set(), set())


def test_faults_are_kept_apart_until_a_newer_ruling_makes_their_variants_one(tmp_path: Path) -> None:
    one, other = (finding.id for finding in ALONE)
    apart = Ruling(SPLIT, "F1", ((one,), (other,)), "2026-02-01", "somebody")
    db = ledger(tmp_path / "findings.db", apart)
    names = [name for (name,) in db.conn.execute("select id from fault").fetchall()]
    assert kept_apart(db, names) == {frozenset(names)}
    assert kept_apart(db, names[:1]) == set()
    with transaction(db):
        record(db, Ruling(MERGE, "F1", ((one, other),), "2026-02-02", "somebody"))
    assert kept_apart(db, names) == set()


def test_a_ledger_older_than_rulings_has_none(tmp_path: Path) -> None:
    db = connect(tmp_path / "old.db")
    assert all_rulings(db) == []
