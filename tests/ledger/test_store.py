"""The store: what enters, what stays, and what people read when it cannot be used."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_utils import Database

from fuzzer.judgement.verdict import Comparison, Finding, Signature
from fuzzer.ledger import errors, file, rows, schema
from fuzzer.ledger.faults import GONE, State
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.store import CampaignRecord, Store, open_store, require_writable
from tests.ledger import varied

PROGRAM = """program(1)
route("autograd")
x0 = leaf(f32[4])
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""


def finding(number: int = 0, verdict: str = "wrong") -> Finding:
    """A verified finding; each number gives another id."""
    return Finding(
        signature=Signature("gradients_agree", verdict, "backward", "scattered"),
        detail="x0.grad differs at 1 of 4 elements",
        original=PROGRAM,
        program=PROGRAM.replace("f32[4])\n", f"f32[4], seed={number})\n", 1) if number else PROGRAM,
        place={"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"},
        reproduced=3,
        runs=3,
        comparisons=(
            Comparison("x0.grad", (2,), 1.0, math.nan, 1.0, 1e-7, 1, 4),
            Comparison("v0", (), 0.1, math.inf, -math.inf, 0.0, 1, 1),
        ),
        stages={"eager": "agree", "inductor": "wrong"},
        ablation={"inductor.max_fusion_size=1": "agree"},
        campaign="c1",
        created=f"2026-01-0{number + 1}T00:00:00Z",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "findings.db"


def same(a: Finding, b: Finding) -> bool:
    """Equal, where nan equals nan."""
    return repr(a) == repr(b)


def test_a_finding_comes_back_exactly_as_it_was_stored(path: Path) -> None:
    with open_store(path) as opened:
        assert opened.add(finding())
    with open_store(path, create=False) as opened:
        assert same(opened.get(finding().id), finding())


def test_json_of_a_finding_is_strict_and_decodes_to_the_finding() -> None:
    import json

    text = json.dumps(rows.encode(finding()), allow_nan=False)
    assert same(rows.decode(json.loads(text)), finding())


def test_a_known_finding_is_counted_and_not_changed(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        again = replace(finding(), detail="another wording", created="2026-02-01T00:00:00Z")
        assert not opened.add(again)
        assert opened.seen(finding().id) == 2
        assert same(opened.get(finding().id), finding())
        assert len(opened.list()) == 1


def test_a_unique_prefix_is_an_id(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        assert opened.get(finding().id[:1]).id == finding().id


def test_an_id_is_known_however_its_letters_are_written(path: Path) -> None:
    with open_store(path) as opened:
        for number in range(9):
            opened.add(finding(number))
        fault, told = opened.faults()[0].id, opened.list()[0].id
        assert {opened.fault_of(name).id for name in (fault, fault.upper(), fault.lower())} == {fault}
        assert opened.fault(fault.upper()).id == fault
        assert opened.get(told.upper()).id == told
        begins = next((one.id for one in opened.list() if one.id.startswith("f")), "")
        assert not begins or opened.get(begins[:5]).id == begins


def test_an_ambiguous_prefix_names_the_ids_it_could_be(path: Path) -> None:
    with open_store(path) as opened:
        for number in range(9):
            for verdict in ("wrong", "raises"):
                opened.add(finding(number, verdict))
        ids = [f.id for f in opened.list()]
        shared = next(i[0] for i in ids if sum(j[0] == i[0] for j in ids) > 1)
        with pytest.raises(errors.AmbiguousFinding, match=f"{shared} could be {shared}"):
            opened.get(shared)


@pytest.mark.parametrize("asked", ["0123456789", "ffff", "", "x' or 1=1", "%", "12345678901"])
def test_an_unknown_id_is_an_error_for_people(path: Path, asked: str) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        with pytest.raises(errors.UnknownFinding) as caught:
            opened.get(asked)
        assert "\n" not in str(caught.value)


def test_list_filters_by_class_and_state_and_is_ordered_by_time(path: Path) -> None:
    with open_store(path) as opened:
        for number in (2, 0, 1):
            opened.add(finding(number))
        opened.add(finding(3, "raises"))
        opened.triage(finding(1).id, State("confirmed"), "2026-01-05T00:00:00Z", "somebody")
        assert [f.created[9] for f in opened.list()] == ["1", "2", "3", "4"]
        assert [f.signature.verdict for f in opened.list(Wanted(verdict="raises"))] == ["raises"]
        assert [f.created[9] for f in opened.list(Wanted(state="confirmed"))] == ["1", "2", "3", "4"]  # one fault
        assert opened.list(Wanted(verdict="wrong", state="new")) == []


@pytest.mark.parametrize(("reproduced", "runs"), [(2, 3), (2, 2), (3, 4), (0, 0)])
def test_an_unverified_finding_does_not_enter(path: Path, reproduced: int, runs: int) -> None:
    with (
        open_store(path) as opened,
        pytest.raises(errors.UnverifiedFinding, match=f"reproduced {reproduced} of {runs}"),
    ):
        opened.add(replace(finding(), reproduced=reproduced, runs=runs))
    assert not path.exists()


@pytest.mark.parametrize(
    "nonsense",
    [
        replace(finding(), signature=Signature("gradients_agree", "agree", "", "")),
        replace(finding(), program="import os"),
    ],
)
def test_nonsense_does_not_enter(path: Path, nonsense: Finding) -> None:
    with open_store(path) as opened, pytest.raises(errors.StoreError):
        opened.add(nonsense)


def test_campaigns_come_back_and_are_replaced_by_id(path: Path) -> None:
    campaign = CampaignRecord("c1", "backfuzz fuzz --minutes 2", 2**70, "2026-01-01T00:00:00Z", place={"device": "cpu"})
    done = replace(campaign, seconds=120.5, totals={"programs": 7, "findings": {"wrong": 1}})
    with open_store(path) as opened:
        opened.add_campaign(campaign)
        opened.add_campaign(done)
        assert opened.campaigns() == (done,)


def test_opening_and_reading_leaves_the_file_as_it_was(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    with open_store(path) as opened:
        opened.list()
        opened.get(finding().id)
        opened.triage(finding().id, State("new"), "2027-01-01T00:00:00Z", "somebody")  # as it is already
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, when)
    assert [p.name for p in path.parent.iterdir()] == ["findings.db"]


def test_a_store_to_which_nothing_is_added_is_not_made(path: Path) -> None:
    with open_store(path) as opened:
        assert opened.list() == []
        with pytest.raises(errors.UnknownFinding):
            opened.get("0a")
    assert not path.exists()


def test_reading_a_missing_file_says_what_to_do_and_makes_none(path: Path) -> None:
    with pytest.raises(errors.MissingStore, match=r"backfuzz fuzz.*--db"):
        open_store(path, create=False)
    assert not path.exists()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.UnwritableStore, match="no folder"):
        open_store(tmp_path / "no" / "findings.db")


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(errors.CorruptStore, match="is a folder"):
        open_store(tmp_path)


def test_a_locked_store_is_said_in_one_line_and_keeps_what_it_had(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "BUSY_SECONDS", 0.1)
    with open_store(path) as opened:
        opened.add(finding())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin exclusive")
        with pytest.raises(errors.LockedStore, match=r"is locked by another program"):
            open_store(path)
        other.execute("rollback")
        other.execute("begin immediate")
        with open_store(path) as reader:
            assert len(reader.list()) == 1  # a writer does not keep readers out
            with pytest.raises(errors.LockedStore):
                reader.add(finding(1))
        other.execute("rollback")
        other.close()
        assert opened.add(finding(1))


@pytest.mark.parametrize("content", [b"a text, whatever its name says\n" * 200, b"SQLite format 3\0" + b"x" * 5000])
def test_a_file_that_is_no_store_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(errors.CorruptStore):
        open_store(path)
    assert path.read_bytes() == content


def test_a_damaged_store_is_refused_and_left_alone(path: Path) -> None:
    with open_store(path) as opened:
        for number in range(9):
            opened.add(finding(number))
    content = path.read_bytes()
    damaged = content[:4096] + b"\xff" * (len(content) - 4096)
    path.write_bytes(damaged)
    with pytest.raises(errors.CorruptStore), open_store(path) as opened:
        opened.list()
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(("table", "column", "read"), [("variant", "program", Store.known_faults),
                         ("campaign", "seed", Store.campaigns)])  # fmt: skip
def test_a_row_that_holds_nonsense_is_told_as_damage_of_its_file(
    path: Path, table: str, column: str, read: Callable[[Store], object]
) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        opened.add_campaign(CampaignRecord("c1", "backfuzz fuzz", 0, "2026-01-01"))
    with sqlite3.connect(path) as connection:
        connection.execute(f"update {table} set {column} = 'program(1'")
    connection.close()
    with open_store(path) as opened, pytest.raises(errors.CorruptStore, match="damaged: a row holds unexpected values"):
        read(opened)


def test_an_empty_file_is_an_empty_ledger(path: Path) -> None:
    """`touch` makes one, and so does a disk that was full."""
    path.write_bytes(b"")
    with open_store(path, create=False) as opened:
        assert opened.list() == []
    assert path.read_bytes() == b""
    with open_store(path) as opened:
        assert opened.add(finding())


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("create table findings (id)")
    other.close()
    with pytest.raises(errors.CorruptStore, match="some other program"):
        open_store(path)


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
    with sqlite3.connect(path) as newer:
        newer.execute("pragma user_version = 99")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(errors.NewerStore, match="schema 99"):
        open_store(path)
    assert path.read_bytes() == before


def test_an_older_schema_is_read_as_it_is_and_brought_up_to_date_by_the_first_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(path) as opened:
        opened.add(finding())
    before = path.read_bytes()
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, lambda db: db.conn.execute("create table more (x)")])
    with open_store(path) as opened:
        assert same(opened.get(finding().id), finding())
        assert path.read_bytes() == before
        assert opened.add(finding(1))
        assert [f.id for f in opened.list()] == [finding().id, finding(1).id]
    with sqlite3.connect(path) as plain:
        assert plain.execute("pragma user_version").fetchone() == (len(schema.MIGRATIONS),)
        assert plain.execute("select count(*) from more").fetchone() == (0,)
    plain.close()


def test_a_store_of_the_first_schema_has_the_fields_of_today(path: Path) -> None:
    db = Database(sqlite3.connect(path, isolation_level=None))
    schema.MIGRATIONS[0](db)
    later = ("before", "diagnosis", "attachments", "unsupported", "natural")
    old = {k: v for k, v in rows.to_row(rows.encode(finding())).items() if k not in later}
    db["findings"].insert(old | {"triage": "new", "seen": 3, "last_seen": finding().created})
    db.conn.execute(f"pragma application_id = {file._APPLICATION_ID}")
    db.conn.execute("pragma user_version = 1")
    db.conn.close()
    with open_store(path) as opened:
        assert same(opened.get(finding().id), finding())
        assert opened.seen(finding().id) == 1, "its count grew with copies"


def test_a_diagnosis_is_stored_with_its_finding_and_nothing_else_changes(path: Path) -> None:
    known = replace(
        finding(),
        stages={"eager": "agree"},
        ablation={"max_fusion_size=1": "wrong"},
        diagnosis={"ratio": "all zero"},
        attachments={"backward_graph.py": "def forward(self): ..."},
    )
    with open_store(path) as opened:
        opened.add(finding())
        assert opened.set_diagnosis(replace(known, detail="not stored"))
        assert same(opened.get(known.id), known)
        before = path.read_bytes()
        assert not opened.set_diagnosis(known)
        with pytest.raises(errors.UnknownFinding):
            opened.set_diagnosis(finding(1))
    assert path.read_bytes() == before


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(path) as opened:
        opened.add(finding())
    before = path.read_bytes()

    def half(db: Database) -> None:
        db.conn.execute("drop table variant")
        raise RuntimeError("in the middle")

    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, half])
    with pytest.raises(RuntimeError, match="in the middle"):
        open_store(path)
    assert path.read_bytes() == before
    monkeypatch.undo()
    with open_store(path) as opened:
        monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, half])
        opened._current = False
        with pytest.raises(RuntimeError, match="in the middle"):
            opened.add(finding(1))
    assert path.read_bytes() == before


def test_an_add_that_fails_half_way_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        monkeypatch.setattr("fuzzer.ledger.store.to_row", lambda fields: {"id": "0", "no such column": 1})
        with pytest.raises(errors.StoreError):
            opened.add(finding(1))
        monkeypatch.undo()
        assert [f.id for f in opened.list()] == [finding().id]


def test_the_journal_mode_is_sqlites_default(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
    with sqlite3.connect(path) as plain:
        assert plain.execute("pragma journal_mode").fetchone() == ("delete",)
    plain.close()


# ---------------------------------------------------------------- faults


def test_variants_of_one_cause_are_one_fault_which_stands_for_its_simplest(path: Path) -> None:
    longer = replace(finding(1), program=PROGRAM.replace("f32[4])\n", "f32[4], seed=12)\n", 1))
    with open_store(path) as opened:
        opened.add(longer)
        opened.add(finding())
        [fault] = opened.faults()
        assert (fault.variants, fault.occurrences, fault.verdict) == (2, 2, "wrong")
        assert fault.lives_on == ("2.13.0 cpu",)
        assert fault.first_seen == finding().created
        assert same(opened.get(fault.id), finding())
        assert opened.fault_of(longer.id) == opened.fault_of(fault.id[:3]) == fault


def test_a_diagnosis_may_tell_that_a_variant_is_another_fault(path: Path) -> None:
    by_op = {f"aten.{op}.default left to ATen": "agree" for op in ("relu", "mul")}
    with open_store(path) as opened:
        for number in (0, 1):
            opened.add(finding(number))
        assert len(opened.faults()) == 1
        for number, op in enumerate(by_op):
            opened.set_diagnosis(replace(finding(number), ablation={op: "agree"}))
        assert [(f.decided, f.variants) for f in opened.faults()] == [("operator relu", 1), ("operator mul", 1)]
        opened.set_diagnosis(replace(finding(1), ablation={next(iter(by_op)): "agree"}))
        assert [(f.decided, f.variants) for f in opened.faults()] == [("operator relu", 2)]


def test_a_state_is_remembered_with_time_and_person_and_holds_for_all_variants(path: Path) -> None:
    known = State("known", "https://example.org/1", "seen before")
    with open_store(path) as opened:
        opened.add(finding())
        opened.add(finding(1))
        changed = opened.triage(finding(1).id, known, "2026-03-01T00:00:00Z", "somebody")
        assert changed.state == known
        assert opened.fault_of(finding().id).state == known
        told = "new -> known https://example.org/1: seen before"
        assert changed.history[-1] == ("2026-03-01T00:00:00Z", told, "somebody")
        before = path.read_bytes()
        assert opened.triage(changed.id, known, "2026-04-01T00:00:00Z", "somebody else") == changed
        with pytest.raises(errors.StoreError, match="unknown state 'maybe'"):
            opened.triage(changed.id, State("maybe"), "", "")
    assert path.read_bytes() == before


def test_where_a_fault_lives_is_what_was_seen_last(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        [fault] = opened.faults()
        opened.note_life(fault.id, "2.15.0+cpu", "cpu", GONE, "2026-05-01T00:00:00Z")
        opened.note_life(fault.id, "2.13.0", "cpu", GONE, "2025-01-01T00:00:00Z")  # older than what is known
        [fault] = opened.faults()
        assert (fault.lives_on, fault.gone_on) == (("2.13.0 cpu",), ("2.15.0 cpu",))
        assert [f.id for f in opened.list(Wanted(lives_on="2.13"))] == [finding().id]
        assert opened.list(Wanted(lives_on="2.15")) == []


def test_faults_are_told_as_a_suspect_is_held_against_them(path: Path) -> None:
    decided = {"aten.relu.default left to ATen": "agree"}
    stages = {"eager": "agree", "inductor": "wrong"}
    with open_store(path) as opened:
        assert opened.known_faults() == ()
        opened.add(replace(finding(), ablation=decided, stages=stages))
        [known] = opened.known_faults()
        assert known.fault == opened.faults()[0].id
        assert [q.name for q in known.questions] == [*decided, "stage eager"]


def test_every_error_is_a_store_error_and_a_value_error() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.StoreError)]
    assert len(kinds) == 9
    assert issubclass(errors.StoreError, ValueError)


def test_a_store_closes_twice_without_complaint(path: Path) -> None:
    opened = open_store(path)
    assert isinstance(opened, Store)
    opened.add(finding())
    opened.close()
    opened.close()


def test_the_scopes_of_a_finding_are_kept_by_release_the_newest_first(path: Path) -> None:
    old, new = (varied.scope(*varied.SHAPES, finding=finding().id, torch=t, created=t) for t in ("2.11.0", "2.12.0"))
    with open_store(path) as opened:
        opened.add(finding())
        assert opened.scopes(finding().id) == ()
        for scope in (old, new, replace(old, rows=old.rows[:1])):
            opened.set_scope(scope)
    with open_store(path, create=False) as opened:
        told = opened.scopes(finding().id[:4])
        assert repr(told) == repr((new, replace(old, rows=old.rows[:1])))
        assert opened.scopes(opened.faults()[0].id) == told
        assert opened.newest_scopes() == {finding().id: new}


def test_a_scope_of_no_finding_is_refused(path: Path) -> None:
    with open_store(path) as opened:
        opened.add(finding())
        with pytest.raises(errors.UnknownFinding):
            opened.set_scope(varied.scope(*varied.SHAPES, finding="0000000000"))


def test_a_ledger_that_cannot_be_written_is_told_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "findings.db"
    require_writable(path)
    require_writable(tmp_path / "new" / "findings.db")  # of which the folder above is asked
    monkeypatch.setattr("os.access", lambda place, mode: Path(place) != tmp_path)
    for ledger in (path, tmp_path / "new" / "findings.db"):
        with pytest.raises(errors.UnwritableStore, match=f"since {tmp_path} is read-only: name another with --db"):
            require_writable(ledger)
    path.touch()
    monkeypatch.setattr("os.access", lambda place, mode: Path(place) != path)
    with pytest.raises(errors.UnwritableStore, match=f"since {path} is read-only"):
        require_writable(path)
