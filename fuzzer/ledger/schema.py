"""The ledger's schema: migrations in order, tables, and the views that people read.

A table's name is singular, the view over it is plural: `faults`, `variants`, `occurrences`, `campaigns`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sqlite_utils import Database
from sqlite_utils.db import Table

from fuzzer.ledger.faults import refresh
from fuzzer.ledger.upgrade import fill_faults, join_anew, promise_anew

Migration = Callable[[Database], None]
MIGRATIONS: list[Migration] = []  # in order; the schema version of a file is the number of migrations it has had


def _migration(step: Migration) -> Migration:
    """Append a step to `MIGRATIONS`. A released step is never edited: a new one is added."""
    MIGRATIONS.append(step)
    return step


@_migration
def _findings_and_campaigns(db: Database) -> None:
    _table(db, "findings").create(
        {
            "id": str,
            "oracle": str,
            "class": str,
            "direction": str,
            "pattern": str,
            "detail": str,
            "original": str,
            "program": str,
            "place": str,
            "reproduced": int,
            "runs": int,
            "comparisons": str,
            "stages": str,
            "ablation": str,
            "campaign": str,
            "created": str,
            "triage": str,
            "note": str,
            "seen": int,
            "last_seen": str,
        },
        pk="id",
    )
    _table(db, "campaigns").create(
        {
            "id": str,
            "command": str,
            "seed": str,  # text: seeds may exceed SQLite's 64 bits
            "started": str,
            "seconds": float,
            "totals": str,
            "place": str,
        },
        pk="id",
    )


@_migration
def _add_original_detail(db: Database) -> None:
    _table(db, "findings").add_column("before", str, not_null_default="")


@_migration
def _add_diagnosis(db: Database) -> None:
    for name in ("diagnosis", "attachments"):
        _table(db, "findings").add_column(name, str, not_null_default="{}")


@_migration
def _add_faults(db: Database) -> None:
    """Three levels: an occurrence is a program that differed, a variant is a minimal program, a fault is their
    cause."""
    for statement in (*_TABLES, *_full_text("variant", _SEARCHED), *_full_text("fault", ("title", "issue", "note"))):
        db.conn.execute(statement)
    fill_faults(db)
    for name in ("triage", "seen", "last_seen"):
        db.conn.execute(f"alter table variant drop column {name}")
    for statement in _VIEWS:
        db.conn.execute(statement)


@_migration
def _add_natural(db: Database) -> None:
    """Beside the minimal program the natural one, which people are shown; JSON, null where none was found."""
    db.conn.execute("alter table variant add column natural text not null default 'null'")
    db.conn.execute("drop view variants")
    db.conn.execute(_VARIANTS_WITH_NATURAL)


@_migration
def _make_campaigns_readable(db: Database) -> None:
    """Separate columns for often read fields of a campaign's totals and place, which are long JSON."""
    db.conn.execute("drop view campaigns")
    db.conn.execute(_READABLE_CAMPAIGNS)


@_migration
def _join_anew(db: Database) -> None:
    """Join the variants again: a lost gradient belongs to a replaced composite only where the program has one."""
    join_anew(db)


@_migration
def _add_scopes(db: Database) -> None:
    """Which neighbours of a variant's program show its fault, by release and device; JSON (`scope.encode_scope`)."""
    for statement in _SCOPES:
        db.conn.execute(statement)


@_migration
def _tell_every_side(db: Database) -> None:
    """Give each fault a side, even if the side was never decided."""
    for (name,) in db.conn.execute("select id from fault").fetchall():
        refresh(db, name)


@_migration
def _represent_by_severity(db: Database) -> None:
    """Ask again whether torch promises anything about internal operators; the most severe finding represents a
    fault."""
    promise_anew(db)
    for (name,) in db.conn.execute("select id from fault").fetchall():
        refresh(db, name)


@_migration
def _count_programs_once(db: Database) -> None:
    """An occurrence is one program. The upgrade from ledgers of findings alone gave it the count of its finding, which
    grew with every copy."""
    db.conn.execute("update occurrence set times = 1 where times > 1")


@_migration
def _add_rulings(db: Database) -> None:
    """A person's merges and splits of faults, which outrank the marks of their variants."""
    for statement in _RULINGS:
        db.conn.execute(statement)


@_migration
def _join_by_writes_and_hooks(db: Database) -> None:
    """Join the variants again: leaves that are mixed up, and hooks that are dropped, are one fault under all ops. A
    variant that leaves a fault may have been all that tied another to it, hence twice."""
    join_anew(db)
    join_anew(db)


def _table(db: Database, name: str) -> Table:
    return cast(Table, db[name])


# ---------------------------------------------------------------- faults

_TABLES = (
    "alter table findings rename to variant",
    "alter table campaigns rename to campaign",
    "alter table variant add column unsupported text not null default ''",
    "alter table variant add column fault text not null default ''",
    "create index variant_fault on variant (fault)",
    """create table fault (
        id text primary key,
        title text not null,
        class text not null,
        side text not null,
        stage text not null,
        decided text not null,
        state text not null default 'new',
        issue text not null default '',
        fixed_in text not null default '',
        note text not null default '',
        created text not null)""",
    # the cause of a variant (`cause.Cause`); probe: a mark of a program that may hold more than it needs
    "create table mark (mark text not null, variant text not null, probe integer not null, "
    "primary key (mark, variant)) without rowid",
    "create index mark_variant on mark (variant)",
    # variant is '' where the suspect was recognised and not minimized
    """create table occurrence (
        id text primary key,
        fault text not null,
        variant text not null default '',
        program text not null,
        campaign text not null default '',
        torch text not null,
        device text not null,
        created text not null,
        times integer not null default 1) without rowid""",
    "create index occurrence_fault on occurrence (fault, times)",
    "create index occurrence_variant on occurrence (variant, times)",
    # shows: whether the fault reproduced on a release and device in the newest run there
    "create table life (fault text not null, torch text not null, device text not null, shows text not null, "
    "seen text not null, primary key (fault, torch, device)) without rowid",
    "create table history (fault text not null, time text not null, what text not null, who text not null, "
    "primary key (fault, time, what)) without rowid",
)

_SEARCHED = ("id", "fault", "oracle", "class", "pattern", "detail", "program", "place", "note", "diagnosis")


def _full_text(table: str, columns: tuple[str, ...]) -> list[str]:
    """The statements of `sqlite-utils enable-fts --create-triggers`, to run within the migration's transaction."""
    names = ", ".join(f'"{c}"' for c in columns)
    old, new = (", ".join(f'{which}."{c}"' for c in columns) for which in ("old", "new"))
    delete = f"insert into {table}_fts ({table}_fts, rowid, {names}) values ('delete', old.rowid, {old});"
    insert = f"insert into {table}_fts (rowid, {names}) values (new.rowid, {new});"
    return [
        f'create virtual table {table}_fts using fts5 ({names}, content="{table}")',
        f"insert into {table}_fts ({table}_fts) values ('rebuild')",
        f"create trigger {table}_ai after insert on {table} begin {insert} end",
        f"create trigger {table}_ad after delete on {table} begin {delete} end",
        f"create trigger {table}_au after update on {table} begin {delete} {insert} end",
    ]


_SHOWN_CLASS = "case when variant.unsupported = '' then variant.class else 'unsupported' end"
_VIEWS = (
    f"""create view variants as select variant.id, variant.fault, {_SHOWN_CLASS} as class, oracle, direction, pattern,
        detail, program, original, json_extract(place, '$.backend') as backend,
        json_extract(place, '$.device') as device, json_extract(place, '$.torch') as torch,
        json_extract(diagnosis, '$.side') as side, json_extract(diagnosis, '$.culprit') as culprit,
        json_extract(diagnosis, '$.stage') as stage, unsupported, campaign, created as first_seen, note,
        (select coalesce(sum(times), 0) from occurrence where occurrence.variant = variant.id) as occurrences
        from variant""",
    """create view faults as select fault.id, title, class, side, state, issue, fixed_in, fault.created as first_seen,
        (select coalesce(sum(times), 0) from occurrence where occurrence.fault = fault.id) as occurrences,
        (select count(*) from variant where variant.fault = fault.id) as variants,
        (select group_concat(distinct device) from life where life.fault = fault.id) as devices,
        (select group_concat(torch || ' ' || device, ', ') from life
            where life.fault = fault.id and shows = 'shows') as lives_on,
        stage, decided, note from fault""",
    "create view occurrences as select id, fault, variant, torch, device, created as time, times, campaign, program "
    "from occurrence",
    "create view campaigns as select id, started, seconds, command, seed, json_extract(totals, '$.programs') "
    "as programs, json_extract(place, '$.torch') as torch, json_extract(place, '$.device') as device, totals, place "
    "from campaign",
)
# as it was, and the natural program
_VARIANTS_WITH_NATURAL = _VIEWS[0].replace(
    "detail, program, ", "detail, program, json_extract(natural, '$.program') as natural, "
)
_READABLE_CAMPAIGNS = """create view campaigns as select id, started, round(seconds / 60, 1) as minutes,
    json_extract(place, '$.device') as device, json_extract(place, '$.gpu') as gpu,
    json_extract(place, '$.torch') as torch, json_extract(totals, '$.programs') as programs,
    json_extract(totals, '$.programs_per_s') as programs_per_s,
    json_extract(totals, '$.detectable_share') as detectable_share,
    (select group_concat(value || ' ' || key, ', ') from json_each(totals, '$.findings')) as new_findings, seed, command
    from campaign"""
_SCOPES = (
    "create table scope (variant text not null, torch text not null, device text not null, created text not null, "
    "told text not null, primary key (variant, torch, device)) without rowid",
    """create view scopes as select scope.variant, variant.fault, scope.torch, scope.device,
        json_extract(told, '$.summary') as summary, json_extract(told, '$.formula') as formula, scope.created as time
        from scope join variant on variant.id = scope.variant""",
    """create view neighbours as select scope.variant, scope.torch, scope.device,
        json_extract(value, '$.axis') as axis, json_extract(value, '$.value') as changed_to,
        json_extract(value, '$.outcome') as outcome, json_extract(value, '$.error') as largest_relative_error,
        json_extract(value, '$.eager') as eager, json_extract(value, '$.compiled') as compiled,
        json_extract(value, '$.why') as why, json_extract(value, '$.program') as program
        from scope, json_each(told, '$.rows')""",
)
_RULINGS = (
    # groups: the variants that belong together, as JSON; before: what an undo restores (`regroup`)
    """create table ruling (
        id text primary key,
        kind text not null,
        fault text not null,
        groups text not null,
        reason text not null default '',
        time text not null,
        who text not null,
        before text not null default 'null',
        undone text not null default '')""",
    "create view rulings as select id, fault, kind, groups, reason, time, who, undone from ruling",
)
