"""The ledger: faults, their variants and occurrences, and the campaigns that found them, in one SQLite file.

The file is tracked in git, so it is written only when something is added or changed: a store that is opened, read and
closed stays byte-identical, and the first write creates a missing one. One writer at a time, default journal mode.
Every error is a `StoreError` whose message is one line for people; none of them loses stored data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger import faults, file, regroup, rulings
from fuzzer.ledger.checkout import LEDGER
from fuzzer.ledger.errors import (
    AmbiguousFinding,
    CorruptStore,
    MissingStore,
    StoreError,
    UnknownFinding,
    UnwritableStore,
    row_errors,
    store_errors,
)
from fuzzer.ledger.faults import SEARCHED, STATES, Fault, State
from fuzzer.ledger.merge import Merged, merge
from fuzzer.ledger.proposals import Proposal, proposals
from fuzzer.ledger.query import Wanted, read_rows
from fuzzer.ledger.recognise import Known, known_fault
from fuzzer.ledger.rows import DIAGNOSED, decode, encode, encode_natural, from_row, require_verified, to_row
from fuzzer.ledger.scope import Scope, decode_scope, encode_scope


@dataclass(frozen=True)
class CampaignRecord:
    """One run of `backfuzz fuzz`. `totals` is the JSON object of the run's last line, and its progress; `seconds` is
    wall time."""

    id: str
    command: str
    seed: int
    started: str
    seconds: float = 0.0
    totals: dict[str, Any] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)


class Store:
    """Faults, findings and campaigns of one file. Made by `open_store`; close it, or use it in a `with` block."""

    def __init__(self, path: Path, db: Database | None, current: bool = True):
        self.path = path
        self._db = db
        self._current = current  # else `db` is a copy in memory with the newest schema

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._db is not None:
            self._db.conn.close()
            self._db = None

    # ------------------------------------------------------------ variants

    def add(self, finding: Finding) -> bool:
        """Store a verified finding and join it to its fault. False if its id was known: then one more occurrence is
        counted."""
        require_verified(finding)
        with self._writing() as db:
            known = faults.one(db, "select count(*), max(fault) from variant where id = ?", finding.id)
            if known[0]:
                faults.note_occurrence(db, known[1], finding)
            else:
                file.put(db, "variant", to_row(encode(finding)))
                faults.enter(db, finding)
            return not known[0]

    def get(self, prefix: str) -> Finding:
        """The finding with this id, or the only one whose id begins so; for a fault's id the one that represents it."""
        prefix = self._meant(prefix)
        with self._reading() as db:
            if prefix.startswith("F") and db is not None:
                return faults.representative(db, self.fault(prefix).id)
            name = self._find(db, "variant", prefix, "[0-9a-f]{1,10}")
            assert db is not None  # else nothing is found
            return decode(from_row(read_rows(db, Wanted(id=name))[0]))

    def fault_of(self, prefix: str) -> Fault:
        """The fault with this id, or the fault of the finding with this id."""
        prefix = self._meant(prefix)
        if prefix.startswith("F"):
            return self.fault(prefix)
        name = self.get(prefix).id
        with self._reading() as db:
            assert db is not None  # else there is no such finding
            return self.fault(faults.one(db, "select fault from variant where id = ?", name)[0])

    def seen(self, prefix: str) -> int:
        """How many programs have shown this finding."""
        name = self.get(prefix).id
        with self._reading() as db:
            assert db is not None  # else there is no such finding
            return int(faults.one(db, "select coalesce(sum(times), 0) from occurrence where variant = ?", name)[0])

    def list(self, wanted: Wanted = Wanted()) -> list[Finding]:  # noqa: B008 (frozen)
        """The findings that these filters admit, oldest first; all by default."""
        with self._reading() as db:
            return [decode(from_row(row)) for row in read_rows(db, wanted)] if db is not None else []

    def ids(self) -> set[str]:
        """The ids of all findings, none of which is read."""
        return {row["id"] for row in self.rows(Wanted(), "id")}

    def rows(self, wanted: Wanted, columns: str) -> Iterator[dict[str, Any]]:
        """Some columns, as stored, of the findings that these filters admit: for long lists."""
        with self._reading() as db:
            yield from read_rows(db, wanted, columns) if db is not None else []

    def set_diagnosis(self, finding: Finding) -> bool:
        """Store stages, ablation, diagnosis and attachments of a known finding. False if nothing changed.

        The new evidence may move the finding to another fault.
        """
        known = self.get(finding.id)
        changed = replace(known, **{name: getattr(finding, name) for name in DIAGNOSED})
        if repr(changed) == repr(known):  # nan differs from itself
            return False
        with self._writing() as db:
            faults.set_diagnosis(db, known, finding)
        return True

    def set_natural(self, finding: Finding) -> bool:
        """Store the natural program of a known finding. False if it is the stored one."""
        known = self.get(finding.id)
        if repr(known.natural) == repr(finding.natural):  # nan differs from itself
            return False
        with self._writing() as db:
            file.put(db, "variant", {"id": known.id, **to_row({"natural": encode_natural(finding.natural)})})
            faults.refresh(db, faults.one(db, "select fault from variant where id = ?", known.id)[0])
        return True

    def set_scope(self, scope: Scope) -> None:
        """Store the scope of a known finding, in place of the one stored for that release and device."""
        name = self.get(scope.finding).id
        values = [name, scope.torch, scope.device, scope.created, json.dumps(encode_scope(scope))]
        with self._writing() as db:
            db.conn.execute("insert or replace into scope values (?, ?, ?, ?, ?)", values)

    def scopes(self, prefix: str) -> tuple[Scope, ...]:
        """The scopes of a finding, the newest first; for a fault's id those of all its findings."""
        with self._reading() as db:
            if db is None:
                return ()
            prefix = self._meant(prefix)
            by_fault = prefix.startswith("F")
            name = self.fault(prefix).id if by_fault else self.get(prefix).id
            which = "variant in (select id from variant where fault = ?)" if by_fault else "variant = ?"
            found = db.conn.execute(f"select told from scope where {which} order by created desc, variant", [name])
            return tuple(decode_scope(json.loads(told)) for (told,) in found.fetchall())

    def newest_scopes(self) -> dict[str, Scope]:
        """The newest scope of every finding that has one, by the finding's id."""
        with self._reading() as db:
            found = db.conn.execute("select variant, told from scope order by created") if db is not None else ()
            return {variant: decode_scope(json.loads(told)) for variant, told in found}

    # ------------------------------------------------------------ faults

    def faults(self) -> tuple[Fault, ...]:
        """All faults, oldest first."""
        with self._reading() as db:
            return tuple(faults.read_faults(db)) if db is not None else ()

    def fault(self, prefix: str) -> Fault:
        """The fault with this id, or the only one whose id begins so."""
        with self._reading() as db:
            name = self._find(db, "fault", self._meant(prefix), "F[0-9a-f]{0,7}")
        return next(fault for fault in self.faults() if fault.id == name)

    def fault_alike(self, finding: Finding) -> str | None:
        """The id of the fault that has this finding, or that the finding would join; None where there is none."""
        with self._reading() as db:
            return faults.alike(db, finding) if db is not None else None

    def known_faults(self) -> tuple[Known, ...]:
        """All faults in the form with which suspects are compared (`recognise`)."""
        held: dict[str, list[Finding]] = {}
        with row_errors(self.path):
            for row in self.rows(Wanted(), "*"):
                held.setdefault(row["fault"], []).append(decode(from_row(row)))
            return tuple(known for fault, variants in held.items() for known in known_fault(fault, variants))

    def variants(self, fault: str) -> tuple[Finding, ...]:
        """The findings of a fault, by its id, the one that represents it first."""
        with self._reading() as db:
            return tuple(faults.variants(db, fault)) if db is not None else ()

    def representatives(self) -> dict[str, Finding]:
        """The finding that represents each fault, by the fault's id."""
        with self._reading() as db:
            return faults.representatives(db) if db is not None else {}

    def met_in(self, campaign: str) -> dict[str, tuple[int, str]]:
        """For each fault that programs of a campaign showed, by id: how many did, and when the first did."""
        with self._reading() as db:
            return faults.met_in(db, campaign) if db is not None else {}

    def triage(self, prefix: str, state: State, time: str, who: str, searched: str = "") -> Fault:
        """Set the state of a fault, or of a finding's fault, and note a search of the tracker. Returns the changed
        fault."""
        if state.name not in STATES:
            raise StoreError(f"unknown state {state.name!r}; known are {', '.join(STATES)}")
        fault = self.fault_of(prefix)
        if fault.state != state or searched:
            with self._writing() as db:
                faults.set_state(db, fault.id, state, time, who)
                if searched:
                    faults.remember(db, fault.id, time, SEARCHED + searched, who)
        return self.fault(fault.id)

    def merge_faults(self, prefixes: Sequence[str], time: str, who: str, reason: str = "") -> Fault:
        """Make one fault of several (`regroup.merge_faults`): the first keeps its id. Returns it."""
        names = [self.fault_of(prefix).id for prefix in prefixes]
        with self._writing() as db:
            regroup.merge_faults(db, names, time, who, reason)
        return self.fault(names[0])

    def split_fault(
        self, prefix: str, findings: Sequence[str], time: str, who: str, reason: str = ""
    ) -> tuple[Fault, Fault]:
        """Make some findings of a fault a fault of their own (`regroup.split_fault`). Returns the old fault and the
        new."""
        fault = self.fault_of(prefix).id
        with self._reading() as db:
            names = [self._find(db, "variant", self._meant(name), "[0-9a-f]{1,10}") for name in findings]
        with self._writing() as db:
            made = regroup.split_fault(db, fault, names, time, who, reason)
        return self.fault(fault), self.fault(made)

    def undo_ruling(self, prefix: str, time: str, who: str) -> tuple[Fault, ...]:
        """Undo the newest merge or split of a fault (`regroup.undo`). Returns the faults that there were before."""
        fault = self.fault_of(prefix).id
        with self._writing() as db:
            names = regroup.undo(db, regroup.newest_of(db, fault), time, who)
        return tuple(self.fault(name) for name in names)

    def proposals(self) -> Sequence[Proposal]:
        """The merges and splits that the ledger's facts suggest, the most urgent fault first."""
        found = self.faults()
        with self._reading() as db:
            if db is None:
                return []
            held = {fault.id: faults.variants(db, fault.id) for fault in found}
            return proposals(found, held, self.newest_scopes(), rulings.kept_apart(db, held))

    def note_life(self, fault: str, torch: str, device: str, shows: str, time: str) -> None:
        """Note the result of a run of the fault on a release and device: faults.SHOWS, GONE, or a reason for
        neither."""
        with self._writing() as db:
            faults.note_life(db, fault, faults.release(torch), device, shows, time)

    def merge(self, other: Store) -> Merged:
        """Take over the contents of another ledger. Returns the counts of new rows; a second merge adds nothing."""
        with other._reading() as theirs:
            if theirs is None:
                return Merged(0, 0, 0, 0)
            with self._writing() as db:
                return merge(db, theirs)

    # ------------------------------------------------------------ campaigns

    def add_campaign(self, campaign: CampaignRecord) -> None:
        """Store a campaign, or replace what was stored under its id."""
        with self._writing() as db:
            file.put(db, "campaign", to_row(asdict(campaign)) | {"seed": str(campaign.seed)})

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """All campaigns, oldest first."""
        with self._reading() as db:
            rows = [] if db is None else db["campaign"].rows_where(order_by="started, id")
            return tuple(CampaignRecord(**from_row(row) | {"seed": int(row["seed"])}) for row in rows)

    # ------------------------------------------------------------ the file

    def _meant(self, reference: str) -> str:
        """The stored spelling of an id, whatever its case: a fault's begins with F, and so does f where no finding's id
        begins with the reference."""
        name = reference.lower()
        if not re.fullmatch("f[0-9a-f]{0,7}", name):
            return name if re.fullmatch("[0-9a-f]+", name) else reference
        with self._reading() as db:
            found = db.conn.execute("select 1 from variant where id glob ?", [name + "*"]).fetchone() if db else None
        return name if found and not reference.startswith("F") else f"F{name[1:]}"

    def _find(self, db: Database | None, table: str, prefix: str, ids: str) -> str:
        """The only id of a table that begins with this prefix."""
        kind = "finding" if table == "variant" else table
        if not re.fullmatch(ids, prefix):
            raise UnknownFinding(
                f"{prefix!r} is no {kind}'s id: a finding's is up to 10 hexadecimal digits, a fault's F and up to 7"
            )
        found = db.conn.execute(f"select id from {table} where id glob ? order by id", [prefix + "*"]) if db else ()
        names = [name for (name,) in found]
        if not names and db is not None and kind == "fault" and (now := faults.part_of(db, prefix)):
            raise UnknownFinding(f"{prefix} is part of {now} now: name that")
        if not names:
            verb = "faults" if kind == "fault" else "faults --findings"
            raise UnknownFinding(f"no {kind} {prefix} in {self.path}; `backfuzz {verb}` shows those there are")
        if len(names) > 1:
            raise AmbiguousFinding(
                f"{prefix} could be {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}; give more digits"
            )
        return str(names[0])

    @contextmanager
    def _reading(self) -> Iterator[Database | None]:
        with store_errors(self.path), row_errors(self.path):
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[Database]:
        """One transaction: everything in the block is stored, or nothing is."""
        if self.path.suffix == file.PACKED:
            raise UnwritableStore(f"{self.path} is packed and only read: merge it into another with `backfuzz merge`")
        with store_errors(self.path):
            if self._db is None or not self._current:
                self.close()
                if self.path == LEDGER:
                    self.path.parent.mkdir(exist_ok=True)
                self._db, self._current = file.connect(self.path), True
                file.migrate(self._db, self.path)
            with file.transaction(self._db) as db:
                yield db


def require_writable(path: Path) -> None:
    """Raise UnwritableStore where the first write to this file, or into its folder, would be refused."""
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    for place in (path, folder):
        if place.exists() and not os.access(place, os.W_OK):
            raise UnwritableStore(f"{path} cannot be written, since {place} is read-only: name another with --db")


def open_store(path: str | Path, create: bool = True) -> Store:
    """The store in this file. A missing file is `MissingStore` without `create`, else made by the first write.

    A file of an older schema reads as one of the newest; the first write updates the file in one transaction.
    """
    path = Path(path)
    if not path.exists():
        if not create:
            raise MissingStore(f"there is no {path}: run `backfuzz fuzz` to make one, or name another with --db")
        if not path.parent.is_dir() and path != LEDGER:
            raise UnwritableStore(f"{path} cannot be made: there is no folder {path.parent}")
        return Store(path, None)
    if path.is_dir():
        raise CorruptStore(f"{path} is a folder, not a store of findings")
    with store_errors(path):
        db = file.connect(path)
        try:
            current = file.is_current(db, path)
            return Store(path, db if current else file.migrated_copy(db, path), current)
        except BaseException:
            db.conn.close()
            raise
