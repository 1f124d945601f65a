"""The bench of hostile texts and ledgers: what it counts, and that there is nothing of ours to count."""

from __future__ import annotations

from pathlib import Path

from benches.hostile import count, hostile

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING


def test_changed_programs_and_flipped_ledgers_are_refused_or_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        store.add(FINDING)
    told = hostile(300, 40, 1, tmp_path / "a.db")
    assert told["texts"]["refused"] > 100
    assert told["texts"]["parsed"] > 5
    assert told["ledgers"]["refused"] > 5
    assert [counts["first"] for counts in told.values()] == [[], []]


def test_a_fault_of_ours_is_counted() -> None:
    def broken() -> str:
        raise KeyError("x")

    told = count(iter([lambda: "fine", broken]))
    assert (told["fine"], told["faults of ours"], told["first"]) == (1, 1, ["KeyError: 'x'"])
