"""The bench of hostile texts and ledgers: what it counts, and that there is nothing of ours to count."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches.hostile import count, hostile, idle_verbs, options_of, try_options

from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING


def test_changed_programs_flipped_ledgers_and_changed_options_are_refused_or_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        store.add(FINDING)
    told = hostile(300, 40, 200, 1, tmp_path / "a.db")
    assert told["texts"]["refused"] > 100
    assert told["texts"]["parsed"] > 5
    assert told["ledgers"]["refused"] > 5
    assert told["files of options"]["refused"] > 50
    assert told["files of options"]["read"] > 5
    assert [counts["first"] for counts in told.values()] == [[], [], []]


def test_whole_files_of_options_are_read_by_their_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with idle_verbs() as verbs:
        texts = {name: options_of(verb) for name, verb in verbs.items()}
        assert "seed = 3" in texts["fuzz"]
        assert try_options(texts["status"], "status") == "read"
        assert try_options(texts["status"].replace("=", "-"), "status") == "refused"
    assert verbs["status"].callback is not None
    assert verbs["status"].callback.__name__ == "status"


def test_a_fault_of_ours_is_counted() -> None:
    def broken() -> str:
        raise KeyError("x")

    told = count(iter([lambda: "fine", broken]))
    assert (told["fine"], told["faults of ours"], told["first"]) == (1, 1, ["KeyError: 'x'"])
