"""The order of faults by severity, held against a maintainer's."""

from __future__ import annotations

from benches.agreement import ROOT
from benches.severity import fit, folds, in_order, points, read_labels, severity_figures

from fuzzer.judgement.verdict import Finding
from fuzzer.ledger.severity import RARE
from fuzzer.ledger.store import open_store
from tests.ledger.found import finding
from tests.ledger.test_severity import DYNAMIC, HOOKED, LOUD, PLAIN, of

LABELS = {"a": 1, "b": 2, "c": 2, "d": 3}
HELD: dict[str, list[Finding]] = {
    "a": [finding(PLAIN), of(HOOKED)],
    "b": [of(HOOKED)],
    "c": [of(DYNAMIC)],
    "d": [of(PLAIN, LOUD)],
}


def test_pairs_of_different_levels_are_counted_a_tie_for_half() -> None:
    assert in_order({"a": 10, "b": 10, "c": 20, "d": 5}, LABELS) == (1.5, 5)


def test_weights_are_fitted_where_something_depends_on_them() -> None:
    weights = fit(HELD, LABELS)
    assert {thing.name for thing, weight in zip(RARE, weights, strict=True) if weight} == {"region", "dynamic"}
    assert points(HELD["a"], weights) < points(HELD["b"], weights) < points(HELD["d"], weights)


def test_every_fault_is_in_one_fold() -> None:
    parts = folds([f"F{n}" for n in range(13)])
    assert sorted(map(len, parts)) == [2, 2, 3, 3, 3]
    assert sorted(f for part in parts for f in part) == sorted(f"F{n}" for n in range(13))


def test_the_ledger_is_ordered_as_a_maintainer_would() -> None:
    labels = read_labels()
    with open_store(ROOT / "findings.db", create=False) as store:
        there = {fault.id for fault in store.faults()}
        held = {fault: list(store.variants(fault)) for fault in labels if fault in there}
    own = {fault: points(variants, tuple(thing.weight for thing in RARE)) for fault, variants in held.items()}
    right, pairs = in_order(own, labels)
    assert pairs > 500
    assert right / pairs > 0.9


def test_figures_tell_of_unseen_faults_too() -> None:
    figures = severity_figures(HELD, LABELS)
    assert figures["pairs_in_order"] == 1.0
    assert figures["rows"][0] == ("a", "S1", "S1")
    assert 0 <= figures["unseen_pairs_in_order"] <= 1
