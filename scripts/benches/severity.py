"""Does the order of faults by severity agree with a maintainer's?

corpus/severity.csv holds one reader's levels of half of the faults that were confirmed and alive on torch 2.15 when
they were read. A fault's points depend on the weights of `severity.RARE`. They are fitted on four fifths of the labels
and told on the other fifth, five times over; the ledger's own weights are told on all of them.
"""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benches.agreement import ROOT
from benches.options import json_option, print_figures
from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.diagnosed import NO_MORE
from fuzzer.ledger.severity import RARE, label, severity
from fuzzer.ledger.store import open_store

LABELS = ROOT / "corpus" / "severity.csv"
_FOLDS, _HEAVIEST, _ROUNDS, _SEED = 5, 5, 3, 0
Weights = tuple[int, ...]


def read_labels(path: Path = LABELS) -> dict[str, int]:
    """The levels of faults, by their ids."""
    with path.open() as file:
        return {row["fault"]: int(row["severity"]) for row in csv.DictReader(file)}


def points(variants: Sequence[Finding], weights: Weights) -> int:
    """The points of a fault with these weights: those of its most severe variant."""
    things = [replace(thing, weight=weight) for thing, weight in zip(RARE, weights, strict=True)]
    return min(severity(v.signature, v.program, v.comparisons, v.unsupported, things).points for v in variants)


def in_order(told: Mapping[str, int], labels: Mapping[str, int]) -> tuple[float, int]:
    """Pairs of faults of different levels that the points put in order, a tie for half, and all such pairs."""
    pairs = [(a, b) for a, b in itertools.permutations(told, 2) if labels[a] < labels[b]]
    return sum((told[a] < told[b]) + 0.5 * (told[a] == told[b]) for a, b in pairs), len(pairs)


def fit(held: Mapping[str, Sequence[Finding]], labels: Mapping[str, int]) -> Weights:
    """The weights, each of 0 to 5, that order these faults best: one after the other is set to its best, three times
    over; of equals the smallest."""
    best = [1] * len(RARE)
    for _, at in itertools.product(range(_ROUNDS), range(len(RARE))):
        tried = [(*best[:at], weight, *best[at + 1 :]) for weight in range(_HEAVIEST + 1)]
        orders = [in_order({f: points(held[f], weights) for f in held}, labels)[0] for weights in tried]
        best[at] = orders.index(max(orders))
    return tuple(best)


def folds(faults: Sequence[str]) -> list[list[str]]:
    """Faults in five parts, by chance."""
    mixed = sorted(faults)
    random.Random(_SEED).shuffle(mixed)
    return [mixed[n::_FOLDS] for n in range(_FOLDS)]


def severity_figures(held: Mapping[str, Sequence[Finding]], labels: Mapping[str, int]) -> dict[str, Any]:
    """The figures of the order: of unseen faults, and of all of them with the ledger's weights."""
    unseen: list[tuple[float, int]] = []
    for part in folds(list(held)):
        weights = fit({f: held[f] for f in held if f not in part}, labels)
        unseen.append(in_order({f: points(held[f], weights) for f in part}, labels))
    own = {f: points(held[f], tuple(thing.weight for thing in RARE)) for f in held}
    order = sorted(own, key=lambda fault: (own[fault], fault))
    right, pairs = in_order(own, labels)
    return {
        "faults": len(held),
        "unseen_pairs_in_order": round(sum(r for r, _ in unseen) / max(1, sum(n for _, n in unseen)), 3),
        "pairs_in_order": round(right / max(1, pairs), 3),
        "of_S1": sum(labels[f] == 1 for f in held),
        "S1_in_first": {n: sum(labels[f] == 1 for f in order[:n]) for n in (10, 20)},
        "S4_and_S5_in_first_20": sum(labels[f] >= 4 for f in order[:20]),
        "same_level": round(sum(label(own[f]) == f"S{labels[f]}" for f in held) / max(1, len(held)), 3),
        "rows": [(f, f"S{labels[f]}", label(own[f])) for f in order],
    }


@click.command("severity")
@click.option("--ledger", type=click.Path(exists=True, path_type=Path), default=ROOT / "findings.db",
              show_default="findings.db", help="The faults.")  # fmt: skip
@json_option
def severity_command(ledger: Path, as_json: bool) -> None:
    """Does the order of faults by severity agree with a maintainer's?"""
    labels = read_labels()
    with open_store(ledger, create=False) as store:
        there = {fault.id for fault in store.faults()}
        held = {f: [v for v in store.variants(f) if not v.side.startswith(NO_MORE)] for f in labels if f in there}
    print_figures(severity_figures({f: variants for f, variants in held.items() if variants}, labels), as_json)
