"""Merge and split faults as a person rules, and undo it.

These are functions of an open database, within the caller's transaction. Every refusal is a `StoreError`, raised before
anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from fuzzer.ledger import faults, rulings
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.faults import State, remember, state_of
from fuzzer.ledger.rulings import MERGE, SPLIT, Ruling
from fuzzer.ledger.states import combined

if TYPE_CHECKING:
    from sqlite_utils import Database  # slow to import, and only a type here


def merge_faults(db: Database, names: Sequence[str], time: str, who: str, reason: str = "") -> Ruling:
    """Make one fault of several: the first keeps its id, with the state of all (`states.combined`).

    Raises StoreError for fewer than two faults, and for states that contradict each other.
    """
    names = list(dict.fromkeys(names))
    if len(names) < 2:
        raise StoreError(f"{' '.join(names)} alone is no merge: name two faults or more")
    combined({name: state_of(db, name) for name in names})  # or it refuses
    ruling = Ruling(MERGE, names[0], (tuple(_members(db, *names)),), time, who, reason)
    rulings.record(db, ruling)
    _merge(db, ruling, names)
    return ruling


def split_fault(db: Database, fault: str, chosen: Collection[str], time: str, who: str, reason: str = "") -> str:
    """Make some variants of a fault a new fault, whose state is `new`; the rest keep theirs. Returns the new one's id.

    Raises StoreError if a variant is not of the fault, and if all are chosen or none.
    """
    there = _members(db, fault)
    if strange := sorted(set(chosen) - set(there)):
        raise StoreError(f"{strange[0]} is no finding of {fault}; `backfuzz show {fault}` names those there are")
    off = tuple(name for name in there if name in set(chosen))
    rest = tuple(name for name in there if name not in off)
    if not off or not rest:
        which = "all" if off else "none"
        raise StoreError(f"{which} of the {len(there)} finding(s) of {fault} would be split off: name some of them")
    ruling = Ruling(SPLIT, fault, (off, rest), time, who, reason)
    rulings.record(db, ruling)
    return _split(db, ruling, fault, off)


def newest_of(db: Database, fault: str) -> Ruling:
    """The newest merge or split of a fault that was not undone. Raises StoreError where there is none."""
    there = set(_members(db, fault))
    for ruling in reversed(rulings.standing(db)):
        if there & ruling.variants:
            return ruling
    raise StoreError(f"{fault} was neither merged nor split: there is nothing to undo")


def undo(db: Database, ruling: Ruling, time: str, who: str) -> list[str]:
    """Restore the faults that a ruling changed: ids, variants, states, lives and histories. What was added since stays
    with the fault that the ruling left. Returns the ids of the restored faults.

    Raises StoreError if a newer ruling speaks of the same variants, and if a person set a state since.
    """
    _require_newest(db, ruling)
    before = rulings.before(db, ruling)
    if before is None:  # it changed nothing here: evidence decides again
        rulings.mark_undone(db, ruling, time)
        return _join_again(db, ruling.variants)
    for name, state in before["after"].items():
        if _there(db, name) and (now := state_of(db, name)) != State(*state):
            raise StoreError(f"{name} became {now} after the {ruling.kind}: set it to {State(*state)} first, then undo")
    rulings.mark_undone(db, ruling, time)
    kept: dict[str, dict[str, Any]] = before["faults"]
    named = [name for each in kept.values() for name in each["variants"]]
    left = [fault for fault in rulings.homes(db, named) if fault not in kept]
    for name in kept:
        _restore(db, name, kept)
    for fault in left:
        if fault in before["after"]:
            _dissolve(db, fault, before["met"])
        if _there(db, fault) and not _members(db, fault):
            faults.absorb(db, next(iter(kept)), fault)
    for name in kept:
        others = [other for other in (*kept, *before["after"]) if other != name]
        told = f"{ruling.kind} {'with' if ruling.kind == MERGE else 'into'} {' '.join(dict.fromkeys(others))} undone"
        remember(db, name, time, f"{told}: {state_of(db, name)}", who)
        faults.refresh(db, name)
    return list(kept)


# ---------------------------------------------------------------- from another ledger


def take_over(db: Database, theirs: Sequence[Ruling]) -> list[Ruling]:
    """Record another ledger's rulings. Returns those that were not known, oldest first, to be carried out once their
    variants are here. An undo there is an undo here, unless a person has since built on the ruling here."""
    ours = {ruling.id: ruling for ruling in rulings.all_rulings(db)}
    for ruling in reversed(theirs):
        known = ours.get(ruling.id)
        if known is not None and ruling.undone and not known.undone:
            try:
                undo(db, known, ruling.undone, ruling.who)
            except StoreError:
                continue
    fresh = [ruling for ruling in theirs if ruling.id not in ours]
    for ruling in fresh:
        rulings.record(db, ruling)
    return [ruling for ruling in fresh if not ruling.undone]


def carry_out(db: Database, ruling: Ruling) -> None:
    """Regroup the variants here as another ledger's ruling says, unless a newer one speaks of the same variants. Faults
    whose states contradict each other stay two; the history tells."""
    if any(len(other.variants & ruling.variants) > 1 for other in _newer(db, ruling)):
        return
    if ruling.kind == SPLIT:
        off, rest = ruling.groups
        for fault in sorted({*rulings.homes(db, off)} & {*rulings.homes(db, rest)}):
            _split(db, ruling, fault, [name for name in _members(db, fault) if name in off])
        return
    names = sorted(rulings.homes(db, ruling.groups[0]), key=lambda name: name != ruling.fault)
    if len(names) < 2:
        return
    try:
        _merge(db, ruling, names)
    except StoreError:  # before anything was written
        for name in names:
            others = " ".join(other for other in names if other != name)
            remember(db, name, ruling.time, f"called one with {others}, whose state is another", ruling.who)


# ---------------------------------------------------------------- doing it


def _merge(db: Database, ruling: Ruling, names: Sequence[str]) -> None:
    """Make the first fault of all. Raises StoreError, with nothing written, for states that contradict each other."""
    keep, *others = names
    said = {name: state_of(db, name) for name in names}
    state = combined(said)
    before = {name: _snapshot(db, name) for name in names}
    for other in others:
        faults.absorb(db, keep, other)
        remember(db, keep, ruling.time, f"merged with {other} ({said[other]}){ruling.because}", ruling.who)
    faults.set_state(db, keep, state, ruling.time, ruling.who)
    faults.refresh(db, keep)
    rulings.set_before(db, ruling, {"faults": before, "after": {keep: _plain(state)}})


def _split(db: Database, ruling: Ruling, fault: str, off: Sequence[str]) -> str:
    """Give some variants of a fault a new one. Returns its id."""
    before = {fault: _snapshot(db, fault)}
    first, created, campaign = faults.one(
        db, f"select id, created, campaign from variant where id in ({_places(off)}) order by created, id", *off
    )
    made = faults.new_fault(db, first, created, campaign)
    _move(db, off, made)
    for name in off:
        faults.note_where_met(db, made, name)
    db.conn.execute(
        "update fault set created = coalesce((select min(created) from occurrence where fault = ?1), created) "
        "where id = ?1",
        [fault],
    )
    told = f"{' '.join(off)}{ruling.because}"
    remember(db, fault, ruling.time, f"split: {made} took {told}", ruling.who)
    remember(db, made, ruling.time, f"split from {fault} ({state_of(db, fault)}) with {told}", ruling.who)
    for name in (fault, made):
        faults.refresh(db, name)
    after = {name: _plain(state_of(db, name)) for name in (fault, made)}
    more = rulings.before(db, ruling) or {"faults": {}, "after": {}, "met": []}  # of another fault, split alike
    met = more["met"] + _rows(db, "life", made)
    rulings.set_before(db, ruling, {"faults": more["faults"] | before, "after": more["after"] | after, "met": met})
    return made


def _members(db: Database, *names: str) -> list[str]:
    """The variants of faults, oldest first."""
    found = f"select id from variant where fault in ({_places(names)}) order by created, id"
    return [name for (name,) in db.conn.execute(found, list(names))]


def _move(db: Database, variants: Sequence[str], fault: str) -> None:
    """Make variants, and the programs that showed them, a fault's."""
    for table, key in (("variant", "id"), ("occurrence", "variant")):
        db.conn.execute(f"update {table} set fault = ? where {key} in ({_places(variants)})", [fault, *variants])


def _places(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _there(db: Database, fault: str) -> bool:
    return faults.one(db, "select count(*) from fault where id = ?", fault) == (1,)


def _plain(state: State) -> list[str]:
    return [state.name, state.issue, state.note, state.fixed_in]


# ---------------------------------------------------------------- undoing it

_ROW = ("title", "class", "side", "stage", "decided", "state", "issue", "fixed_in", "note", "created")
_TABLES = {"life": "torch, device, shows, seen", "history": "time, what, who"}


def _snapshot(db: Database, fault: str) -> dict[str, Any]:
    """All that the ledger holds of a fault, as plain values. loose: occurrences that name no variant."""
    [row] = db.conn.execute(f"select {', '.join(_ROW)} from fault where id = ?", [fault]).fetchall()
    loose = db.conn.execute("select id from occurrence where fault = ? and variant = ''", [fault]).fetchall()
    return {
        "row": list(row),
        "variants": _members(db, fault),
        "loose": [name for (name,) in loose],
        **{table: _rows(db, table, fault) for table in _TABLES},
    }


def _rows(db: Database, table: str, fault: str) -> list[list[str]]:
    return [list(row) for row in db.conn.execute(f"select {_TABLES[table]} from {table} where fault = ?", [fault])]


def _restore(db: Database, name: str, kept: dict[str, dict[str, Any]]) -> None:
    """Make a fault what its snapshot says; `kept` holds those of all that the ruling changed. Rows of its life and
    history that are in no snapshot were added since, and stay."""
    own = kept[name]
    since = {
        table: [row for row in _rows(db, table, name) if not any(row in each[table] for each in kept.values())]
        for table in _TABLES
    }
    if _there(db, name):
        changes = ", ".join(f"{column} = ?" for column in _ROW)
        db.conn.execute(f"update fault set {changes} where id = ?", [*own["row"], name])
    else:
        places = ", ".join("?" * (len(_ROW) + 1))
        db.conn.execute(f"insert into fault (id, {', '.join(_ROW)}) values ({places})", [name, *own["row"]])
    _move(db, own["variants"], name)
    db.conn.execute(f"update occurrence set fault = ? where id in ({_places(own['loose'])})", [name, *own["loose"]])
    for table in _TABLES:
        db.conn.execute(f"delete from {table} where fault = ?", [name])
    for row in own["life"] + since["life"]:
        faults.note_life(db, name, *row)
    for row in own["history"] + since["history"]:
        remember(db, name, *row)


def _dissolve(db: Database, made: str, met: list[list[str]]) -> None:
    """Undo the making of a fault by a split: evidence decides again about the variants that joined it since, and the
    rows of its life that the split wrote are gone."""
    _join_again(db, _members(db, made))
    for row in met:
        db.conn.execute(f"delete from life where fault = ? and ({_TABLES['life']}) = (?, ?, ?, ?)", [made, *row])


def _join_again(db: Database, variants: Collection[str]) -> list[str]:
    """Join variants by their marks. Returns the ids of their faults."""
    for name in sorted(variants):
        marks = db.conn.execute("select mark, probe from mark where variant = ?", [name]).fetchall()
        found = db.conn.execute("select fault, created from variant where id = ?", [name]).fetchone()
        if found is None:  # the ruling came from another ledger, its variant did not
            continue
        own, created = found
        fault = faults.join(
            db, name, created, [m for m, probe in marks if not probe], [m for m, probe in marks if probe]
        )
        for changed in {own, fault}:
            faults.refresh(db, changed)
    return rulings.homes(db, variants)


def _require_newest(db: Database, ruling: Ruling) -> None:
    """Raise StoreError if a newer ruling speaks of the same variants."""
    for newer in reversed(_newer(db, ruling)):
        if shared := rulings.homes(db, newer.variants & ruling.variants):
            raise StoreError(
                f"a newer {newer.kind} speaks of the same findings: first `backfuzz triage --undo {shared[0]}`"
            )


def _newer(db: Database, ruling: Ruling) -> list[Ruling]:
    """The rulings that hold and are newer than this one, oldest first."""
    holding = rulings.standing(db)
    return holding[[other.id for other in holding].index(ruling.id) + 1 :]
