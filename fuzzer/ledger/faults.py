"""Faults in the ledger: which variants share one, its state and history, and where it lives.

These are functions of an open database, within the caller's transaction; other modules use `store.Store`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fuzzer.judgement.verdict import CLASSES, UNSUPPORTED, Finding, Signature
from fuzzer.ledger import rulings
from fuzzer.ledger.cause import cause_of
from fuzzer.ledger.diagnosed import NO_MORE
from fuzzer.ledger.query import Wanted, read_rows
from fuzzer.ledger.rows import DIAGNOSED, decode, decode_comparisons, from_row, to_row
from fuzzer.ledger.scope import decode_scope
from fuzzer.ledger.severity import MOST_SEVERE, label, severity
from fuzzer.ledger.title import title

if TYPE_CHECKING:
    from sqlite_utils import Database  # slow to import, and only a type here

STATES = ("new", "confirmed", "known", "reported", "fixed", "not-a-fault")
OPEN = STATES[:4]
SHOWS, GONE = "shows", "gone"
SEARCHED = "searched the tracker for: "  # in a fault's history


@dataclass(frozen=True)
class State:
    """A person's judgement of a fault: one of STATES, and its details.

    issue     URLs, with spaces between them.  note   a reason, or other remarks.
    fixed_in  the first release without it.
    """

    name: str
    issue: str = ""
    note: str = ""
    fixed_in: str = ""

    def __str__(self) -> str:
        told = {"known": self.issue, "reported": self.issue, "fixed": self.fixed_in, "not-a-fault": self.note}
        return f"{self.name} {told.get(self.name, '')}".strip()


@dataclass(frozen=True)
class Fault:
    """A cause in torch, as far as the ledger knows it.

    title      made anew from what is stored whenever the ledger is read (`title.title`).
    verdict, side, stage, decided   class, diagnosis and cause (`cause.Cause`) of the variant that represents it;
    severity   its points (`severity.Severity`).
    first_seen   the time of its first occurrence;  occurrences   programs that showed it;  variants   minimal programs.
    lives_on     "RELEASE DEVICE" where it reproduced in the newest run there;  gone_on   where it did not;
    unsaid       where the newest run decided neither, and why: "2.13.0 cpu: shows something else: crashes".
    history      (time, event, person), oldest first.
    """

    id: str
    title: str
    verdict: str
    side: str
    stage: str
    decided: str
    first_seen: str
    occurrences: int
    variants: int
    state: State
    lives_on: tuple[str, ...] = ()
    gone_on: tuple[str, ...] = ()
    history: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    unsaid: tuple[str, ...] = ()
    severity: int = MOST_SEVERE

    @property
    def searched(self) -> tuple[str, ...]:
        """The searches of the tracker for this fault, oldest first."""
        return tuple(what.removeprefix(SEARCHED) for _, what, _ in self.history if what.startswith(SEARCHED))


def encode_fault(fault: Fault) -> dict[str, Any]:
    """A fault as plain values for JSON; its state's parts stand beside the others."""
    fields = asdict(fault)
    state, verdict = fields.pop("state"), fields.pop("verdict")
    return {**fields, "class": verdict, "severity": label(fault.severity), "state": state.pop("name"), **state}


# ---------------------------------------------------------------- joining


def enter(db: Database, finding: Finding, campaign: str | None = None) -> str:
    """Count a finding's program as an occurrence, and put its stored variant into a fault. Returns the fault's id."""
    fault = assign(db, finding)
    note_occurrence(db, fault, finding, campaign)
    return fault


def assign(db: Database, finding: Finding) -> str:
    """The fault of a stored variant by its present evidence; its former fault is left if nothing else ties it to that
    one."""
    cause = cause_of(finding)
    (own,) = one(db, "select fault from variant where id = ?", finding.id)
    fault = join(db, finding.id, finding.created, cause.marks, cause.probes)
    for changed in {own, fault} - {""}:
        refresh(db, changed)
    return fault


def set_diagnosis(db: Database, finding: Finding, told: Finding) -> None:
    """Store the new diagnosis (`told`) of a known variant, which may move the variant to another fault."""
    held = {name: getattr(told, name) for name in DIAGNOSED}
    changes = ", ".join(f"{name} = ?" for name in held)
    db.conn.execute(f"update variant set {changes} where id = ?", [*to_row(held).values(), finding.id])
    assign(db, replace(finding, **held))


def alike(db: Database, finding: Finding) -> str | None:
    """The fault that has this variant, or that the variant would join by its evidence; None where there is none."""
    own = db.conn.execute("select fault from variant where id = ?", [finding.id]).fetchone()
    cause = cause_of(finding)
    return next(iter([*(own or ()), *_tied(db, finding.id, cause.marks, cause.probes)]), None)


def join(db: Database, variant: str, time: str, marks: Collection[str], probes: Collection[str]) -> str:
    """Give a stored variant its marks, and the fault to which these tie it; the faults' titles are not updated.

    A person's ruling on the variant outranks its marks: it stays where that has put it.
    """
    own, campaign = one(db, "select fault, campaign from variant where id = ?", variant)
    db.conn.execute("delete from mark where variant = ?", [variant])
    alike = _tied(db, variant, marks, probes)
    rows = [(name, variant, 0) for name in marks] + [(name, variant, 1) for name in set(probes) - set(marks)]
    db.conn.executemany("insert into mark values (?, ?, ?)", rows)
    if own and rulings.word_on(db, variant) != (set(), set()):
        alike = [own]
    elif own and one(db, "select count(*) from variant where fault = ?", own) == (1,):
        alike = [*alike, own]
    fault = _unite(db, alike, time) if alike else new_fault(db, variant, time, campaign)
    if own in alike and one(db, "select count(*) from fault where id = ?", own) == (1,):
        fault = own  # people gave the two different states: none loses its last variant to another
    db.conn.execute("update variant set fault = ?1 where id = ?2 and fault <> ?1", [fault, variant])
    db.conn.execute("update occurrence set fault = ?1 where variant = ?2 and fault <> ?1", [fault, variant])
    if own not in ("", fault):
        note_where_met(db, fault, variant)
    return fault


def note_where_met(db: Database, fault: str, variant: str) -> None:
    """Note that a fault lives wherever programs showed its variant."""
    met = "select torch, device, max(created) from occurrence where variant = ? group by torch, device"
    for torch, device, time in db.conn.execute(met, [variant]).fetchall():
        note_life(db, fault, torch, device, SHOWS, time)


def _tied(db: Database, variant: str, marks: Collection[str], probes: Collection[str]) -> list[str]:
    """The faults that a variant ties together, oldest first: the one to which a person's ruling gives it, else those
    that share its marks. Of two that a person keeps apart, the one that shares more marks is left, or the older."""
    fellows, strangers = rulings.word_on(db, variant)
    if placed := rulings.homes(db, fellows):
        return placed[:1]
    far = set(rulings.homes(db, strangers))
    alike = [fault for fault in _alike(db, marks, probes) if fault not in far]
    apart = rulings.kept_apart(db, alike)
    if not apart:
        return alike
    kept = list[str]()
    for fault in sorted(alike, key=lambda fault: -_shared(db, fault, [*marks, *probes])):
        kept += [] if any(frozenset((fault, other)) in apart for other in kept) else [fault]
    return [fault for fault in alike if fault in kept]


def _shared(db: Database, fault: str, marks: Collection[str]) -> int:
    """How many of these marks a variant of the fault has."""
    found = (
        "select count(distinct mark) from mark join variant on variant.id = mark.variant where fault = ? and mark in"
    )
    return int(one(db, f"{found} ({_places(marks)})", fault, *marks)[0])


def _alike(db: Database, marks: Collection[str], probes: Collection[str]) -> list[str]:
    """The faults of variants that share these marks, oldest first."""
    found = "select fault from mark join variant on variant.id = mark.variant where mark in"
    return [
        name
        for (name,) in db.conn.execute(
            f"select id from fault where id in ({found} ({_places(marks)})) or id in ({found} ({_places(probes)}) "
            "and probe = 0) order by created, id",
            [*marks, *probes],
        )
    ]


def _places(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def new_fault(db: Database, variant: str, time: str, campaign: str) -> str:
    fault = f"F{variant[:7]}"
    while one(db, "select count(*) from fault where id = ?", fault) != (0,):
        fault = f"F{hashlib.sha256(fault.encode()).hexdigest()[:7]}"
    db.conn.execute(
        "insert into fault (id, title, class, side, stage, decided, created) values (?, '', '', '', '', '', ?)",
        [fault, time],
    )
    remember(db, fault, time, f"met as {variant}", campaign)
    return fault


def _unite(db: Database, faults: list[str], time: str) -> str:
    """Make one fault of several that a variant ties together: the one with a state set by a person, else the oldest.

    Two faults to which people gave different states, issues or releases stay two.
    """

    def said(fault: str) -> State:
        return replace(state_of(db, fault), note="")

    told = [f for f in faults if one(db, "select state from fault where id = ?", f) != ("new",)]
    keep = (told or faults)[0]
    for other in faults:
        if other != keep and (other not in told or said(other) == said(keep)):
            absorb(db, keep, other)
            remember(db, keep, time, f"one with {other}", "")
    return keep


def absorb(db: Database, keep: str, other: str) -> None:
    """Make the variants, occurrences and history of another fault this one's."""
    for table in ("variant", "occurrence"):
        db.conn.execute(f"update {table} set fault = ? where fault = ?", [keep, other])
    for torch, device, shows, seen in db.conn.execute(
        "select torch, device, shows, seen from life where fault = ?", [other]
    ).fetchall():
        note_life(db, keep, torch, device, shows, seen)
    db.conn.execute("insert or ignore into history select ?, time, what, who from history where fault = ?",
                    [keep, other])  # fmt: skip
    db.conn.execute(
        "update fault set created = min(created, (select created from fault where id = ?)) where id = ?", [other, keep]
    )
    for table, key in (("life", "fault"), ("history", "fault"), ("fault", "id")):
        db.conn.execute(f"delete from {table} where {key} = ?", [other])


def part_of(db: Database, fault: str) -> str:
    """The fault that a fault which is no more became part of; "" where the history knows of none."""
    told = f"select fault from history where what = 'one with {fault}' or what like 'merged with {fault} %'"
    return next((name for (name,) in db.conn.execute(f"{told} order by time desc")), "")


def refresh(db: Database, fault: str) -> None:
    """Update a fault's class, side, stage and cause from the variant that represents it, and the title that searches
    and people's own queries read, which knows no scope. Does nothing where no such fault exists."""
    if one(db, "select count(*) from fault where id = ?", fault) == (0,):
        return
    finding = representative(db, fault)
    cause = cause_of(finding)
    values = [title(finding.grown), finding.verdict, finding.side, cause.stage, cause.decided]
    if one(db, "select title, class, side, stage, decided from fault where id = ?", fault) != tuple(values):
        db.conn.execute(
            "update fault set title = ?, class = ?, side = ?, stage = ?, decided = ? where id = ?", [*values, fault]
        )


class _Ranked(NamedTuple):
    """A variant among those of its fault: they sort so that the one that represents the fault comes first."""

    gone: bool  # it reproduces no more
    severity: int
    verdict: int  # the place of its class in CLASSES
    elsewhere: bool  # it was found on another device than a CPU, which every machine has
    backward: bool  # it shows in a gradient alone; a wrong result has a wrong gradient, too
    size: int
    created: str
    id: str
    fault: str


def representative(db: Database, fault: str) -> Finding:
    """The variant that represents a fault: of those that still reproduce the most severe, of these the worst class,
    preferably found on a CPU and in the forward, and the shortest program."""
    return _variant(db, min(_ranked(db, fault)).id)


def variants(db: Database, fault: str) -> list[Finding]:
    """The variants of a fault, the one that represents it first."""
    return [_variant(db, row.id) for row in sorted(_ranked(db, fault))]


def representatives(db: Database) -> dict[str, Finding]:
    """The representative of each fault, by the fault's id."""
    return {fault: _variant(db, row.id) for fault, row in _first(db).items()}


def _first(db: Database) -> dict[str, _Ranked]:
    """The variant that represents each fault, by the fault's id."""
    return {row.fault: row for row in sorted(_ranked(db), reverse=True)}


_FACTS = (
    f"select coalesce(json_extract(diagnosis, '$.side') like '{NO_MORE}%', 0), "
    "coalesce(json_extract(place, '$.device'), ''), created, id, fault, program, class, oracle, direction, pattern, "
    "coalesce(json_extract(comparisons, '$[0]'), ''), unsupported from variant"
)


def _ranked(db: Database, fault: str = "") -> list[_Ranked]:
    """The variants of a fault, or all of them."""
    rows = db.conn.execute(f"{_FACTS} where fault = ?", [fault]) if fault else db.conn.execute(_FACTS)
    found = []
    for gone, device, created, id, own, program, verdict, *facts, unsupported in rows:
        points = _points(program, verdict, *facts, unsupported)
        place = CLASSES.index(UNSUPPORTED if unsupported else verdict)
        elsewhere, backward = not device.startswith("cpu"), facts[1] == "backward"
        found.append(_Ranked(bool(gone), points, place, elsewhere, backward, len(program), created, id, own))
    return found


@functools.lru_cache(10_000)
def _points(program: str, verdict: str, oracle: str, direction: str, pattern: str, worst: str, unsupported: str) -> int:
    """The severity of a variant, from its columns."""
    signature = Signature(oracle, verdict, direction, pattern)
    return severity(signature, program, decode_comparisons(f"[{worst}]" if worst else "[]"), unsupported).points


# Without long texts, of which a title says nothing.
_TITLED = (
    "select id, oracle, class, direction, pattern, detail, '' as original, program, place, reproduced, runs, "
    "comparisons, stages, ablation, campaign, created, note, before, diagnosis, '{}' as attachments, unsupported, "
    "natural from variant where id in (select value from json_each(?))"
)


def _titles(db: Database, chosen: Collection[str]) -> dict[str, str]:
    """The titles of faults, by the ids of the variants that represent them."""
    cursor = db.conn.execute(_TITLED, [json.dumps(list(chosen))])
    names, rows = tuple(column[0] for column in cursor.description), cursor.fetchall()
    scopes = dict(db.conn.execute("select variant, told from scope order by created").fetchall())
    return {row[0]: _title(names, row, scopes.get(row[0], "")) for row in rows}


@functools.lru_cache(10_000)
def _title(names: tuple[str, ...], row: tuple[Any, ...], scope: str) -> str:
    """The title of a variant, from its columns."""
    finding = decode(from_row(dict(zip(names, row, strict=True))))
    return title(finding.grown, decode_scope(json.loads(scope)) if scope else None)


def _variant(db: Database, name: str) -> Finding:
    return decode(from_row(read_rows(db, Wanted(id=name))[0]))


def met_in(db: Database, campaign: str) -> dict[str, tuple[int, str]]:
    """For each fault that programs of a campaign showed: how many did, and when the first did."""
    counted = "select fault, sum(times), min(created) from occurrence where campaign = ? group by fault"
    return {fault: (times, first) for fault, times, first in db.conn.execute(counted, [campaign])}


# ---------------------------------------------------------------- occurrences, life, state


def release(torch: str) -> str:
    """A version of torch without its build: `2.13.0+cu130` gives `2.13.0`."""
    return torch.split("+")[0]


def shown_on(finding: Finding) -> set[str]:
    """The releases and devices, as `2.13.0 cpu`, on which a finding was found or its diagnosis saw it."""
    if finding.diagnosis.get("side", "").startswith(NO_MORE):
        return set()
    told = [(finding.place.get("torch", ""), finding.place.get("device", "cpu"))]
    told += re.findall(r"^torch (\S+), [^@]*@(\w+)", finding.diagnosis.get("place", ""))
    return {f"{release(torch)} {device.split(':')[0]}" for torch, device in told}


def note_occurrence(db: Database, fault: str, finding: Finding, campaign: str | None = None) -> None:
    """Count one program, a finding's, that showed a fault. In another run of the same campaign it counts again."""
    torch, device = release(finding.place.get("torch", "")), finding.place.get("device", "").split(":")[0]
    campaign = finding.campaign if campaign is None else campaign
    name = hashlib.sha256(f"{finding.id} {campaign} {finding.created} {finding.original}".encode()).hexdigest()[:16]
    db.conn.execute(
        "insert into occurrence values (?, ?, ?, ?, ?, ?, ?, ?, 1) on conflict (id) do update set times = times + 1",
        [name, fault, finding.id, finding.original, campaign, torch, device, finding.created],
    )
    db.conn.execute("update fault set created = ?1 where id = ?2 and created > ?1", [finding.created, fault])
    note_life(db, fault, torch, device, SHOWS, finding.created)


def note_life(db: Database, fault: str, torch: str, device: str, shows: str, time: str) -> None:
    """Note whether a fault reproduced on a release and device. The newest answer counts; a reason for having no answer
    is kept only while there is none."""
    db.conn.execute(
        "insert into life values (?, ?, ?, ?, ?) on conflict (fault, torch, device) do update "
        "set shows = excluded.shows, seen = excluded.seen where case when excluded.shows in ('shows', 'gone') "
        "= (shows in ('shows', 'gone')) then excluded.seen > seen else excluded.shows in ('shows', 'gone') end",
        [fault, torch, device, shows, time],
    )


def set_state(db: Database, fault: str, state: State, time: str, who: str) -> None:
    """Set a person's judgement of a fault, and add it to the fault's history."""
    before = state_of(db, fault)
    if before == state:
        return
    db.conn.execute(
        "update fault set state = ?, issue = ?, note = ?, fixed_in = ? where id = ?",
        [state.name, state.issue, state.note, state.fixed_in, fault],
    )
    note = f": {state.note}" if state.note and state.note not in str(state) else ""
    remember(db, fault, time, f"{before} -> {state}{note}", who)


def state_of(db: Database, fault: str) -> State:
    return State(*one(db, "select state, issue, note, fixed_in from fault where id = ?", fault))


def remember(db: Database, fault: str, time: str, what: str, who: str) -> None:
    db.conn.execute("insert or ignore into history values (?, ?, ?, ?)", [fault, time, what, who])


def one(db: Database, question: str, *values: Any) -> tuple[Any, ...]:
    """The one row of a query's result."""
    found: tuple[Any, ...] = db.conn.execute(question, list(values)).fetchone()
    return found


# ---------------------------------------------------------------- reading

_FAULTS = """select fault.id, title, class, side, stage, decided, created, coalesce(counted.times, 0),
    coalesce(held.variants, 0), state, issue, note, fixed_in
    from fault
    left join (select fault, sum(times) as times from occurrence group by fault) counted on counted.fault = fault.id
    left join (select fault, count(*) as variants from variant group by fault) held on held.fault = fault.id
    order by created, fault.id"""


def read_faults(db: Database) -> list[Fault]:
    """All faults, oldest first."""
    lives: dict[tuple[str, str], list[str]] = {}
    unsaid: dict[str, list[str]] = {}
    for fault, place, shows in db.conn.execute(
        "select fault, torch || ' ' || device, shows from life order by torch, device"
    ):
        lives.setdefault((fault, shows), []).append(place)
        if shows not in (SHOWS, GONE):
            unsaid.setdefault(fault, []).append(f"{place}: {shows}")
    told: dict[str, list[tuple[str, str, str]]] = {}
    for fault, time, what, who in db.conn.execute("select fault, time, what, who from history order by time"):
        told.setdefault(fault, []).append((time, what, who))
    first, found = _first(db), []
    titles = _titles(db, [held.id for held in first.values()])
    for row in db.conn.execute(_FAULTS).fetchall():
        id, state = row[0], State(*row[9:])
        named = titles[first[id].id] if id in first else row[1]
        shows, gone = (tuple(lives.get((id, said), ())) for said in (SHOWS, GONE))
        more = tuple(told.get(id, ())), tuple(unsaid.get(id, ()))
        points = first[id].severity if id in first else MOST_SEVERE
        found.append(Fault(id, named, *row[2:9], state, shows, gone, *more, points))  # type: ignore[call-arg]
    return found
