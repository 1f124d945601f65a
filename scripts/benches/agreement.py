"""How far the faults that the rule makes of a ledger agree with those that a person made of it.

The person's are in `corpus/faults-by-inspection.json`, and are read here alone: the rule knows evidence only
(`fuzzer.ledger.cause`).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benches.options import json_option
from fuzzer.judgement.verdict import Finding
from fuzzer.language.text import parse
from fuzzer.ledger.cause import COPIED, MIXED, WITHOUT, Cause, cause_of, group, transforms
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.recognise import STAGE, Known, known_fault, needs_of, recognise
from fuzzer.ledger.store import open_store
from fuzzer.ledger.switches import AGREE

ROOT = Path(__file__).parents[2]
INSPECTED = ROOT / "corpus" / "faults-by-inspection.json"


def inspected(path: Path = INSPECTED) -> dict[str, list[str]]:
    """The findings of each fault, by the title that the person gave it."""
    return {row["fault"]: row["findings"] for row in json.loads(path.read_text())}


def compare(ours: Sequence[Sequence[str]], theirs: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Pairwise precision and recall of a partition against another, over what both hold; what is split or mixed.

    precision  of the pairs that we put together, the share that they did;  recall  of theirs, the share that we did.
    """
    mine = {name: i for i, names in enumerate(ours) for name in names}
    other = {name: title for title, names in theirs.items() for name in names}
    both = sorted(mine.keys() & other.keys())
    joined = [(mine[a] == mine[b], other[a] == other[b]) for a, b in itertools.combinations(both, 2)]
    agreed = joined.count((True, True))
    split = {t: _parts((n for n in names if n in mine), mine) for t, names in theirs.items()}
    mixed = {i: _parts((n for n in names if n in other), other) for i, names in enumerate(ours)}
    causes = len({other[name] for name in both})
    return {
        "findings": len(both),
        "faults": len({mine[name] for name in both}),
        "causes": causes,
        "precision": round(agreed / max(1, agreed + joined.count((True, False))), 4),
        "recall": round(agreed / max(1, agreed + joined.count((False, True))), 4),
        "split_share": round(sum(len(parts) > 1 for parts in split.values()) / max(1, causes), 4),
        "split": {title: list(parts.values()) for title, parts in split.items() if len(parts) > 1},
        "mixed": [{str(t): names for t, names in parts.items()} for parts in mixed.values() if len(parts) > 1],
    }


def _parts(names: Iterable[str], of: Mapping[str, Any]) -> dict[Any, list[str]]:
    """The names by what they are put into."""
    found: dict[Any, list[str]] = {}
    for name in names:
        found.setdefault(of[name], []).append(name)
    return found


def causes_of(db: Path) -> list[tuple[str, Cause]]:
    """What decides each finding of a ledger, by id, oldest first."""
    with open_store(db, create=False) as store:
        return [(finding.id, cause_of(finding)) for finding in store.list()]


def agreement(db: Path) -> dict[str, Any]:
    """The figures of the bench."""
    return compare(group(causes_of(db)), inspected()) | {"recognition": recognition(db)}


def recognition(db: Path) -> dict[str, Any]:
    """Each finding as a suspect, held against the ledger without it; its stored diagnosis answers.

    members  findings whose fault has others, how many of them were recognised as that fault;  alone   those that have a
    fault to themselves;  wrong   how many were taken for another fault;  experiments  of a suspect. Members, and the
    others, are counted of those by inspection: later ones are in the ledger because a campaign had not recognised them.
    """
    sample = {name for names in inspected().values() for name in names}
    with open_store(db, create=False) as store:
        fault_of = {row["id"]: row["fault"] for row in store.rows(Wanted(), "id, fault")}
        findings = store.list()
    held: dict[str, list[Finding]] = {}
    for finding in findings:
        held.setdefault(fault_of[finding.id], []).append(finding)
    known = {fault: known_fault(fault, variants) for fault, variants in held.items()}
    told = Counter[str]()
    for suspect in findings:
        own = fault_of[suspect.id]
        others = known | {own: known_fault(own, (v for v in held[own] if v is not suspect))}
        found, asked = _as_suspect(suspect, [k for some in others.values() for k in some])
        if suspect.id in sample:
            member = any(v.id in sample for v in held[own] if v is not suspect)
            told["members" if member else "alone"] += 1
            told["recognised"] += member and found == own
        told["wrong"] += found not in (None, own)
        told["experiments"] += asked
    names = ("members", "recognised", "alone", "wrong")
    return {name: told[name] for name in names} | {"experiments": round(told["experiments"] / len(findings), 2)}


def _as_suspect(finding: Finding, known: list[Known]) -> tuple[str | None, int]:
    """The fault that explains a finding, and after how many experiments, as its stored tables answer them."""
    program = parse(finding.program)
    held = needs_of(program)
    answers = {STAGE + name: seen for name, seen in finding.stages.items()} | finding.ablation
    # a minimal program agrees without a region, or a write, that it needs
    answers |= {WITHOUT + kind: AGREE for kind in transforms(program)} | ({COPIED: AGREE} if MIXED in held else {})
    asked: list[str] = []

    def answer(name: str) -> str:
        asked.append(name)
        return answers.get(name, "")

    return recognise(finding.signature, held, known, answer), len(asked)


@click.command("agreement")
@click.option("--db", type=click.Path(path_type=Path), default=ROOT / "findings.db", help="The ledger.")
@json_option
def agreement_command(db: Path, as_json: bool) -> None:
    """Do the faults that the rule makes of the ledger agree with those that a person made of it?"""
    figures = agreement(db)
    for line in [json.dumps(figures)] if as_json else [f"{name}: {value}" for name, value in figures.items()]:
        click.echo(line)
