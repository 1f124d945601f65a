"""The contents of a page, gathered from a ledger and the folders of its campaigns: plain values, no drawing."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.language.pairs import pairs
from fuzzer.ledger.changes import Changes
from fuzzer.ledger.faults import OPEN, Fault
from fuzzer.ledger.listing import by_promise, to_post, urgency
from fuzzer.ledger.progress import Point, read_pairs, read_points
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.scope import Scope
from fuzzer.ledger.store import CampaignRecord, Store

CAMPAIGNS = Path(".backfuzz") / "campaigns"  # where `backfuzz fuzz` keeps their folders
Pair = tuple[str, str]


@dataclass(frozen=True)
class Contents:
    """The contents of a page.

    findings    for each fault, by its id, its representative finding.
    points      of each campaign that recorded its progress, by its id.
    exercised   in how many programs each pair of operations was;  at_fault: in how many faults' minimal programs.
    scopes      of those findings, the newest by the fault's id.
    counted     the basis of `exercised`, in words.
    one         whether the page is about one campaign, with times since its start.
    changes     the changes of a night, which come first; None: no such section.
    """

    title: str
    faults: Sequence[Fault]
    findings: Mapping[str, Finding]
    campaigns: Sequence[CampaignRecord] = ()
    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    exercised: Mapping[Pair, int] = field(default_factory=dict)
    at_fault: Mapping[Pair, int] = field(default_factory=dict)
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    counted: str = ""
    one: bool = False
    changes: Changes | None = None

    @property
    def open(self) -> list[Fault]:
        """Open faults that break a promise of torch, the most urgent first."""
        return [f for f in by_promise(self.faults)[0] if f.state.name in OPEN]

    @property
    def to_post(self) -> list[Fault]:
        """The faults that a person could report now, the most severe first."""
        return to_post(self.faults)

    @property
    def closed(self) -> list[Fault]:
        """Fixed faults, and those that turned out to be none."""
        return [f for f in by_promise(self.faults)[0] if f.state.name not in OPEN]

    @property
    def apart(self) -> list[Fault]:
        """Faults that break no promise of torch."""
        return by_promise(self.faults)[1]


def of_ledger(store: Store, folders: Path = CAMPAIGNS) -> Contents:
    """A whole ledger, with the data of its campaigns found in `folders`."""
    faults, findings, campaigns = store.faults(), store.representatives(), store.campaigns()
    exercised = sum((read_pairs(folders / campaign.id) for campaign in campaigns), Counter[Pair]())
    counted = "programs of its campaigns"
    if not exercised:
        exercised, counted = _of_differing(store), "programs that differed (its campaigns' folders are not here)"
    points = {campaign.id: told for campaign in campaigns if (told := _points(campaign, folders / campaign.id))}
    title = f"{store.path.name}: the faults of a ledger"
    return Contents(title, sorted(faults, key=urgency), findings, campaigns, points, exercised,
                    _of_faults(faults, findings), _scopes(store, findings), counted)  # fmt: skip


def of_campaign(store: Store, reference: str, folders: Path = CAMPAIGNS) -> Contents:
    """One campaign, by its folder or its name: faults are counted, and first seen, within this campaign.

    Raises UsageError where there is neither folder nor row.
    """
    folder = Path(reference) if Path(reference).is_dir() else folders / reference
    name = folder.resolve().name
    rows = [campaign for campaign in store.campaigns() if campaign.id == name]
    if not rows and not folder.is_dir():
        raise UsageError(f"no campaign {reference}: neither a folder, nor one in {folders}, nor a row of {store.path}")
    met = store.met_in(name)
    faults = [replace(f, occurrences=met[f.id][0], first_seen=met[f.id][1]) for f in store.faults() if f.id in met]
    findings = store.representatives()
    exercised, counted = read_pairs(folder), "programs of the campaign"
    if not exercised:
        exercised = Counter(pair for fault in faults for pair in pairs(findings[fault.id].original))
        counted = "programs that differed (the campaign kept no count of the others)"
    points = _points(rows[0] if rows else None, folder)
    return Contents(f"Campaign {name}", sorted(faults, key=urgency), findings, rows, {name: points} if points else {},
                    exercised, _of_faults(faults, findings), _scopes(store, findings), counted, one=True)  # fmt: skip


def _scopes(store: Store, findings: Mapping[str, Finding]) -> dict[str, Scope]:
    """The newest scope of each fault's finding."""
    held = store.newest_scopes()
    return {fault: held[finding.id] for fault, finding in findings.items() if finding.id in held}


def _points(campaign: CampaignRecord | None, folder: Path) -> list[Point]:
    """A campaign's progress: all points from its folder, else those in its row."""
    stored: list[dict[str, Any]] = campaign.totals.get("progress", []) if campaign else []
    return read_points(folder) or [Point(**row) for row in stored]


def _of_differing(store: Store) -> Counter[Pair]:
    """The pairs of the programs that findings were minimized from."""
    return Counter(pair for row in store.rows(Wanted(), "original") for pair in pairs(row["original"]))


def _of_faults(faults: Iterable[Fault], findings: Mapping[str, Finding]) -> Counter[Pair]:
    """The pairs of the faults' minimal programs."""
    return Counter(pair for fault in faults for pair in pairs(findings[fault.id].program))


def moment(text: str) -> datetime.datetime | None:
    """A time of the ledger, in UTC; None for a malformed text."""
    try:
        read = datetime.datetime.fromisoformat(text[:25])
    except ValueError:
        try:
            read = datetime.datetime.fromisoformat(text[:19])
        except ValueError:
            return None
    return read.astimezone(datetime.UTC) if read.tzinfo else read.replace(tzinfo=datetime.UTC)
