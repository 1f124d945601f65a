"""The rule's faults against those by inspection, on the project's own ledger."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from benches.agreement import ROOT, agreement, causes_of, compare, inspected

from fuzzer.ledger.cause import group
from fuzzer.ledger.file import connect
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.rulings import standing
from fuzzer.ledger.store import open_store

LEDGER = ROOT / "findings.db"


@pytest.mark.slow
def test_the_rule_puts_no_two_causes_together_and_splits_few() -> None:
    found = agreement(LEDGER)
    assert found["findings"] == sum(map(len, inspected().values())) == 224
    assert found["precision"] >= 0.98
    assert found["recall"] >= 0.99
    assert found["split_share"] <= 0.05
    seen = found["recognition"]
    assert seen["recognised"] >= 0.65 * seen["members"]
    assert seen["wrong"] == 0
    assert seen["experiments"] < 2
    # lost gradients that no experiment tells apart; and three rows that one line of Triton explains (docs/decisions)
    assert len(found["mixed"]) <= 2


def test_the_ledgers_faults_are_those_of_the_rule_but_where_a_person_ruled() -> None:
    with open_store(LEDGER, create=False) as store:
        faults: dict[str, list[str]] = {}
        for row in store.rows(Wanted(), "id, fault"):
            faults.setdefault(row["fault"], []).append(row["id"])
    db = connect(LEDGER)
    ruled = {name for ruling in standing(db) for name in ruling.variants}
    db.conn.close()
    assert len(ruled) < 0.05 * sum(map(len, faults.values()))
    assert _without(ruled, faults.values()) == _without(ruled, group(causes_of(LEDGER)))


def _without(ruled: set[str], groups: Iterable[list[str]]) -> list[list[str]]:
    return sorted(filter(None, (sorted({*names} - ruled) for names in groups)))


@pytest.mark.parametrize(
    ("ours", "precision", "recall", "split", "mixed"),
    [
        (["ab", "cd"], 1.0, 1.0, [], 0),
        (["abcd"], 0.3333, 1.0, [], 1),
        (["a", "b", "cd"], 1.0, 0.5, ["one"], 0),
        (["ac", "bd", "e"], 0.0, 0.0, ["one", "two"], 2),
    ],
)
def test_pairs_are_counted(ours: list[str], precision: float, recall: float, split: list[str], mixed: int) -> None:
    found = compare([list(names) for names in ours], {"one": ["a", "b"], "two": ["c", "d"]})
    assert (found["precision"], found["recall"], list(found["split"])) == (precision, recall, split)
    assert len(found["mixed"]) == mixed
